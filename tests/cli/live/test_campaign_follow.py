"""Following a campaign while requests fail or the journal has no entries."""

from collections.abc import Iterator, Sequence
from threading import Event
from typing import Any

import click
import msgspec
import pytest

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.api.errors import ServiceUnreachable
from forewarn.cli.live import campaign_follow
from forewarn.cli.live.campaign_follow import follow
from forewarn.cli.options.connection import ServiceConnection
from forewarn.cli.output import Output
from forewarn.core.campaign.record import CampaignState
from forewarn.core.journal import EntryKind
from tests.cli.sample_campaign import BEGIN, campaign_of


def test_campaign_is_fetched_again_after_a_failed_request(capsys: pytest.CaptureFixture[str]) -> None:
    """The journal stream stays connected, so it does not report a reconnect."""
    running = campaign_of(v1.WaveProgress(number=1, wave_count=1, vm_count=1, planned=1))
    ended = msgspec.structs.replace(running, state=CampaignState.COMPLETED, ended_at=BEGIN)
    follow(
        ServiceConnection(FlakyApiClient([running, ServiceUnreachable("http://x", "too busy"), ended]), Output.TABLE),
        running,
    )
    seen = capsys.readouterr()
    assert "k Completed" in seen.out
    assert "too busy" in seen.err


def test_campaign_is_fetched_periodically_without_journal_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """That a due wave waits for a limit is not in the journal."""
    monkeypatch.setattr(campaign_follow, "POLL_INTERVAL", 0.0)
    running = campaign_of(v1.WaveProgress(number=1, wave_count=2, vm_count=2, announced=1, failed=1))
    stuck = msgspec.structs.replace(running, is_stuck=True)
    with pytest.raises(click.exceptions.Exit) as ended:
        follow(ServiceConnection(FlakyApiClient([running, running, running, stuck]), Output.TABLE), running)
    assert ended.value.exit_code == 1


def test_last_journal_lines_are_written_before_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    """The stream has not delivered them when the campaign is found to be completed."""
    running = campaign_of(v1.WaveProgress(number=1, wave_count=1, vm_count=1, planned=1))
    ended = msgspec.structs.replace(running, state=CampaignState.COMPLETED, ended_at=BEGIN)
    kinds = (EntryKind.CAMPAIGN_STARTED, EntryKind.WAVE_SETTLED, EntryKind.CAMPAIGN_ENDED)
    entries = [_entry(position, kind) for position, kind in enumerate(kinds, 1)]
    follow(ServiceConnection(FlakyApiClient([running, ended], [entries[:1], entries]), Output.TABLE), running)
    written = [line.split()[2] for line in capsys.readouterr().out.splitlines()]
    assert written == ["k", "wave-settled", "campaign-ended", "k"]


def _entry(position: int, action: EntryKind) -> v1.JournalEntry:
    return v1.JournalEntry(
        position=position,
        record_kind="campaign",
        record_id="c",
        at=BEGIN,
        action=action,
        actor="admin",
        reason="",
        event=None,
        vms=(),
        incarnation=None,
        facts={},
    )


class FlakyApiClient(ApiClient):
    """A service that fails to answer one request. Its journal grows with each answer about the campaign."""

    def __init__(
        self, answers: list[v1.Campaign | ServiceUnreachable], journals: Sequence[list[v1.JournalEntry]] = ()
    ) -> None:
        self._answers = iter(answers)
        self._journals = iter(journals)
        self._journal: list[v1.JournalEntry] = []

    def watch(self, **_: Any) -> Iterator[v1.JournalEntry | None]:
        """Yield one entry, then nothing more."""
        yield None
        Event().wait()

    def campaign(self, _: str) -> v1.Campaign:
        """Return the next response."""
        answer = next(self._answers)
        if isinstance(answer, ServiceUnreachable):
            raise answer
        self._journal = next(self._journals, self._journal)
        return answer

    def journal(self, *, newest_first: bool = False, after: int | None = None, **_: Any) -> Iterator[v1.JournalEntry]:
        """Yield the entries after the position."""
        entries = reversed(self._journal) if newest_first else self._journal
        return (entry for entry in entries if entry.position > (after or 0))

    def clock(self) -> v1.Clock:
        """Return the time."""
        return v1.Clock(now=BEGIN, manual=True, next_change_at=None)
