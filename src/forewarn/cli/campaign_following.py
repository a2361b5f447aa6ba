"""Following a campaign to its end, or to where only a person can let it go on."""

import sys
from collections.abc import Sequence
from time import monotonic
from typing import Protocol, Self

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from forewarn.api import v1
from forewarn.api.errors import CannotReach
from forewarn.cli.campaign_showing import next_steps, state_lines
from forewarn.cli.countdown import STANDING, ServiceTime
from forewarn.cli.exits import INTERRUPTED, Exit
from forewarn.cli.feed import BACK, TICK, TROUBLE, Feed, trouble_after
from forewarn.cli.output import Output, harmless, moment_text, say, write, write_json_line
from forewarn.cli.reaching import Asked
from forewarn.cli.showing import journal_row
from forewarn.cli.tables import GAP
from forewarn.cli.times import span_text
from forewarn.core.campaign.record import CampaignState

ASK_AGAIN = 10.0
"""After so many seconds without news it is asked how the campaign stands: some of that changes with time alone."""

MOST_LINES = 10
"""No more lines of the journal than this are written at a time above the bars: in large campaigns nobody reads them."""

STYLES = {
    CampaignState.RUNNING: "yellow",
    CampaignState.PAUSED: "yellow",
    CampaignState.HALTED: "red",
    CampaignState.COMPLETED: "green",
    CampaignState.ABORTED: "dim",
}


def follow(asked: Asked, campaign: v1.Campaign) -> None:
    """Follow a campaign, and end as it did. Ctrl-C ends the watching, not the campaign."""
    try:
        feed = Feed(asked.api, campaign=campaign.id)
        feed.open()
        with _view(asked.output) as view:
            campaign = _follow(asked, feed, campaign.id, view)
    except KeyboardInterrupt:
        say(f"Stopped watching; nothing else has stopped. To watch again: forewarn campaign watch {campaign.name}")
        raise typer.Exit(INTERRUPTED) from None
    for line in next_steps(campaign):
        say(line)
    if campaign.state is not CampaignState.COMPLETED:
        raise typer.Exit(Exit.FAILED)


def _follow(asked: Asked, feed: Feed, id_: str, view: "View") -> v1.Campaign:
    campaign, time = asked.api.campaign(id_), ServiceTime(asked.api.clock())
    view.show(campaign, (), time, "")
    lost = missed = ""
    asked_at = monotonic()
    while not needs_nobody_here(campaign):
        news = list(feed.wait(TICK))
        lost = trouble_after(news, lost)
        if (news or missed or monotonic() - asked_at >= ASK_AGAIN) and not lost:
            asked_at = monotonic()
            try:
                campaign, time, missed = asked.api.campaign(id_), ServiceTime(asked.api.clock()), ""
            except CannotReach as error:
                missed = str(error)  # though the feed goes on: nothing else would say when to ask again
        view.show(campaign, [each for each in news if isinstance(each, v1.JournalEntry)], time, lost or missed)
    return campaign


def needs_nobody_here(campaign: v1.Campaign) -> bool:
    """Tell whether there is nothing more to see: it is over, or nothing goes on in it without a person."""
    under_way = any(each.cleared or each.retrying for each in campaign.progress)
    if campaign.state is CampaignState.ABORTING:
        # What is announced is being canceled; only what has failed stays until somebody decides.
        return not under_way and any(each.failed for each in campaign.progress) and not _announced(campaign)
    return campaign.state.is_over or campaign.stuck or (campaign.state is CampaignState.HALTED and not under_way)


def _announced(campaign: v1.Campaign) -> bool:
    return any(each.announced for each in campaign.progress)


class View(Protocol):
    """Shows a campaign that is followed."""

    def __enter__(self) -> Self:
        """Begin."""
        ...

    def __exit__(self, *_: object) -> None:
        """Give the terminal back."""

    def show(self, campaign: v1.Campaign, entries: Sequence[v1.JournalEntry], time: ServiceTime, trouble: str) -> None:
        """Show how it stands, what has happened, what time it is, and why the service cannot be reached."""


def _view(output: Output) -> View:
    if output is Output.JSON:
        return Objects()
    return LiveBars() if sys.stdout.isatty() else Lines()


class Lines:
    """A line for each line of the campaign's journal, and one for how it stands where that has changed."""

    def __init__(self) -> None:
        self._trouble = ""
        self._last: v1.Campaign | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, campaign: v1.Campaign, entries: Sequence[v1.JournalEntry], time: ServiceTime, trouble: str) -> None:
        """Write what has changed."""
        self.write(campaign, entries, time)
        if bool(trouble) is not bool(self._trouble):
            say(TROUBLE + trouble if trouble else BACK)
        self._trouble = trouble

    def write(self, campaign: v1.Campaign, entries: Sequence[v1.JournalEntry], time: ServiceTime) -> None:
        """Write the lines."""
        for entry in entries:
            write(GAP.join(cell for cell in journal_row(entry) if cell))
        if self._last is None or _standing(campaign) != _standing(self._last):
            write(f"{moment_text(time.now)}{GAP}{_standing(campaign)}")
        self._last = campaign


class Objects(Lines):
    """An object per change, in one line."""

    def write(self, campaign: v1.Campaign, _: Sequence[v1.JournalEntry], __: ServiceTime) -> None:
        """Write the campaign, if it has changed."""
        if campaign != self._last:
            write_json_line(campaign)
        self._last = campaign


class LiveBars:
    """Bars that are always up to date."""

    def __init__(self) -> None:
        self._live = Live(console=Console(highlight=False), auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, campaign: v1.Campaign, entries: Sequence[v1.JournalEntry], time: ServiceTime, trouble: str) -> None:
        """Show all of it anew, and above it, for good, what has happened."""
        for entry in entries[-MOST_LINES:]:
            line = GAP.join(cell for cell in journal_row(entry) if cell)
            self._live.console.print(Text(harmless(line), "dim"), soft_wrap=True)
        self._live.update(self._drawn(campaign, time, trouble), refresh=True)

    def _drawn(self, campaign: v1.Campaign, time: ServiceTime, trouble: str) -> RenderableType:
        head = Text.assemble(
            (campaign.name, "bold"),
            GAP,
            (campaign.state.value, STYLES.get(campaign.state, "")),
            f"{GAP}{_far(campaign)}{_end(campaign, time)}",
        )
        lines = [Text.from_ansi(harmless(line)) for line in state_lines(campaign)]
        below = [Text(TROUBLE + trouble, "red")] if trouble else []
        below += [Text(STANDING, "dim")] if time.stands and not campaign.state.is_over else []
        return Group(head, *lines, *below)


def _end(campaign: v1.Campaign, time: ServiceTime) -> str:
    if campaign.ended_at is not None:
        return f"{GAP}ended at {moment_text(campaign.ended_at)}"
    if campaign.expected_end is None:
        return ""
    left = span_text(campaign.expected_end - time.now)
    return f"{GAP}expected end {moment_text(campaign.expected_end)}, in {left}"


def _standing(campaign: v1.Campaign) -> str:
    """Say in a line how it stands."""
    failed = f", {len(campaign.failures)} failed" if campaign.failures else ""
    waits = f": {campaign.explain[0]}" if campaign.explain else ""
    return f"{campaign.name} {campaign.state.value}, {_far(campaign)}{failed}{waits}"


def _far(campaign: v1.Campaign) -> str:
    """Say how many waves are over, and how many never will be."""
    left = sum(each.left for each in campaign.progress)
    return f"{campaign.waves_over}/{campaign.waves} waves" + (f", {left} left" if left else "")
