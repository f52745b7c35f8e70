#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what a command prints as a terminal window in SVG, colours and all:
script -qefc "build/imbrex demo" /dev/null | scripts/figures/terminal.py scripts/demo --most 62 -o docs/images/demo.svg"""
import argparse
import re
import sys
from html import escape

LINE, CHARACTER, MARGIN, BAR = 18, 7.83, 14, 30  # units: 13 px text in the fonts below
FONTS = "ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace"
PAPER, TITLE_BAR, INK = "#0d1117", "#161b22", "#e6edf3"
STYLES = {"1": 'font-weight="bold"', "2": 'fill="#8b949e"', "31": 'fill="#ff7b72"', "32": 'fill="#7ee787"',
          "33": 'fill="#d29922"', "34": 'fill="#58a6ff"', "36": 'fill="#58a6ff"'}


def spans(line):
    """The line's text as tspans, by its escape sequences."""
    out, styles = "", []
    for i, part in enumerate(re.split(r"\x1b\[([0-9;]*)m", line)):
        if i % 2:
            for code in part.split(";"):
                styles = [] if code in ("", "0") else styles + [STYLES[code]] if code in STYLES else styles
        elif part:
            text = escape(part, quote=False)
            out += f"<tspan {' '.join(styles)}>{text}</tspan>" if styles else text
    return out


def picture(title, lines):
    width = round(2 * MARGIN + CHARACTER * max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in lines))
    height = BAR + LINE * (len(lines) + 1)
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
           f'font-family="{FONTS}" font-size="13">')
    yield (f'<rect width="100%" height="100%" rx="8" fill="{PAPER}"/>'
           f'<rect width="100%" height="{BAR}" rx="8" fill="{TITLE_BAR}"/>')
    yield f'<text x="{MARGIN}" y="20" fill="#8b949e">{escape(title)}</text>'
    for i, line in enumerate(lines):
        if line.strip():
            yield f'<text x="{MARGIN}" y="{BAR + 24 + LINE * i}" fill="{INK}" xml:space="preserve">{spans(line)}</text>'
    yield "</svg>"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("title", help="what the window's bar says")
    parser.add_argument("--most", type=int, metavar="N", help="draw N lines and say how many more there were")
    parser.add_argument("-o", "--output", required=True, metavar="FILE")
    arguments = parser.parse_args()
    lines = sys.stdin.read().replace("\r", "").rstrip("\n").split("\n")
    if arguments.most and len(lines) > arguments.most:
        lines = lines[:arguments.most] + [f"\x1b[2m... and {len(lines) - arguments.most} more lines\x1b[0m"]
    with open(arguments.output, "w", encoding="utf-8") as out:
        out.write("\n".join(picture(arguments.title, lines)) + "\n")


main()
