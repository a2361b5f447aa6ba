"""The main loop: the steps of a change, with the observers and duties that the code lists."""

import ast
from itertools import pairwise
from pathlib import Path

from tools.pictures.svg import AMBER, BLUE, GREEN, MUTED, PLAIN, Canvas

FLEET = Path(__file__).resolve().parents[2] / "src/forewarn/fleet"

STEPS = ("command", "decide", "save", "replica", "observers", "reply")
WIDTH, GAP, TOP = 106, 32, 70


def draw() -> str:
    """Draw the picture."""
    service, scopes = (ast.parse((FLEET / name).read_text()) for name in ("service.py", "scopes.py"))
    observers, duties = [*read_observers(service), *read_last_observers(scopes)], read_duties(service)
    canvas = Canvas(40 + len(STEPS) * WIDTH + (len(STEPS) - 1) * GAP, 300, title="The main loop: how a change is made")
    boxes = {}
    for number, step in enumerate(STEPS):
        colour = {"save": AMBER, "replica": GREEN, "observers": BLUE}.get(step, PLAIN)
        boxes[step] = canvas.box(20 + number * (WIDTH + GAP), TOP, WIDTH, 46, step, colour=colour)
    for left, right in pairwise(STEPS):
        canvas.arrow(boxes[left].right(), boxes[right].left())
    save, decide, replica = boxes["save"], boxes["decide"], boxes["replica"]
    canvas.arrow(save.top(0.3), (save.top(0.3)[0], 44), (decide.top(0.7)[0], 44), decide.top(0.7))
    canvas.text((save.top(0.3)[0] + decide.top(0.7)[0]) / 2, 36, "revision conflict: read again", size=12, colour=MUTED)
    store = canvas.box(save.x - 15, 190, WIDTH + 30, 46, "store", "values and journal")
    canvas.arrow(
        save.bottom(), store.top(), label="compare and swap", label_at=(save.bottom()[0] - 8, 160), anchor="end"
    )
    canvas.arrow(store.right(), (replica.bottom()[0], 213), replica.bottom())
    canvas.text(replica.bottom()[0] + 6, 160, "watch: saves of", anchor="start", size=12, colour=MUTED)
    canvas.text(replica.bottom()[0] + 6, 176, "other processes", anchor="start", size=12, colour=MUTED)
    x = boxes["observers"].x + 10
    canvas.line(boxes["observers"].bottom(), (boxes["observers"].bottom()[0], 136))
    for number, name in enumerate(observers):
        canvas.text(x + 34, 152 + number * 18, f"{number + 1}. {name}", anchor="start", size=12)
    canvas.text(
        20, 268, f"Duties, each in one process at a time: {', '.join(duties)}", anchor="start", size=12, colour=MUTED
    )
    return canvas.render()


def read_observers(tree: ast.Module) -> list[str]:
    """Return the observers of scopes in their order, from the call that adds them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "self.scopes.add_observers":
            return [_plain(argument) for argument in node.args]
    raise LookupError("fleet/service.py registers no observers of scopes")


def read_last_observers(tree: ast.Module) -> list[str]:
    """Return the observers that `Scopes` itself keeps after all others."""
    for node in ast.walk(tree):
        value = node.value if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "self._last" else None
        if isinstance(value, ast.Tuple):
            return [_plain(observer) for observer in value.elts]
    raise LookupError("fleet/scopes.py has no observers of its own")


def read_duties(tree: ast.Module) -> list[str]:
    """Return the duties in the order in which they start."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Duties":
            return [_plain(argument) for argument in node.args]
    raise LookupError("fleet/service.py has no duties")


def _plain(node: ast.expr) -> str:
    """Return a part of the fleet in words: impacts for `self.impacts.observe`, long polls for `LongPollObserver(…)`."""
    calls = [each for each in ast.walk(node) if isinstance(each, ast.Call)]
    name = ast.unparse(calls[0].func) if calls else ast.unparse(node).removeprefix("self.").partition(".")[0]
    words = "".join(f" {each.lower()}" if each.isupper() else each for each in name.replace("_", " ")).split()
    plain = " ".join(word for word in words if word not in ("observer", "duty"))
    return plain if plain.endswith(("r", "s")) else f"{plain}s"
