"""The live view: one loop for everything that the command line follows.

The loop waits for items of a stream, fetches the content again when it may have changed, and shows it: redrawn on a
terminal, else as text lines or JSON lines. After a lost connection the stream resumes at its position.

The content is a `LiveContent`: events, a campaign, the whole fleet, or the events that a VM sees.
"""

import os
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Generic, TypeAlias

import click
from rich.console import Console, ConsoleOptions, RenderableType
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from forewarn.api.errors import ServiceUnreachable
from forewarn.cli.errors import EXIT_INTERRUPTED, ExitCode
from forewarn.cli.live.journal_stream import SIGNALS, KeyInput, LiveStream, N, StreamItem, connection_error
from forewarn.cli.output import Output, sanitize, write, write_json_line, write_message
from forewarn.core.text import escape_controls

REFRESH_INTERVAL = 1.0
"""A countdown is redrawn every second."""

DISCONNECTED_MESSAGE = "The service cannot be reached; trying again. "
RECONNECTED_MESSAGE = "The service can be reached again."

MAX_LINES_ABOVE = 10
"""How many journal lines are written above the live area per refresh; more could not be read."""

QUIT_KEYS = "qQ"


class LiveContent(ABC, Generic[N]):
    """The content of a live view."""

    poll_interval: float | None = None
    """Seconds without journal entries after which the content is fetched again; None: never."""

    is_full_screen = False
    """Whether the view takes the whole terminal, until q; otherwise final lines stay above it."""

    is_transient = False
    """Whether the part that is redrawn disappears at the end."""

    is_successful = True
    """Whether the command exits with 0."""

    @property
    @abstractmethod
    def is_finished(self) -> bool:
        """Whether nothing more will change."""

    @abstractmethod
    def refresh(self) -> None:
        """Fetch the content. If this fails after the first time, the loop tries again."""

    def is_affected_by(self, item: StreamItem[N]) -> bool:
        """Return whether the item can mean a change of the content."""
        return not isinstance(item, KeyInput)

    @abstractmethod
    def text_lines(self, entries: Sequence[N]) -> Iterable[str]:
        """Return the lines since the last call."""

    @abstractmethod
    def json_objects(self, entries: Sequence[N]) -> Iterable[object]:
        """Return the objects since the last call."""

    def lines_above(self, _: Sequence[N]) -> Iterable[str | Text]:
        """Return the lines that stay above the live area."""
        return ()

    @abstractmethod
    def render(self, warning: Sequence[Text], console: Console) -> RenderableType:
        """Draw the content. `warning` is not empty if the service cannot be reached."""

    def next_steps(self) -> Iterable[str]:
        """Return the messages at the end: what the user can do now."""
        return ()


def follow(content: LiveContent[N], stream: LiveStream[N], output: Output, *, resume_command: str) -> None:
    """Follow the content until it is finished, and exit with its outcome. Ctrl-C only stops watching."""
    try:
        show_live(content, stream, output)
    except KeyboardInterrupt:
        write_message(f"Stopped watching; the maintenance continues. To watch again: {resume_command}")
        raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
    for line in content.next_steps():
        write_message(line)
    if not content.is_successful:
        raise click.exceptions.Exit(ExitCode.FAILED)


def show_live(content: LiveContent[N], stream: LiveStream[N], output: Output) -> None:
    """Show the content until it is finished or, on a full screen, until the user presses q."""
    stream.open()
    content.refresh()
    is_live = output is Output.TABLE and sys.stdout.isatty()
    with _screen(content, stream) if is_live else _lines(content, output) as show:
        stream_error = request_error = ""
        refreshed_at = monotonic()
        show([], "")
        while not content.is_finished:
            items = list(stream.wait(REFRESH_INTERVAL))
            if any(isinstance(item, KeyInput) and item.key in QUIT_KEYS for item in items):
                return
            stream_error = connection_error(items, stream_error)
            is_due = content.poll_interval is not None and monotonic() - refreshed_at >= content.poll_interval
            if (request_error or is_due or any(map(content.is_affected_by, items))) and not stream_error:
                refreshed_at = monotonic()
                try:
                    content.refresh()
                except ServiceUnreachable as error:
                    request_error = str(error)  # the stream may still work, so this is what triggers the next attempt
                else:
                    request_error = ""
            show([item for item in items if not isinstance(item, SIGNALS)], stream_error or request_error)


_Show: TypeAlias = Callable[[Sequence[N], str], None]
"""Shows the content, new items, and why the service cannot be reached."""


@contextmanager
def _lines(content: LiveContent[N], output: Output) -> Iterator[_Show[N]]:
    last_error = ""

    def show(entries: Sequence[N], error_text: str) -> None:
        nonlocal last_error
        if output is Output.JSON:
            for value in content.json_objects(entries):
                write_json_line(value)
        else:
            for line in content.text_lines(entries):
                write(line)
        if bool(error_text) is not bool(last_error):
            write_message(DISCONNECTED_MESSAGE + error_text if error_text else RECONNECTED_MESSAGE)
        last_error = error_text

    yield show


class EscapeContent:
    """Draws content with its control characters escaped, whatever its texts come from."""

    def __init__(self, content: RenderableType) -> None:
        self._content = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        """Yield the segments of the content; line ends are the content's own."""
        for segment in console.render(self._content, options):
            text = "\n".join(map(escape_controls, segment.text.split("\n")))
            yield segment if segment.control else Segment(text, segment.style)


@contextmanager
def _screen(content: LiveContent[N], stream: LiveStream[N]) -> Iterator[_Show[N]]:
    console = Console(highlight=False)
    redrawn = Live(console=console, screen=content.is_full_screen, transient=content.is_transient, auto_refresh=False)
    with _key_input(stream, content), redrawn as live:

        def show(entries: Sequence[N], error_text: str) -> None:
            for line in list(content.lines_above(entries))[-MAX_LINES_ABOVE:]:
                text = line if isinstance(line, Text) else Text(sanitize(line), "dim")
                console.print(EscapeContent(text), soft_wrap=True)
            warning = [Text(sanitize(DISCONNECTED_MESSAGE + error_text), "red")] if error_text else []
            live.update(EscapeContent(content.render(warning, console)), refresh=True)

        yield show


@contextmanager
def _key_input(stream: LiveStream[N], content: LiveContent[N]) -> Iterator[None]:
    """On a full screen, put pressed keys into the stream, without line buffering and echo."""
    if not content.is_full_screen or not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    stdin = sys.stdin.fileno()
    before = termios.tcgetattr(stdin)
    tty.setcbreak(stdin)
    threading.Thread(target=_read_keys, args=(stdin, stream), daemon=True).start()
    try:
        yield
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)


def _read_keys(stdin: int, stream: LiveStream[N]) -> None:
    while key := os.read(stdin, 1):
        stream.put(KeyInput(key.decode(errors="replace")))
