"""`forewarn watch`: open events and the journal, live."""

import sys
from contextlib import suppress
from itertools import islice

import click

from forewarn.api import v1
from forewarn.cli.live.journal_stream import (
    DISCONNECTED_MESSAGE,
    RECONNECTED_MESSAGE,
    REFRESH_INTERVAL,
    JournalStream,
    connection_error,
)
from forewarn.cli.options.connection import ServiceConnection, with_service
from forewarn.cli.output import Output, write, write_json_line, write_message
from forewarn.cli.views.event import journal_row
from forewarn.cli.views.tables import GAP

MAX_LINES = 200
"""More lines of the journal than this fit on no screen."""


@click.command()
@with_service
def watch(connection: ServiceConnection) -> None:
    """Show open events and the journal, live, until q or Ctrl-C. Without a terminal: the journal, line by line.

    Example: forewarn watch
    """
    newest = list(islice(connection.api.journal(newest_first=True), MAX_LINES))[::-1]
    stream = JournalStream(connection.api, after=newest[-1].position if newest else None)
    # Nothing else ends it: to interrupt it is no failure.
    with suppress(KeyboardInterrupt):
        stream.open()
        if connection.output is Output.TABLE and sys.stdout.isatty():
            from forewarn.cli.live.watch_view import show_watch

            show_watch(connection.api, stream, newest)
        else:
            _write_lines(stream, connection.output)


def _write_lines(stream: JournalStream, output: Output) -> None:
    """Write each line of the journal as it comes."""
    error_text = ""
    write_message("Each line of the journal follows as it is written; Ctrl-C ends it.")
    while True:
        items = list(stream.wait(REFRESH_INTERVAL))
        previous_error, error_text = error_text, connection_error(items, error_text)
        if bool(error_text) is not bool(previous_error):
            write_message(DISCONNECTED_MESSAGE + error_text if error_text else RECONNECTED_MESSAGE)
        for entry in items:
            if isinstance(entry, v1.JournalEntry):
                if output is Output.JSON:
                    write_json_line(entry)
                else:
                    write(_entry_line(entry))


def _entry_line(entry: v1.JournalEntry) -> str:
    return GAP.join(cell for cell in journal_row(entry) if cell)
