"""Follow a campaign until it ends or needs an operator: live progress bars, text lines or JSON lines."""

from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.text import Text

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.cli.live import live_view
from forewarn.cli.live.journal_stream import JournalStream
from forewarn.cli.live.live_view import LiveContent
from forewarn.cli.live.service_clock import MANUAL_CLOCK_HINT, ServiceClock
from forewarn.cli.options.connection import ServiceConnection
from forewarn.cli.options.times import span_text
from forewarn.cli.output import moment_text, sanitize
from forewarn.cli.views.campaign import next_steps, state_lines
from forewarn.cli.views.event import journal_row
from forewarn.cli.views.tables import GAP
from forewarn.core.campaign.record import CampaignState

POLL_INTERVAL = 10.0
"""Seconds without journal entries after which the campaign is fetched again: some of its state changes with time."""

STYLES = {
    CampaignState.RUNNING: "yellow",
    CampaignState.PAUSED: "yellow",
    CampaignState.HALTED: "red",
    CampaignState.COMPLETED: "green",
    CampaignState.ABORTED: "dim",
}


def follow(connection: ServiceConnection, campaign: v1.Campaign) -> None:
    """Follow a campaign and exit with the code of its outcome."""
    live_view.follow(
        CampaignFollower(connection.api, campaign),
        JournalStream(connection.api, campaign=campaign.id),
        connection.output,
        resume_command=f"forewarn campaign watch {campaign.name}",
    )


class CampaignFollower(LiveContent[v1.JournalEntry]):
    """A followed campaign, in its last fetched state."""

    def __init__(self, api: ApiClient, campaign: v1.Campaign) -> None:
        self._api = api
        self._campaign = campaign
        self._last_written: v1.Campaign | None = None
        self._position: int | None = None
        """The position of the newest journal entry that was fetched or is older than this view."""
        self._entries: list[v1.JournalEntry] = []
        """The fetched journal entries that are not shown yet."""
        self.poll_interval = POLL_INTERVAL

    @property
    def is_finished(self) -> bool:
        """Whether the campaign has ended or needs an operator."""
        return is_finished_here(self._campaign)

    @property
    def is_successful(self) -> bool:  # type: ignore[override]  # it is known at the end
        """Whether the campaign was completed."""
        return self._campaign.state is CampaignState.COMPLETED

    def refresh(self) -> None:
        """Fetch the campaign, the service's time and the new journal entries.

        The entries of the stream can come later than the campaign's end, so they only trigger this. The journal is read
        after the campaign: when the campaign has ended, its last entries are there.
        """
        self._campaign = self._api.campaign(self._campaign.id)
        self._clock = ServiceClock(self._api.clock())
        if self._position is None:
            newest = next(self._api.journal(campaign=self._campaign.id, newest_first=True), None)
            self._position = 0 if newest is None else newest.position
        for entry in self._api.journal(campaign=self._campaign.id, after=self._position):
            self._entries.append(entry)
            self._position = entry.position

    def text_lines(self, entries: Sequence[v1.JournalEntry]) -> Iterator[str]:
        """Yield the journal lines, and a line for the state if it has changed."""
        yield from self.lines_above(entries)
        if self._last_written is None or _status_line(self._campaign) != _status_line(self._last_written):
            yield f"{moment_text(self._clock.now)}{GAP}{_status_line(self._campaign)}"
        self._last_written = self._campaign

    def json_objects(self, _: Sequence[v1.JournalEntry]) -> Iterator[object]:
        """Yield the campaign if it has changed."""
        if self._campaign != self._last_written:
            yield self._campaign
        self._last_written = self._campaign

    def lines_above(self, _: Sequence[v1.JournalEntry]) -> Iterator[str]:
        """Yield the fetched journal lines."""
        entries, self._entries = self._entries, []
        for entry in entries:
            yield GAP.join(cell for cell in journal_row(entry) if cell)

    def render(self, warning: Sequence[Text], _: Console) -> RenderableType:
        """Draw the state and the progress bars."""
        campaign = self._campaign
        head = Text.assemble(
            (campaign.name, "bold"),
            GAP,
            (campaign.state.value, STYLES.get(campaign.state, "")),
            f"{GAP}{_waves_text(campaign)}{_end_text(campaign, self._clock)}",
        )
        lines = [Text.from_ansi(sanitize(line)) for line in state_lines(campaign)]
        hint = [Text(MANUAL_CLOCK_HINT, "dim")] if self._clock.is_manual and not campaign.state.is_over else []
        return Group(head, *lines, *warning, *hint)

    def next_steps(self) -> Sequence[str]:
        """Return what the operator can do now."""
        return list(next_steps(self._campaign))


def is_finished_here(campaign: v1.Campaign) -> bool:
    """Return whether the campaign has ended or cannot continue without an operator."""
    under_way = any(each.cleared or each.retrying for each in campaign.progress)
    if campaign.state is CampaignState.ABORTING:
        # Announced events are being canceled; only failed waves stay until an operator decides.
        return not under_way and any(each.failed for each in campaign.progress) and not _announced(campaign)
    return campaign.state.is_over or campaign.is_stuck or (campaign.state is CampaignState.HALTED and not under_way)


def _announced(campaign: v1.Campaign) -> bool:
    return any(each.announced for each in campaign.progress)


def _end_text(campaign: v1.Campaign, clock: ServiceClock) -> str:
    if campaign.ended_at is not None:
        return f"{GAP}ended at {moment_text(campaign.ended_at)}"
    if campaign.expected_end_at is None:
        return ""
    left = span_text(campaign.expected_end_at - clock.now)
    return f"{GAP}expected end {moment_text(campaign.expected_end_at)}, in {left}"


def _status_line(campaign: v1.Campaign) -> str:
    """Return the state in one line."""
    failed = f", {len(campaign.failures)} failed" if campaign.failures else ""
    waits = f": {campaign.explanation[0]}" if campaign.explanation else ""
    return f"{campaign.name} {campaign.state.value}, {_waves_text(campaign)}{failed}{waits}"


def _waves_text(campaign: v1.Campaign) -> str:
    """Return how many waves have finished, and how many were abandoned."""
    left = sum(each.abandoned for each in campaign.progress)
    return f"{campaign.finished_wave_count}/{campaign.wave_count} waves" + (f", {left} left" if left else "")
