"""The timetable: which wave starts when, within limits and around what is already expected."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo

from forewarn.core.campaign.calendar import Calendar
from forewarn.core.campaign.expected_load import ExpectedLoad
from forewarn.core.campaign.limits import CampaignLimits, Load
from forewarn.core.campaign.spec import CampaignPolicy, CampaignSpec, Selection, Window
from forewarn.core.campaign.timetable import (
    MAX_SKIPPED_SHAPES,
    Placement,
    QueueEntry,
    ReadyQueue,
    ScopeWaves,
    Timetable,
)
from forewarn.core.campaign.windows import Span
from forewarn.core.event import EventType
from forewarn.core.policy import EMULATOR, RuleContext
from tests.core.sample_scopes import TEN

MINUTE = timedelta(minutes=1)
LENGTH = 5 * MINUTE
REST = 30 * MINUTE
"""The default gap, which is longer than the notice."""


def zones(_: str) -> tzinfo:
    return UTC


def a_timetable(limits: CampaignLimits | None = None, windows: Sequence[Window] = ()) -> Timetable:
    spec = CampaignSpec(
        name="kernel",
        type=EventType.REBOOT,
        selection=Selection(all=True),
        policy=CampaignPolicy(expected=LENGTH, windows=tuple(windows)),
    )
    context = RuleContext(policy=EMULATOR)
    expected = ExpectedLoad(limits or CampaignLimits(), LENGTH, at=TEN)
    return Timetable(Calendar(spec, context, zones, since=TEN), expected)


def waves(rank: int, *vms: int, hosts: Sequence[str] = (), busy: Sequence[Span] = ()) -> ScopeWaves:
    """Return a scope with waves of so many VMs, each on the same hosts."""
    return ScopeWaves(rank, [Load(f"s{rank}", tuple(hosts), number) for number in vms], busy)


def placements(timetable: Timetable, *rows: ScopeWaves, until: datetime = TEN + timedelta(days=1)) -> list[Placement]:
    for row in rows:
        timetable.add(row, TEN)
    return list(timetable.placements(until))


def test_waves_of_a_scope_leave_their_length_and_the_rest_between_them() -> None:
    assert placements(a_timetable(), waves(0, 1, 1), waves(1, 1)) == [
        Placement(0, 1, TEN),
        Placement(1, 1, TEN),
        Placement(0, 2, TEN + LENGTH + REST),
    ]


def test_scope_with_the_most_waves_left_starts_first() -> None:
    found = placements(a_timetable(CampaignLimits(scopes=1)), waves(0, 1), waves(1, 1, 1, 1), waves(2, 1, 1))
    assert [(place.rank, place.n, place.at - TEN) for place in found] == [
        (1, 1, 0 * MINUTE),
        (2, 1, 5 * MINUTE),
        (0, 1, 10 * MINUTE),
        (1, 2, 35 * MINUTE),
        (2, 2, 40 * MINUTE),
        (1, 3, 70 * MINUTE),
    ]


def test_smaller_wave_takes_the_room_that_a_larger_one_leaves() -> None:
    found = placements(a_timetable(CampaignLimits(vms=4)), waves(0, 3), waves(1, 2), waves(2, 1))
    assert found == [Placement(0, 1, TEN), Placement(2, 1, TEN), Placement(1, 1, TEN + LENGTH)]


def test_waves_on_a_host_that_is_in_use_go_together() -> None:
    rows = [waves(n, 1, hosts=(f"hv-{n % 2}",)) for n in range(4)]
    found = placements(a_timetable(CampaignLimits(hosts=1)), *rows)
    assert [(place.rank, place.at - TEN) for place in found] == [
        (0, 0 * MINUTE),
        (2, 0 * MINUTE),
        (1, LENGTH),
        (3, LENGTH),
    ]


def test_wave_does_not_meet_other_work_in_its_scope() -> None:
    busy = Span(TEN + 3 * MINUTE, TEN + 20 * MINUTE)
    row = waves(0, 1, busy=[busy])
    assert [row.free_at(TEN + minutes * MINUTE, LENGTH) for minutes in (-3, -2, 19, 20)] == [
        TEN - 3 * MINUTE,
        TEN - 2 * MINUTE,
        busy.end,
        busy.end,
    ]
    assert placements(a_timetable(), row) == [Placement(0, 1, busy.end)]


def test_waves_start_in_windows_only() -> None:
    window = Window(start="10:30", end="10:40")
    found = placements(a_timetable(windows=[window]), waves(0, 1, 1), until=TEN + timedelta(days=2))
    assert [place.at for place in found] == [TEN + 30 * MINUTE, TEN + timedelta(days=1, minutes=30)]


def test_waves_without_a_place_in_time_are_left() -> None:
    row = waves(0, 1, 1, 1)
    assert len(placements(a_timetable(), row, until=TEN + LENGTH + REST)) == 2
    assert (row.placed, row.left, row.next) == (2, 1, Load("s0", (), 1))


def test_scope_without_waves_has_no_place() -> None:
    assert placements(a_timetable(), waves(0)) == []


def test_queue_passes_over_a_few_shapes_that_do_not_fit_and_keeps_them() -> None:
    queue = ReadyQueue(by_hosts=False)
    for rank in range(MAX_SKIPPED_SHAPES + 1):
        queue.push(QueueEntry(-1, rank, waves(rank, 100 + rank)))
    small = QueueEntry(-1, 99, waves(99, 1))
    queue.push(small)
    assert list(queue.pop_fitting(lambda load: load.vms == 1)) == [], "it is behind too many others"
    assert [entry.rank for entry in queue.pop_fitting(lambda load: load.vms != 1)] == list(
        range(MAX_SKIPPED_SHAPES + 1)
    )
    assert list(queue.pop_fitting(lambda load: load.vms == 1)) == [small]
    assert not queue
