"""Where the service runs: on one host, and for twenty."""

from tools.pictures.svg import AMBER, BLUE, GREEN, MUTED, NONE, Canvas


def draw() -> str:
    """Draw the picture."""
    canvas = Canvas(
        900, 380, title="One host runs Forewarn beside its guests; for twenty hosts, one machine serves them all"
    )
    _one(canvas)
    canvas.line((365, 30), (365, 350), dashed=True)
    _twenty(canvas)
    return canvas.render()


def _one(canvas: Canvas) -> None:
    canvas.text(180, 35, "One host", bold=True, size=16)
    canvas.box(20, 50, 325, 300, "host", colour=NONE, dashed=True, at_top=True)
    service = canvas.box(40, 85, 160, 60, "forewarn serve", "data in SQLite", colour=BLUE)
    program = canvas.box(215, 85, 115, 60, "your", "program", colour=AMBER, size=13)
    bridge = canvas.box(40, 190, 290, 34, "bridge br0, 169.254.169.254", size=13)
    for x, name in ((40, "web-0"), (140, "web-1"), (240, "db-0")):
        vm = canvas.box(x, 275, 90, 50, name, colour=GREEN, mono=True, size=13)
        canvas.arrow(vm.top(), (x + 45, bridge.bottom()[1]))
    canvas.arrow((120, 190), service.bottom())
    canvas.arrow(service.right(), program.left())
    canvas.text(235, 254, "every VM polls", colour=MUTED, size=11)


def _twenty(canvas: Canvas) -> None:
    canvas.text(635, 35, "Twenty hosts", bold=True, size=16)
    service = canvas.box(395, 60, 160, 70, "forewarn serve", "on one machine,", "one per fleet", colour=BLUE)
    program = canvas.box(605, 60, 120, 70, "your", "program", colour=AMBER, size=13)
    operator = canvas.box(775, 60, 105, 70, "operators", "TLS, tokens", colour=AMBER, size=13)
    network = canvas.box(395, 165, 485, 34, "guest network of all hosts, 169.254.169.254", size=13)
    for x, name in ((395, "hv-0"), (520, "hv-1"), (645, "…"), (765, "hv-19")):
        if name == "…":
            canvas.text(x + 50, 290, "…", size=24)
            continue
        host = canvas.box(x, 245, 115, 105, name, colour=NONE, dashed=True, at_top=True)
        canvas.box(x + 12, 275, 91, 26, name.replace("hv", "web"), colour=GREEN, mono=True, size=12)
        canvas.box(x + 12, 310, 91, 26, name.replace("hv", "api"), colour=GREEN, mono=True, size=12)
        canvas.arrow(host.top(), (host.top()[0], network.bottom()[1]))
    canvas.arrow((475, 165), service.bottom())
    canvas.arrow(service.right(), program.left())
    canvas.arrow(operator.top(), (827, 48), (475, 48), service.top(), colour=MUTED)
    canvas.arrow(program.bottom(), (665, 152), (890, 152), (890, 300), (880, 300), dashed=True)
    canvas.text(700, 227, "every VM polls", colour=MUTED, size=12)
    canvas.text(675, 147, "for example by ssh", colour=MUTED, size=12, anchor="start")
