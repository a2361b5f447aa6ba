"""Drawing primitives: boxes, arrows and text on a panel, rendered as SVG.

A picture has an opaque background, so it is readable on a light and on a dark page. It uses no font, script or
image from outside. Text that does not fit into its box is an error, so it is found without looking at the picture.
"""

from collections.abc import Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

SANS = "system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"

INK, MUTED, LINE = "#1f2328", "#57606a", "#8c959f"

SANS_WIDTH, MONO_WIDTH = 0.58, 0.61
"""Width of an average character, as a fraction of the font size: a little more than common fonts need."""

PADDING = 8


class Colour(NamedTuple):
    """The fill of a box and the colour of its border."""

    fill: str
    stroke: str


PLAIN = Colour("#f6f8fa", LINE)
BLUE = Colour("#ddf4ff", "#0969da")
GREEN = Colour("#dafbe1", "#1a7f37")
AMBER = Colour("#fff8c5", "#9a6700")
RED = Colour("#ffebe9", "#cf222e")
PURPLE = Colour("#fbefff", "#8250df")
NONE = Colour("none", LINE)
PANEL = Colour("#ffffff", "#d0d7de")

Point = tuple[float, float]


class TextTooWide(Exception):
    """A text does not fit into its box."""


class Box(NamedTuple):
    """The place of a box, with the points at which arrows meet it."""

    x: float
    y: float
    width: float
    height: float

    def left(self, at: float = 0.5) -> Point:
        """Return a point on the left edge."""
        return self.x, self.y + self.height * at

    def right(self, at: float = 0.5) -> Point:
        """Return a point on the right edge."""
        return self.x + self.width, self.y + self.height * at

    def top(self, at: float = 0.5) -> Point:
        """Return a point on the top edge."""
        return self.x + self.width * at, self.y

    def bottom(self, at: float = 0.5) -> Point:
        """Return a point on the bottom edge."""
        return self.x + self.width * at, self.y + self.height


class Canvas:
    """A picture under construction."""

    def __init__(self, width: float, height: float, *, title: str, panel: Colour = PANEL) -> None:
        self.width = width
        self.height = height
        self._title = title
        self._panel = panel
        self._parts: list[str] = []

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *lines: str,
        colour: Colour = PLAIN,
        dashed: bool = False,
        size: float = 14,
        mono: bool = False,
        at_top: bool = False,
        bold: bool = True,
    ) -> Box:
        """Draw a box. The first line is its name, the others are smaller and grey."""
        dash = ' stroke-dasharray="6 4"' if dashed else ""
        self._parts.append(
            f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}" rx="6" '
            f'fill="{colour.fill}" stroke="{colour.stroke}" stroke-width="1.5"{dash}/>'
        )
        heights = [size * 1.3] + [size * 0.86 * 1.4] * (len(lines) - 1)
        top = y + PADDING if at_top else y + (height - sum(heights)) / 2
        for number, line in enumerate(lines):
            line_size = size if number == 0 else size * 0.86
            if text_width(line, line_size, mono=mono and number == 0) > width - PADDING:
                raise TextTooWide(f"{self._title}: {line!r} does not fit into {width}")
            self.text(
                x + width / 2,
                top + line_size,
                line,
                size=line_size,
                mono=mono and number == 0,
                bold=bold and number == 0,
                colour=INK if number == 0 else MUTED,
            )
            top += heights[number]
        return Box(x, y, width, height)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = 13,
        anchor: str = "middle",
        mono: bool = False,
        bold: bool = False,
        colour: str = INK,
        halo: bool = False,
    ) -> None:
        """Write a line of text; `y` is its baseline. A halo keeps it readable across lines."""
        width = text_width(text, size, mono=mono)
        left = {"start": x, "middle": x - width / 2, "end": x - width}[anchor]
        if left < 0 or left + width > self.width or not size < y < self.height:
            raise TextTooWide(f"{self._title}: {text!r} does not fit into the picture")
        extra = ' font-weight="600"' if bold else ""
        extra += f' font-family="{MONO}"' if mono else ""
        extra += f' stroke="{self._panel.fill}" stroke-width="4" paint-order="stroke"' if halo else ""
        self._parts.append(
            f'<text x="{_n(x)}" y="{_n(y)}" font-size="{_n(size)}" text-anchor="{anchor}" fill="{colour}"{extra} '
            f'xml:space="preserve">{escape(text)}</text>'
        )

    def arrow(
        self,
        *points: Point,
        label: str = "",
        label_at: Point | None = None,
        anchor: str = "middle",
        colour: str = MUTED,
        dashed: bool = False,
        both: bool = False,
        size: float = 12,
    ) -> None:
        """Draw an arrow along the points, with a label above its middle or at a given place."""
        dash = ' stroke-dasharray="6 4"' if dashed else ""
        start = f' marker-start="url(#{_marker(colour)})"' if both else ""
        path = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
        self._parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"{dash}{start} '
            f'marker-end="url(#{_marker(colour)})"/>'
        )
        if label:
            middle = len(points) // 2
            (x1, y1), (x2, y2) = points[middle - 1], points[middle]
            x, y = label_at or ((x1 + x2) / 2, (y1 + y2) / 2 - 8)
            self.text(x, y, label, size=size, anchor=anchor, colour=MUTED if colour == MUTED else colour, halo=True)

    def line(self, *points: Point, colour: str = LINE, width: float = 1.4, dashed: bool = False) -> None:
        """Draw a line along the points."""
        dash = ' stroke-dasharray="4 4"' if dashed else ""
        path = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
        self._parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{_n(width)}"{dash}/>'
        )

    def dot(self, x: float, y: float, *, colour: str = INK, radius: float = 4.5) -> None:
        """Draw a filled circle."""
        self._parts.append(f'<circle cx="{_n(x)}" cy="{_n(y)}" r="{_n(radius)}" fill="{colour}"/>')

    def render(self) -> str:
        """Return the picture as the text of an SVG file."""
        markers = "".join(_marker_definition(colour) for colour in _marker_colours(self._parts))
        width, height = _n(self.width), _n(self.height)
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img" font-family="{SANS}">'
        )
        panel = (
            f'<rect x="0.5" y="0.5" width="{_n(self.width - 1)}" height="{_n(self.height - 1)}" rx="10" '
            f'fill="{self._panel.fill}" stroke="{self._panel.stroke}"/>'
        )
        title = f"<title>{escape(self._title)}</title>"
        return "\n".join([head, title, f"<defs>{markers}</defs>", panel, *self._parts, "</svg>\n"])


def text_width(text: str, size: float, *, mono: bool = False) -> float:
    """Estimate how wide a text is."""
    return len(text) * size * (MONO_WIDTH if mono else SANS_WIDTH)


def _n(number: float) -> str:
    """Format a number in a short form that is the same on every machine."""
    return f"{number:.1f}".removesuffix(".0")


def _marker(colour: str) -> str:
    return f"head-{colour.removeprefix('#')}"


def _marker_colours(parts: Sequence[str]) -> list[str]:
    found = {part.split("url(#head-")[1].split(")")[0] for part in parts if "url(#head-" in part}
    return sorted(f"#{name}" for name in found)


def _marker_definition(colour: str) -> str:
    return (
        f'<marker id="{_marker(colour)}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
        f'orient="auto-start-reverse"><path d="M0,0 L10,5 L0,10 z" fill="{colour}"/></marker>'
    )
