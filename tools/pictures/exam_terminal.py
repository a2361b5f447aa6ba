"""A terminal in which `forewarn exam` finds a bug, from the recording in `docs/pictures/exam.txt`."""

from pathlib import Path

from tools.pictures.svg import Canvas, Colour

RECORDING = Path(__file__).resolve().parents[2] / "docs/pictures/exam.txt"
SIZE, LINE_HEIGHT, LEFT, TOP = 13, 19, 20, 52
WIDEST = 92
"""Longer lines are left out: they are remarks, and would make the whole text smaller."""

DARK = Colour("#0d1117", "#30363d")
TEXT, DIM, GREEN, RED, BOLD = "#e6edf3", "#9198a1", "#3fb950", "#ff7b72", "#ffffff"


def draw() -> str:
    """Draw the picture."""
    lines = [line for line in RECORDING.read_text().splitlines() if len(line) <= WIDEST]
    width = LEFT * 2 + max(len(line) for line in lines) * SIZE * 0.61 + 20
    canvas = Canvas(
        width, TOP + len(lines) * LINE_HEIGHT + 10, title="forewarn exam finds a bug in a handler", panel=DARK
    )
    for number, colour in enumerate(("#ff5f57", "#febc2e", "#28c840")):
        canvas.dot(26 + number * 20, 22, colour=colour, radius=6)
    for number, line in enumerate(lines):
        if line.strip():
            canvas.text(
                LEFT,
                TOP + number * LINE_HEIGHT,
                line,
                size=SIZE,
                mono=True,
                anchor="start",
                colour=_colour(line),
                bold=line.startswith("$"),
            )
    return canvas.render()


def _colour(line: str) -> str:
    if line.startswith("$"):
        return BOLD
    if line.startswith("✓"):
        return GREEN
    if line.startswith("✗") or line.strip().startswith("seen:"):
        return RED
    return DIM if line.startswith(("Checks:", "Not judged")) else TEXT
