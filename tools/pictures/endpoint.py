"""Who talks to whom: VM, guest endpoint, operator, platform."""

from tools.pictures.svg import AMBER, BLUE, GREEN, MUTED, Canvas


def draw() -> str:
    """Draw the picture."""
    canvas = Canvas(920, 300, title="A VM polls the guest endpoint and approves; an operator uses the operator API")
    vm = canvas.box(20, 50, 170, 120, "VM", "your handler,", "the client library", "or forewarn agent", colour=GREEN)
    canvas.box(400, 30, 260, 155, "Forewarn", colour=BLUE, at_top=True, size=16)
    guest = canvas.box(410, 65, 120, 105, "guest", "endpoint", "169.254.169.254", size=13)
    operator = canvas.box(540, 65, 110, 105, "operator", "API", "port 8170", size=13)
    person = canvas.box(780, 50, 120, 120, "operator", "forewarn", "command,", "scripts", colour=AMBER)
    platform = canvas.box(400, 225, 260, 50, "platform", "simulated, or your own program")

    canvas.arrow((190, 80), (guest.x, 80), label="GET: what is planned?")
    canvas.arrow((guest.x, 117), (190, 117), label="events, each with NotBefore")
    canvas.arrow((190, 154), (guest.x, 154), label="POST: approve")
    canvas.arrow((person.x, 90), (operator.right()[0], 90), label="schedule, hold")
    canvas.arrow((operator.right()[0], 140), (person.x, 140), label="status, journal")
    canvas.arrow((530, 185), platform.top(), label="start the work", label_at=(538, 209), anchor="start")
    canvas.arrow(platform.left(), (105, 250), vm.bottom())
    canvas.text(252, 242, "freeze, reboot, redeploy,", size=12, colour=MUTED)
    canvas.text(252, 268, "preempt, terminate", size=12, colour=MUTED)
    return canvas.render()
