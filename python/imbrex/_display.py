# SPDX-License-Identifier: Apache-2.0
"""What notebooks show: findings, IR and PTX, timelines, pages. Plain HTML with styles of its own and no scripts."""
from __future__ import annotations

import html
import re

_BOX = "font-family:system-ui,sans-serif;font-size:13px;line-height:1.45;margin:6px 0"
_CODE = "font-family:ui-monospace,monospace;font-size:12px;line-height:1.4;margin:4px 0;padding:8px;overflow:auto;"
_CODE += "background:rgba(127,127,127,.12);border-radius:4px;white-space:pre"


def _quoted(place) -> str:
    """The line of the source with two around it, where the file can be read; else the instruction."""
    if place.file:
        try:
            with open(place.file, encoding="utf-8") as file:
                lines = file.read().splitlines()
        except OSError:
            lines = []
        if 0 < place.line <= len(lines):
            shown = []
            for number in range(max(1, place.line - 2), min(len(lines), place.line + 2) + 1):
                text = html.escape(f"{number:5d}  {lines[number - 1]}")
                is_it = number == place.line
                shown.append(f"<b style='color:#c0392b'>{text}</b>" if is_it else text)
            return "\n".join(shown)
    return html.escape(f"{place.ptx_line:5d}  {place.ptx}")


def _where(place) -> str:
    return f"{place.file}:{place.line}" if place.file else f"PTX line {place.ptx_line}"


def finding_html(finding) -> str:
    actor = finding.actor
    who = f"CTA ({', '.join(map(str, actor.cta))})" if actor.cta[0] >= 0 else ""
    if actor.warp >= 0:
        who += f", warp {actor.warp}"
    if actor.lane >= 0:
        who += f", lane {actor.lane}"
    if actor.unit:
        who += f", {actor.unit}"
    colour = "#c0392b" if finding.severity == "finding" else "#7f8c8d"
    parts = [
        f"<div style='{_BOX};border-left:3px solid {colour};padding-left:10px'>",
        f"<div><b style='color:{colour}'>{html.escape(finding.kind)}</b> {html.escape(finding.message)}</div>",
        f"<div style='opacity:.7'>{html.escape(_where(finding.place))}{' · ' if who else ''}{html.escape(who)}"
        f"{f' · {finding.count} times' if finding.count > 1 else ''}</div>",
        f"<pre style='{_CODE}'>{_quoted(finding.place)}</pre>",
    ]
    if finding.other_place is not None:
        parts.append(f"<div style='opacity:.7'>against {html.escape(_where(finding.other_place))}</div>")
        parts.append(f"<pre style='{_CODE}'>{_quoted(finding.other_place)}</pre>")
    if finding.facts:
        parts.append("<ul style='margin:2px 0'>" + "".join(f"<li>{html.escape(f)}</li>" for f in finding.facts) + "</ul>")
    if finding.hint:
        parts.append(f"<div><b>help</b> {html.escape(finding.hint)}</div>")
    return "".join(parts) + "</div>"


def report_html(report) -> str:
    findings = report.findings
    count = report.statistics["instructions"]
    if report.clean:
        head = f"<span style='color:#1e8449'>✓</span> nothing found · {count:,} warp instructions"
    else:
        end = "" if report.completed else " · it did not run to its end"
        head = f"<b style='color:#c0392b'>{len(findings)} finding{'s' * (len(findings) != 1)}</b>{end}"
    parts = [f"<div style='{_BOX}'><code>{html.escape(report.kernel)}</code> · {head}</div>"]
    parts += [finding_html(finding) for finding in [*findings, *report.notes]]
    if report.output:
        parts.append(f"<pre style='{_CODE}'>{html.escape(report.output)}</pre>")
    return "".join(parts)


class Code(str):
    """IR or PTX: a str that notebooks show in colours."""

    _WORDS = re.compile(
        r"(?P<comment>//[^\n]*)|(?P<text>&quot;.*?&quot;)|(?P<register>%[\w.]+)|(?P<directive>(?<![\w.])\.\w+)"
    )
    _COLOURS = {"comment": "#7f8c8d", "text": "#1e8449", "register": "#2471a3", "directive": "#8e44ad"}

    def _repr_html_(self) -> str:
        def coloured(match):
            return f"<span style='color:{self._COLOURS[match.lastgroup]}'>{match.group()}</span>"

        return f"<pre style='{_CODE};max-height:30em'>{self._WORDS.sub(coloured, html.escape(self))}</pre>"


class Timeline:
    """A predicted timeline: `svg` is the picture, `microseconds` the time on the chip by the cost model."""

    def __init__(self, report):
        self.report = report
        self.svg: str = report.timeline_svg()
        self.microseconds: float = report.predicted_microseconds

    def save(self, path) -> None:
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.svg)

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<timeline of {self.report.kernel}: {self.microseconds:.2f} µs predicted>"


class Page:
    """A page of HTML, shown in a frame of the notebook."""

    def __init__(self, text: str):
        self.html = text

    def save(self, path) -> None:
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.html)

    def _repr_html_(self) -> str:
        return (
            f"<iframe srcdoc='{html.escape(self.html, quote=True)}' "
            "style='width:100%;height:640px;border:1px solid rgba(127,127,127,.4)'></iframe>"
        )

    def __repr__(self) -> str:
        return f"<page of {len(self.html)} characters>"
