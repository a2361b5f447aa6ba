"""The events that a VM sees, as `forewarn guest watch` shows them."""

import io
from datetime import UTC, datetime, timedelta

from rich.console import Console

from forewarn.cli.live.guest_follow import GuestFollower
from forewarn.client import Appeared, Change, Ending, Event, Gone, Started
from forewarn.clock import ManualClock

NOW = datetime(2026, 3, 2, 10, tzinfo=UTC)
REBOOT = Event(id="A", type="Reboot", status="Scheduled", resources=("web-0",), not_before=NOW + timedelta(minutes=15))
RUNNING = Event(id="A", type="Reboot", status="Started", resources=("web-0",), not_before=None)


def follower() -> GuestFollower:
    return GuestFollower("http://127.0.0.1:8180", "web-0", ManualClock(NOW))


def drawn(content: GuestFollower) -> str:
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(content.render([], console))
    return console.export_text().rstrip()


def test_countdown_follows_the_changes() -> None:
    content = follower()
    assert drawn(content) == "No events. Watching http://127.0.0.1:8180 until Ctrl-C."
    list(content.lines_above([Appeared(REBOOT)]))
    assert drawn(content) == "Reboot of web-0 in 15m"
    list(content.lines_above([Started(RUNNING, before=REBOOT)]))
    assert drawn(content) == "Reboot of web-0 is under way"
    list(content.lines_above([Gone(RUNNING, Ending.FINISHED)]))
    assert drawn(content).startswith("No events.")


def test_line_of_a_change_has_time_change_event_and_time_left() -> None:
    changes: list[Change] = [Appeared(REBOOT), Gone(RUNNING, Ending.FINISHED)]
    assert list(follower().text_lines(changes)) == [
        "2026-03-02 10:00:00Z  Appeared  A  Reboot     web-0  15m left",
        "2026-03-02 10:00:00Z  Gone      A  Reboot     web-0  finished",
    ]


def test_control_characters_of_the_service_do_not_reach_the_terminal() -> None:
    event = Event(id="A\x1b[2J", type="Reboot", status="Scheduled", resources=("web\n0",), not_before=None)
    (line,) = follower().text_lines([Appeared(event)])
    assert line.isprintable()
    assert r"A\x1b[2J" in line
    assert r"web\n0" in line
