"""The loop of live views, with a scripted stream: what is fetched, what is written, and when it ends."""

import json
from collections.abc import Iterable, Iterator, Sequence

import click
import pytest
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from forewarn.api.errors import ApiError, InvalidResponse, ServiceUnreachable
from forewarn.api.journal_follower import Heartbeat, StreamResumed, StreamUnavailable
from forewarn.cli.live import live_view
from forewarn.cli.live.journal_stream import (
    KeyInput,
    LiveStream,
    StreamFailed,
    StreamItem,
)
from forewarn.cli.live.live_view import LiveContent, follow, show_live
from forewarn.cli.output import Output

LOST = ServiceUnreachable("http://h", "down")


class ScriptedStream(LiveStream[str]):
    """Gives a batch of items per turn; a turn may also be Ctrl-C."""

    def __init__(self, *turns: Sequence[StreamItem[str]] | type[KeyboardInterrupt]) -> None:
        super().__init__()
        self._turns = list(turns)
        self.is_open = False

    def open(self) -> None:
        self.is_open = True

    def wait(self, seconds: float) -> Iterator[StreamItem[str]]:
        assert (self.is_open, seconds) == (True, live_view.REFRESH_INTERVAL)
        turn = self._turns.pop(0)
        if isinstance(turn, type):
            raise turn
        yield from turn

    def _read(self) -> None: ...


class RecordingContent(LiveContent[str]):
    """Is finished after some refreshes; each refresh may fail."""

    def __init__(self, last: int, *, errors: dict[int, ApiError] | None = None) -> None:
        self.last, self.errors = last, errors or {}
        self.refreshes = 0

    @property
    def is_finished(self) -> bool:
        return self.refreshes >= self.last

    def refresh(self) -> None:
        self.refreshes += 1
        if self.refreshes in self.errors:
            raise self.errors[self.refreshes]

    def text_lines(self, entries: Sequence[str]) -> Iterable[str]:
        return [f"{self.refreshes}: {' '.join(entries) or 'nothing'}"]

    def json_objects(self, entries: Sequence[str]) -> Iterable[object]:
        return [{"refresh": self.refreshes, "entries": list(entries)}]

    def render(self, warning: Sequence[Text], console: Console) -> RenderableType:
        raise AssertionError("no terminal")

    def next_steps(self) -> Iterable[str]:
        return ["forewarn event list"]


def test_finished_content_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    show_live(RecordingContent(1), ScriptedStream(), Output.TABLE)
    assert capsys.readouterr() == ("1: nothing\n", "")


@pytest.mark.parametrize("output", [Output.TABLE, Output.JSON])
def test_entries_are_shown_after_a_refresh(capsys: pytest.CaptureFixture[str], output: Output) -> None:
    show_live(RecordingContent(3), ScriptedStream(["a", "b"], [], [Heartbeat(), "c"]), output)
    out, err = capsys.readouterr()
    assert err == ""
    if output is Output.JSON:
        assert [json.loads(line) for line in out.splitlines()] == [
            {"refresh": 1, "entries": []},
            {"refresh": 2, "entries": ["a", "b"]},
            {"refresh": 2, "entries": []},
            {"refresh": 3, "entries": ["c"]},
        ]
    else:
        assert out.splitlines() == ["1: nothing", "2: a b", "2: nothing", "3: c"]


def test_content_with_a_poll_interval_is_fetched_without_entries() -> None:
    content = RecordingContent(3)
    content.poll_interval = 0.0
    show_live(content, ScriptedStream([], []), Output.TABLE)
    assert content.refreshes == 3


@pytest.mark.parametrize("key", ["q", "Q"])
def test_quit_key_ends_the_view(key: str) -> None:
    content = RecordingContent(9)
    show_live(content, ScriptedStream([KeyInput("x")], ["a", KeyInput(key)]), Output.TABLE)
    assert content.refreshes == 1


def test_lost_connection_is_reported_once_and_nothing_is_fetched_meanwhile(capsys: pytest.CaptureFixture[str]) -> None:
    content = RecordingContent(2)
    stream = ScriptedStream([StreamUnavailable("down")], [StreamUnavailable("still down")], [StreamResumed(), "a"])
    show_live(content, stream, Output.TABLE)
    assert capsys.readouterr() == (
        "1: nothing\n1: nothing\n1: nothing\n2: a\n",
        "The service cannot be reached; trying again. down\nThe service can be reached again.\n",
    )


def test_failed_refresh_is_repeated_although_nothing_has_changed(capsys: pytest.CaptureFixture[str]) -> None:
    content = RecordingContent(4, errors={2: LOST, 3: LOST})
    show_live(content, ScriptedStream(["a"], [], []), Output.TABLE)
    assert content.refreshes == 4
    assert capsys.readouterr().err.splitlines() == [
        f"The service cannot be reached; trying again. {LOST}",
        "The service can be reached again.",
    ]


def test_first_refresh_must_succeed() -> None:
    with pytest.raises(ServiceUnreachable):
        show_live(RecordingContent(9, errors={1: LOST}), ScriptedStream(), Output.TABLE)


def test_refused_stream_ends_the_view_with_its_error() -> None:
    error = InvalidResponse("http://h", "nonsense")
    with pytest.raises(InvalidResponse) as raised:
        show_live(RecordingContent(9), ScriptedStream([StreamFailed(error)]), Output.TABLE)
    assert raised.value is error


def test_next_steps_are_written_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    follow(RecordingContent(1), ScriptedStream(), Output.TABLE, resume_command="forewarn watch")
    assert capsys.readouterr() == ("1: nothing\n", "forewarn event list\n")


def test_unsuccessful_content_exits_with_1() -> None:
    content = RecordingContent(1)
    content.is_successful = False
    with pytest.raises(click.exceptions.Exit) as ended:
        follow(content, ScriptedStream(), Output.TABLE, resume_command="forewarn watch")
    assert ended.value.exit_code == 1


def test_ctrl_c_stops_watching_with_the_command_to_watch_again(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(click.exceptions.Exit) as ended:
        follow(RecordingContent(9), ScriptedStream(KeyboardInterrupt), Output.TABLE, resume_command="forewarn watch")
    assert ended.value.exit_code == 130
    assert capsys.readouterr().err == "Stopped watching; the maintenance continues. To watch again: forewarn watch\n"


def test_hostile_text_is_escaped_wherever_content_draws_it() -> None:
    hostile = "mark\x1b]0;title\x1b[2J\x9b2J\u202eend"
    table = Table(hostile)
    table.add_row(Text(hostile, "red"))
    console = Console(force_terminal=True, color_system=None, width=200, record=True)
    with console.capture() as drawn:
        console.print(live_view.EscapeContent(Group(hostile, Text(hostile), table)))
    assert "".join(drawn.get().splitlines()).isprintable()
    assert drawn.get().count(r"\x1b]0;title\x1b[2J\x9b2J\u202eend") == 4
