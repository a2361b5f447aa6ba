"""Scopes, update domains and hosts of the demonstration fleet, as boxes in boxes."""

from datetime import UTC, datetime

from forewarn.api.fleet_file import CreationContext, demonstration_fleet
from tools.pictures.svg import AMBER, BLUE, INK, MUTED, NONE, Canvas

SHOWN = ("web", "shop")
LEFT, TOP, CELL, ROW, GAP = 170, 70, 200, 114, 22


def draw() -> str:
    """Draw the picture."""
    context = CreationContext(datetime(2030, 1, 1, tzinfo=UTC), lambda: "e")
    scopes = [scope for name in SHOWN for scope in demonstration_fleet(context) if scope.id == name]
    hosts = sorted({vm.host for scope in scopes for vm in scope.roster if vm.host is not None})
    height = TOP + len(scopes) * (ROW + GAP) + 70
    canvas = Canvas(
        LEFT + len(hosts) * CELL + 30, height, title="Scopes as rows, hosts as columns, update domains where they cross"
    )
    for column, host in enumerate(hosts):
        x = LEFT + column * CELL + 10
        canvas.box(x, 30, CELL - 20, height - 100, f"host {host}", colour=NONE, dashed=True, at_top=True)
    for row, scope in enumerate(scopes):
        y = TOP + row * (ROW + GAP)
        canvas.box(15, y, LEFT + len(hosts) * CELL, ROW, colour=BLUE)
        canvas.text(28, y + 48, f"scope {scope.id}", anchor="start", bold=True, size=15)
        canvas.text(28, y + 68, scope.kind.value, anchor="start", colour=MUTED)
        for column, host in enumerate(hosts):
            vms = [vm for vm in scope.roster if vm.host == host]
            if vms:
                x = LEFT + column * CELL + 25
                domain = f"update domain {vms[0].update_domain}"
                canvas.box(x, y + 12, CELL - 50, ROW - 24, domain, colour=AMBER, at_top=True, size=12, bold=False)
                for number, vm in enumerate(vms):
                    canvas.box(x + 10, y + 39 + number * 25, CELL - 70, 22, vm.name, size=12, mono=True, bold=False)
    # The host's border once more, above the scopes: a host cuts through them.
    for column in range(len(hosts)):
        x = LEFT + column * CELL + 10
        canvas.box(x, 30, CELL - 20, height - 100, colour=NONE, dashed=True)
    y = height - 42
    canvas.text(28, y, "Every VM of a scope sees all events of the scope.", anchor="start", colour=INK)
    canvas.text(28, y + 20, "An event affects the VMs of one update domain on one host.", anchor="start", colour=INK)
    return canvas.render()
