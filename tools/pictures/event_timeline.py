"""The life of a Reboot on a time line: once without an approval, once with one."""

from datetime import timedelta
from typing import NamedTuple

from forewarn.core.event import EventType, State
from forewarn.core.event_type import EVENT_TYPES
from tools.pictures.svg import AMBER, BLUE, GREEN, INK, MUTED, RED, Canvas

LEFT, RIGHT, MINUTE = 175, 100, 32
REBOOT = EVENT_TYPES[EventType.REBOOT]
NOTICE = REBOOT.minimum_notice
DURATION = REBOOT.default_duration
APPROVED = timedelta(minutes=5)
END = NOTICE + timedelta(minutes=4)


class Lane(NamedTuple):
    """One event."""

    y: float
    title: str
    note: str
    starts: timedelta


def x_of(moment: timedelta) -> float:
    return LEFT + moment / timedelta(minutes=1) * MINUTE


def draw() -> str:
    """Draw the picture."""
    canvas = Canvas(x_of(END) + RIGHT, 320, title="The life of an event on a time line, without and with an approval")
    lanes = [
        Lane(80, "No VM approves", "starts at NotBefore", NOTICE),
        Lane(190, "A VM approves", "starts at once", APPROVED),
    ]
    canvas.line((x_of(NOTICE), 40), (x_of(NOTICE), 262), colour=RED.stroke, dashed=True)
    canvas.text(x_of(NOTICE), 32, "NotBefore", colour=RED.stroke, bold=True)
    for lane in lanes:
        canvas.text(20, lane.y + 18, lane.title, anchor="start", bold=True, size=14)
        canvas.text(20, lane.y + 36, lane.note, anchor="start", colour=MUTED, size=12)
        ends = lane.starts + DURATION
        canvas.box(x_of(timedelta()), lane.y, x_of(lane.starts) - LEFT, 40, State.SCHEDULED.value, colour=BLUE)
        canvas.box(x_of(lane.starts), lane.y, x_of(ends) - x_of(lane.starts), 40, colour=AMBER)
        for number, moment in enumerate((timedelta(), lane.starts, ends), start=2):
            canvas.dot(x_of(moment), lane.y + 40)
            canvas.text(x_of(moment), lane.y + 60, str(number), size=12, colour=MUTED, halo=True)
        canvas.text(x_of(ends) + 8, lane.y + 17, f"{State.STARTED.value}: the VM reboots;", anchor="start", size=12)
        canvas.text(x_of(ends) + 8, lane.y + 33, "then the event is gone", anchor="start", size=12)
        canvas.text(20, lane.y + 60, "incarnation", anchor="start", size=12, colour=MUTED)
    canvas.arrow((x_of(APPROVED), 166), (x_of(APPROVED), 188), colour=GREEN.stroke)
    canvas.text(x_of(APPROVED), 160, "approval", colour=GREEN.stroke, bold=True)
    canvas.text(x_of(timedelta()), 68, "announced", colour=INK, size=12)
    canvas.line((LEFT, 272), (x_of(END), 272))
    for minute in range(0, int(END / timedelta(minutes=1)) + 1, 5):
        x = x_of(timedelta(minutes=minute))
        canvas.line((x, 267), (x, 277))
        canvas.text(x, 295, f"{minute} min", size=12, colour=MUTED)
    return canvas.render()
