"""Items of the timeline: the times that their bars have, and whether they are in a range."""

from datetime import UTC, datetime, timedelta

import pytest

from forewarn.core.campaign.windows import Span
from forewarn.operator.dashboard.time_chart import to_seconds
from forewarn.operator.dashboard.timeline_item import PLANNED, TimelineFilter, TimelineItem, row_link

TEN = datetime(2026, 3, 2, 10, tzinfo=UTC)
HOUR = timedelta(hours=1)

SCHEDULED = TimelineItem(
    id="E1", scope="web", type="Reboot", vms=("web-0",), created_at=TEN, not_before=TEN + HOUR, is_open=True
)


def kinds(item: TimelineItem, now: datetime) -> list[tuple[str, int, int | None]]:
    """Return the bars with times in minutes since ten o'clock."""
    bars = item.show("scope", {}, now).bars
    return [
        (
            bar.kind.value,
            (bar.start - to_seconds(TEN)) // 60,
            None if bar.end is None else (bar.end - to_seconds(TEN)) // 60,
        )
        for bar in bars
    ]


def changed(**fields: object) -> TimelineItem:
    """Return the scheduled event with other values."""
    item = TimelineItem(**{name: getattr(SCHEDULED, name) for name in SCHEDULED.__struct_fields__})
    for name, value in fields.items():
        setattr(item, name, value)
    return item


@pytest.mark.parametrize(
    ("item", "bars"),
    [
        (changed(duration=HOUR), [("notice", 0, 60), ("expected", 60, 120)]),
        (changed(approved_at=TEN + HOUR / 2), [("notice", 0, 60), ("approval", 30, None), ("expected", 60, 60)]),
        (changed(not_before=TEN + HOUR / 6), [("notice", 0, 10), ("waiting", 10, None)]),
        (changed(started_at=TEN + HOUR / 6, is_stuck=True), [("notice", 0, 10), ("stuck", 10, None)]),
        (changed(created_at=None, started_at=TEN), [("impact", 0, None)]),
        (changed(state=PLANNED, is_open=False, duration=HOUR), [("planned", 0, 60), ("expected", 60, 120)]),
    ],
)
def test_bars_are_the_phases_of_its_life(item: TimelineItem, bars: list[tuple[str, int, int | None]]) -> None:
    assert kinds(item, TEN + HOUR / 2) == bars


def test_open_item_lasts_until_now_and_a_planned_one_until_its_expected_end() -> None:
    late = Span(TEN + 3 * HOUR, TEN + 4 * HOUR)
    planned = changed(state=PLANNED, is_open=False, duration=HOUR)
    now = TEN + 5 * HOUR
    assert [
        item.is_within(late, now) for item in (SCHEDULED, planned, changed(ended_at=TEN + HOUR, is_open=False))
    ] == [
        True,
        False,
        False,
    ]
    assert not TimelineItem(id="E2", scope="web").is_within(late, now)


def test_filter_needs_all_its_fields() -> None:
    assert TimelineFilter(text="web-", type="Reboot").matches(SCHEDULED)
    assert not TimelineFilter(text="web-", type="Freeze").matches(SCHEDULED)
    assert not TimelineFilter(text="web-", campaign="C").matches(SCHEDULED)


def test_facts_name_a_few_vms() -> None:
    item = changed(vms=tuple(f"vm-{n}" for n in range(7)), state="scheduled")
    assert item.show("vm", {}, TEN).facts == (
        ("State", "scheduled"),
        ("Scope", "web"),
        ("VMs", "vm-0, vm-1, vm-2, vm-3, vm-4 and 2 more"),
    )


def test_planned_wave_that_should_have_been_announced_is_late() -> None:
    wave = changed(state=PLANNED, is_open=False)
    states = [wave.show("scope", {}, now).facts[0] for now in (TEN, TEN + HOUR)]
    assert states == [("State", "planned"), ("State", "planned, but late")]


def test_rows_without_a_known_host_have_no_link() -> None:
    assert (SCHEDULED.rows("host"), row_link("", "host")) == ([""], None)
    assert row_link("a b", "host") == "/ui/fleet?view=hosts&host=a+b"
