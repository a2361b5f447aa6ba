"""Follow a campaign until it ends or needs an operator: live progress bars, text lines or JSON lines."""

import sys
from collections.abc import Sequence
from time import monotonic
from typing import Protocol, Self

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from forewarn.api import v1
from forewarn.api.errors import ServiceUnreachable
from forewarn.cli.errors import EXIT_INTERRUPTED, ExitCode
from forewarn.cli.live.journal_stream import (
    DISCONNECTED_MESSAGE,
    RECONNECTED_MESSAGE,
    REFRESH_INTERVAL,
    JournalStream,
    connection_error,
)
from forewarn.cli.live.service_clock import MANUAL_CLOCK_HINT, ServiceClock
from forewarn.cli.options.connection import ServiceConnection
from forewarn.cli.options.times import span_text
from forewarn.cli.output import Output, moment_text, sanitize, write, write_json_line, write_message
from forewarn.cli.views.campaign import next_steps, state_lines
from forewarn.cli.views.event import journal_row
from forewarn.cli.views.tables import GAP
from forewarn.core.campaign.record import CampaignState

POLL_INTERVAL = 10.0
"""After so many seconds without news it is asked how the campaign stands: some of that changes with time alone."""

MAX_LINES = 10
"""No more lines of the journal than this are written at a time above the bars: in large campaigns nobody reads them."""

STYLES = {
    CampaignState.RUNNING: "yellow",
    CampaignState.PAUSED: "yellow",
    CampaignState.HALTED: "red",
    CampaignState.COMPLETED: "green",
    CampaignState.ABORTED: "dim",
}


def follow(connection: ServiceConnection, campaign: v1.Campaign) -> None:
    """Follow a campaign, and end as it did. Ctrl-C ends the watching, not the campaign."""
    try:
        stream = JournalStream(connection.api, campaign=campaign.id)
        stream.open()
        with _view_for(connection.output) as view:
            campaign = _follow(connection, stream, campaign.id, view)
    except KeyboardInterrupt:
        write_message(
            f"Stopped watching; nothing else has stopped. To watch again: forewarn campaign watch {campaign.name}"
        )
        raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
    for line in next_steps(campaign):
        write_message(line)
    if campaign.state is not CampaignState.COMPLETED:
        raise click.exceptions.Exit(ExitCode.FAILED)


def _follow(connection: ServiceConnection, stream: JournalStream, id_: str, view: "CampaignView") -> v1.Campaign:
    campaign, clock = connection.api.campaign(id_), ServiceClock(connection.api.clock())
    view.show(campaign, (), clock, "")
    stream_error = request_error = ""
    refreshed_at = monotonic()
    while not is_finished_here(campaign):
        items = list(stream.wait(REFRESH_INTERVAL))
        stream_error = connection_error(items, stream_error)
        if (items or request_error or monotonic() - refreshed_at >= POLL_INTERVAL) and not stream_error:
            refreshed_at = monotonic()
            try:
                campaign, clock, request_error = connection.api.campaign(id_), ServiceClock(connection.api.clock()), ""
            except ServiceUnreachable as error:
                request_error = str(error)  # though the feed goes on: nothing else would say when to ask again
        view.show(
            campaign,
            [each for each in items if isinstance(each, v1.JournalEntry)],
            clock,
            stream_error or request_error,
        )
    return campaign


def is_finished_here(campaign: v1.Campaign) -> bool:
    """Tell whether there is nothing more to see: it is over, or nothing goes on in it without a person."""
    under_way = any(each.cleared or each.retrying for each in campaign.progress)
    if campaign.state is CampaignState.ABORTING:
        # What is announced is being canceled; only what has failed stays until somebody decides.
        return not under_way and any(each.failed for each in campaign.progress) and not _announced(campaign)
    return campaign.state.is_over or campaign.is_stuck or (campaign.state is CampaignState.HALTED and not under_way)


def _announced(campaign: v1.Campaign) -> bool:
    return any(each.announced for each in campaign.progress)


