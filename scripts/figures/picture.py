# SPDX-License-Identifier: Apache-2.0
"""Pictures as SVG, readable on light and dark pages and on a phone."""
import sys
from html import escape

WIDTH = 640  # units: a phone shows about 360 pixels of them, so no text is smaller than 19
SMALL, TEXT, TITLE = 19, 20, 23

INK, MUTED, GRID, PAPER = "#1f2328", "#57606a", "#d0d7de", "#ffffff"
LOAD, MATRIX, STORE, MOVE, RUN, CONTROL = "#3d7fc4", "#e07b28", "#2a9d74", "#8a63c9", "#64748b", "#c2487f"
PALE = {LOAD: "#d6e4f5", MATRIX: "#fae0c8", STORE: "#cfeade", MOVE: "#e4daf4", CONTROL: "#f5d6e3"}


class Picture:
    """An SVG on a white card, so that it reads the same on light and dark pages."""

    def __init__(self, height, title):
        self.height = height
        self.parts = []
        self.text(18, 34, title, TITLE, weight=700)

    def add(self, part):
        self.parts.append(part)

    def under(self, draw):
        """What draw() adds comes below everything that is there."""
        above, self.parts = self.parts, []
        draw()
        self.parts += above

    def text(self, x, y, words, size=TEXT, fill=INK, anchor="start", weight=400):
        estimate = len(words) * size * (0.56 if weight == 400 else 0.6)
        left = x - {"start": 0, "middle": estimate / 2, "end": estimate}[anchor]
        if left < 2 or left + estimate > WIDTH - 2:
            print(f"text may not fit: {words!r} from {left:.0f} to {left + estimate:.0f}", file=sys.stderr)
        self.add(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}" text-anchor="{anchor}" '
                 f'font-weight="{weight}">{escape(words)}</text>')

    def box(self, x, y, width, height, fill, stroke="none", radius=2, tooltip=None):
        inside = f"<title>{escape(tooltip)}</title>" if tooltip else ""
        self.add(f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.8):.1f}" height="{height:.1f}" rx="{radius}" '
                 f'fill="{fill}" stroke="{stroke}">{inside}</rect>')

    def line(self, x1, y1, x2, y2, stroke=GRID, width=1.0, dash=None):
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.add(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}" '
                 f'stroke-width="{width}"{dashes}/>')

    def path(self, points, stroke, width=2.5):
        text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.add(f'<polyline points="{text}" fill="none" stroke="{stroke}" stroke-width="{width}"/>')

    def arrow(self, x1, y1, x2, y2, stroke=INK, width=2.0):
        self.add(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}" '
                 f'stroke-width="{width}" marker-end="url(#head)"/>')

    def legend(self, x, y, entries):
        """Boxes with words, from x on; a new row where the width ends."""
        at = x
        for fill, words in entries:
            need = 24 + len(words) * SMALL * 0.53 + 18
            if at + need > WIDTH - 6 and at > x:
                at, y = x, y + 26
            self.box(at, y - 13, 16, 16, fill, stroke=MUTED if fill in ("url(#wait)", PAPER) else "none")
            self.text(at + 23, y, words, SMALL, MUTED)
            at += need

    def save(self, path):
        path.write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" width="{WIDTH}" '
            f'height="{self.height}" font-family="Inter,\'Helvetica Neue\',Helvetica,Arial,\'DejaVu Sans\',sans-serif">\n'
            '<defs><pattern id="wait" width="7" height="7" patternUnits="userSpaceOnUse" '
            'patternTransform="rotate(45)"><rect width="7" height="7" fill="#eef1f4"/>'
            '<line x1="0" y1="0" x2="0" y2="7" stroke="#c3ccd6" stroke-width="2.6"/></pattern>'
            f'<marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            f'orient="auto-start-reverse"><path d="M0,0 L10,5 L0,10 z" fill="{INK}"/></marker></defs>\n'
            f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{self.height - 1}" rx="10" fill="{PAPER}" '
            f'stroke="{GRID}"/>\n' + "\n".join(self.parts) + "\n</svg>\n")


class Axis:
    """Cycles along x, between two places."""

    def __init__(self, first, last, left, right):
        self.first, self.last, self.left, self.right = first, last, left, right

    def x(self, cycle):
        part = (cycle - self.first) / (self.last - self.first)
        return self.left + min(max(part, 0), 1) * (self.right - self.left)

    def ticks(self, picture, top, bottom, count=5):
        step = nice_step((self.last - self.first) / count)
        cycles = range(-(-int(self.first) // step) * step, int(self.last) + 1, step)
        picture.under(lambda: [picture.line(self.x(c), top, self.x(c), bottom) for c in cycles])
        for cycle in cycles:
            if self.x(cycle) < WIDTH - 34:
                picture.text(self.x(cycle), bottom + 20, spaced(cycle), SMALL, MUTED, "middle")


def spaced(number):
    """12345 as 12 345."""
    return f"{number:,.0f}".replace(",", "\u2009")


def nice_step(step):
    size = 1
    while size * 10 <= step:
        size *= 10
    return next(size * factor for factor in (1, 2, 5, 10) if size * factor >= step)
