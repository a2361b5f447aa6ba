"""`forewarn watch`: everything that is open and everything that happens, live."""

import sys
from contextlib import suppress
from itertools import islice

from forewarn.api import v1
from forewarn.cli.feed import BACK, TICK, TROUBLE, Feed, trouble_after
from forewarn.cli.output import Output, say, write, write_json_line
from forewarn.cli.reaching import Asked, asks_service
from forewarn.cli.showing import journal_row
from forewarn.cli.tables import GAP

REMEMBERED = 200
"""More lines of the journal than this fit on no screen."""


@asks_service
def watch(asked: Asked) -> None:
    """Show what is open and what happens, live, until q or Ctrl-C. Without a terminal: the journal, line by line.

    Example: forewarn watch
    """
    newest = list(islice(asked.api.history(newest_first=True), REMEMBERED))[::-1]
    feed = Feed(asked.api, after=newest[-1].position if newest else None)
    # Nothing else ends it: to interrupt it is no failure.
    with suppress(KeyboardInterrupt):
        feed.open()
        if asked.output is Output.TABLE and sys.stdout.isatty():
            from forewarn.cli.screen import show_screen

            show_screen(asked.api, feed, newest)
        else:
            _write_lines(feed, asked.output)


def _write_lines(feed: Feed, output: Output) -> None:
    """Write each line of the journal as it comes."""
    trouble = ""
    say("Each line of the journal follows as it is written; Ctrl-C ends it.")
    while True:
        news = list(feed.wait(TICK))
        before, trouble = trouble, trouble_after(news, trouble)
        if bool(trouble) is not bool(before):
            say(TROUBLE + trouble if trouble else BACK)
        for entry in news:
            if isinstance(entry, v1.JournalEntry):
                if output is Output.JSON:
                    write_json_line(entry)
                else:
                    write(_line(entry))


def _line(entry: v1.JournalEntry) -> str:
    return GAP.join(cell for cell in journal_row(entry) if cell)
