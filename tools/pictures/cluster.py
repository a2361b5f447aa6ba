"""The processes of a cluster: machines with a NATS server and a control node, and hypervisors with a host process."""

from tools.pictures.svg import AMBER, BLUE, GREEN, MUTED, NONE, PURPLE, Canvas

MACHINES = ((30, "10.0.0.1"), (320, "10.0.0.2"), (610, "10.0.0.3"))
HYPERVISORS = ((30, "hv-0"), (320, "hv-1"), (610, "hv-2"))


def draw() -> str:
    """Draw the picture."""
    canvas = Canvas(
        890, 560, title="Operators use any control node; control nodes save to three NATS servers; hosts follow them"
    )
    operators = canvas.box(345, 20, 200, 40, "operators: TLS, tokens", colour=AMBER, size=13)
    for (x, name), (start, end) in zip(MACHINES, ((0.1, 0.85), (0.15, 0.08), (0.9, 0.15)), strict=True):
        canvas.box(x, 95, 250, 165, name, colour=NONE, dashed=True, at_top=True)
        control = canvas.box(x + 25, 125, 200, 48, "control node", "operator API, clock", colour=BLUE, size=13)
        nats = canvas.box(x + 25, 200, 200, 40, "NATS server, one copy", colour=PURPLE, size=13)
        canvas.arrow(control.bottom(), nats.top())
        canvas.arrow(operators.bottom(start), control.top(end), colour=MUTED)
    canvas.line((255, 220), (345, 220))
    canvas.line((545, 220), (635, 220))
    for x, name in HYPERVISORS:
        canvas.box(x, 345, 250, 195, name, colour=NONE, dashed=True, at_top=True)
        host = canvas.box(x + 25, 375, 120, 52, "host process", "own disk", colour=BLUE, size=12)
        program = canvas.box(x + 160, 375, 75, 52, "your", "program", colour=AMBER, size=12)
        canvas.arrow(host.right(), program.left())
        for number in (0, 1):
            vm = canvas.box(x + 25 + 115 * number, 485, 95, 36, f"vm-{number}", colour=GREEN, mono=True, size=12)
            canvas.arrow(vm.top(), (x + 85, 427))
        canvas.arrow((x + 85, 375), (x + 85, 240))
    canvas.text(260, 300, "commands: approve, seen, begin, settle;", colour=MUTED, size=12)
    canvas.text(260, 318, "back: the records of its own VMs", colour=MUTED, size=12)
    canvas.text(178, 448, "169.254.169.254", colour=MUTED, size=11, anchor="start")
    return canvas.render()
