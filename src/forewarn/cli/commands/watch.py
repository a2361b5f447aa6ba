"""`forewarn watch`: open events and the journal, live."""

import sys
from contextlib import suppress
from itertools import islice

import click

from forewarn.cli.live.journal_stream import JournalStream
from forewarn.cli.live.live_view import show_live
from forewarn.cli.live.watch_view import WatchView
from forewarn.cli.options.connection import ServiceConnection, with_service
from forewarn.cli.output import Output, write_message

MAX_LINES = 200
"""More journal lines than any screen can show."""


@click.command()
@with_service
def watch(connection: ServiceConnection) -> None:
    """Show open events and the journal, live, until q or Ctrl-C. Without a terminal, print journal entries only.

    Example: forewarn watch
    """
    newest = list(islice(connection.api.journal(newest_first=True), MAX_LINES))[::-1]
    stream = JournalStream(connection.api, after=newest[-1].position if newest else None)
    is_terminal = connection.output is Output.TABLE and sys.stdout.isatty()
    if not is_terminal:
        write_message("Printing journal entries as they are written; press Ctrl-C to stop.")
    # Ctrl-C is the normal end, not a failure.
    with suppress(KeyboardInterrupt):
        show_live(WatchView(connection.api, newest, is_terminal=is_terminal), stream, connection.output)
