"""Processes and packages: which program contains which package, and the layers that imports follow."""

import tomllib
from pathlib import Path

from tools.pictures.svg import AMBER, BLUE, GREEN, LINE, MUTED, PLAIN, PURPLE, Canvas, Colour

PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"

SERVICE, GUEST, COMMAND, TESTS, SHARED = BLUE, GREEN, AMBER, PURPLE, PLAIN
MAIN_USER: dict[str, Colour] = {
    "cli": SHARED,
    "testing": TESTS,
    "compose": SERVICE,
    "guest": SERVICE,
    "operator": SERVICE,
    "agent": GUEST,
    "fleet": SERVICE,
    "client": GUEST,
    "api": COMMAND,
    "store": SERVICE,
    "platform": SERVICE,
    "wire": SHARED,
    "clock": SHARED,
    "settings": SHARED,
    "files": SHARED,
    "http_client": SHARED,
    "process": SHARED,
    "core": SHARED,
}
"""The process that each package is made for. A package without an entry is an error."""

WIDTH, ROW, BOX_GAP = 860, 44, 12


def read_layers() -> list[list[str]]:
    """Return the layers that `make check` enforces, the highest first."""
    contracts = tomllib.loads(PYPROJECT.read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [layer.split(" | ") for layer in layers]


def draw() -> str:
    """Draw the picture."""
    layers = read_layers()
    canvas = Canvas(
        WIDTH, 250 + len(layers) * ROW + 40, title="Processes of Forewarn, and the packages they consist of"
    )
    _draw_processes(canvas)
    canvas.line((20, 190), (WIDTH - 20, 190), colour=LINE, dashed=True)
    canvas.text(20, 216, "Packages of src/forewarn, in layers", anchor="start", bold=True, size=14)
    canvas.text(WIDTH - 20, 216, "imports point down only", anchor="end", colour=MUTED, size=12)
    for number, layer in enumerate(layers):
        y = 232 + number * ROW
        width = (WIDTH - 40 - BOX_GAP * (len(layer) - 1)) / len(layer)
        for column, package in enumerate(layer):
            x = 20 + column * (width + BOX_GAP)
            canvas.box(x, y, width, ROW - 12, package, colour=MAIN_USER[package], mono=True, size=13, bold=False)
    y = 232 + len(layers) * ROW + 8
    legend = [
        ("service", SERVICE),
        ("inside the VM", GUEST),
        ("operator command", COMMAND),
        ("tests", TESTS),
        ("all", SHARED),
    ]
    for column, (name, colour) in enumerate(legend):
        x = 20 + column * 165
        canvas.box(x, y, 26, 16, colour=colour)
        canvas.text(x + 34, y + 13, name, anchor="start", size=12)
    return canvas.render()


def _draw_processes(canvas: Canvas) -> None:
    canvas.text(20, 36, "Processes", anchor="start", bold=True, size=14)
    agent = canvas.box(20, 60, 170, 70, "inside a VM", "forewarn agent,", "your handler", colour=GUEST)
    service = canvas.box(
        330, 50, 200, 90, "service", "forewarn up, forewarn serve", "one per data directory", colour=SERVICE
    )
    command = canvas.box(670, 60, 170, 70, "command", "forewarn event, hold,", "campaign, watch", colour=COMMAND)
    canvas.arrow(agent.right(), service.left(), label="HTTP, guest endpoint")
    canvas.arrow(command.left(), service.right(), label="HTTP, operator API")
    tests = canvas.box(330, 152, 200, 28, "pytest, forewarn exam", colour=TESTS, size=12, bold=False)
    canvas.text(
        tests.right()[0] + 10, tests.right()[1] + 4, "contain a whole service", anchor="start", colour=MUTED, size=12
    )