class CampaignView(Protocol):
    """Shows a campaign that is followed."""

    def __enter__(self) -> Self:
        """Begin."""
        ...

    def __exit__(self, *_: object) -> None:
        """Give the terminal back."""

    def show(
        self, campaign: v1.Campaign, entries: Sequence[v1.JournalEntry], clock: ServiceClock, error_text: str
    ) -> None:
        """Show how it stands, what has happened, what time it is, and why the service cannot be reached."""


def _view_for(output: Output) -> CampaignView:
    if output is Output.JSON:
        return JsonCampaignView()
    return LiveCampaignView() if sys.stdout.isatty() else TextCampaignView()


class TextCampaignView:
    """A line for each line of the campaign's journal, and one for how it stands where that has changed."""

    def __init__(self) -> None:
        self._error_text = ""
        self._last: v1.Campaign | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(
        self, campaign: v1.Campaign, entries: Sequence[v1.JournalEntry], clock: ServiceClock, error_text: str
    ) -> None:
        """Write what has changed."""
        self.write(campaign, entries, clock)
        if bool(error_text) is not bool(self._error_text):
            write_message(DISCONNECTED_MESSAGE + error_text if error_text else RECONNECTED_MESSAGE)
        self._error_text = error_text

    def write(self, campaign: v1.Campaign, entries: Sequence[v1.JournalEntry], clock: ServiceClock) -> None:
        """Write the lines."""
        for entry in entries:
            write(GAP.join(cell for cell in journal_row(entry) if cell))
        if self._last is None or _status_line(campaign) != _status_line(self._last):
            write(f"{moment_text(clock.now)}{GAP}{_status_line(campaign)}")
        self._last = campaign


class JsonCampaignView(TextCampaignView):
    """An object per change, in one line."""

    def write(self, campaign: v1.Campaign, _: Sequence[v1.JournalEntry], __: ServiceClock) -> None:
        """Write the campaign, if it has changed."""
        if campaign != self._last:
            write_json_line(campaign)
        self._last = campaign


class LiveCampaignView:
    """Bars that are always up to date."""

    def __init__(self) -> None:
        self._live = Live(console=Console(highlight=False), auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(
        self, campaign: v1.Campaign, entries: Sequence[v1.JournalEntry], clock: ServiceClock, error_text: str
    ) -> None:
        """Show all of it anew, and above it, for good, what has happened."""
        for entry in entries[-MAX_LINES:]:
            line = GAP.join(cell for cell in journal_row(entry) if cell)
            self._live.console.print(Text(sanitize(line), "dim"), soft_wrap=True)
        self._live.update(self._render(campaign, clock, error_text), refresh=True)

    def _render(self, campaign: v1.Campaign, clock: ServiceClock, error_text: str) -> RenderableType:
        head = Text.assemble(
            (campaign.name, "bold"),
            GAP,
            (campaign.state.value, STYLES.get(campaign.state, "")),
            f"{GAP}{_waves_text(campaign)}{_end_text(campaign, clock)}",
        )
        lines = [Text.from_ansi(sanitize(line)) for line in state_lines(campaign)]
        below = [Text(DISCONNECTED_MESSAGE + error_text, "red")] if error_text else []
        below += [Text(MANUAL_CLOCK_HINT, "dim")] if clock.is_manual and not campaign.state.is_over else []
        return Group(head, *lines, *below)


def _end_text(campaign: v1.Campaign, clock: ServiceClock) -> str:
    if campaign.ended_at is not None:
        return f"{GAP}ended at {moment_text(campaign.ended_at)}"
    if campaign.expected_end_at is None:
        return ""
    left = span_text(campaign.expected_end_at - clock.now)
    return f"{GAP}expected end {moment_text(campaign.expected_end_at)}, in {left}"


def _status_line(campaign: v1.Campaign) -> str:
    """Say in a line how it stands."""
    failed = f", {len(campaign.failures)} failed" if campaign.failures else ""
    waits = f": {campaign.explanation[0]}" if campaign.explanation else ""
    return f"{campaign.name} {campaign.state.value}, {_waves_text(campaign)}{failed}{waits}"


def _waves_text(campaign: v1.Campaign) -> str:
    """Say how many waves are over, and how many never will be."""
    left = sum(each.abandoned for each in campaign.progress)
    return f"{campaign.finished_wave_count}/{campaign.wave_count} waves" + (f", {left} left" if left else "")
