"""The table of event types: it is complete, and everything that depends on the type agrees with it."""

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from forewarn.core.api_version import ApiVersion
from forewarn.core.duration import format_duration
from forewarn.core.event import Cause, EventType, Source
from forewarn.core.event_type import (
    EVENT_TYPES,
    MAINTENANCE_TYPES,
    Effect,
    EventTypeSpec,
    check_names,
    create_table,
)

PAGE = Path(__file__).parents[2] / "docs/explanation/event-life.md"
BEGIN, END = "<!-- event types -->\n", "<!-- end of event types -->\n"


def test_event_type_without_a_row_fails_when_the_table_is_built() -> None:
    rows = [spec for spec in EVENT_TYPES.values() if spec.type not in (EventType.FREEZE, EventType.PREEMPT)]
    with pytest.raises(LookupError, match=r"^no row for event type Freeze, Preempt$"):
        create_table(rows)


def test_event_type_with_two_rows_fails_when_the_table_is_built() -> None:
    with pytest.raises(LookupError, match=r"^an event type has two rows$"):
        create_table([*EVENT_TYPES.values(), EVENT_TYPES[EventType.FREEZE]])


@pytest.mark.parametrize("fact", EventTypeSpec.__struct_fields__)
def test_row_without_a_fact_fails_when_it_is_created(fact: str) -> None:
    facts = msgspec.structs.asdict(EVENT_TYPES[EventType.FREEZE])
    del facts[fact]
    with pytest.raises(TypeError, match=f"Missing required argument '{fact}'"):
        EventTypeSpec(**facts)


def test_cause_without_a_description_fails_when_the_row_is_created() -> None:
    with pytest.raises(LookupError, match=r"^event type Reboot has no description for maintenance, user$"):
        msgspec.structs.replace(EVENT_TYPES[EventType.REBOOT], descriptions={Cause.FAILURE: "It failed."})


def test_missing_name_of_a_type_fails_when_it_is_checked() -> None:
    message = r"^Sample has FREEZE, REBOOT, but the event types are FREEZE, REBOOT, REDEPLOY$"
    with pytest.raises(LookupError, match=message):
        check_names("Sample", ["FREEZE", "REBOOT"], MAINTENANCE_TYPES)


def test_row_has_all_facts_of_its_type() -> None:
    assert EVENT_TYPES[EventType.TERMINATE] == EventTypeSpec(
        type=EventType.TERMINATE,
        effect=Effect.REMOVE,
        minimum_notice=timedelta(minutes=5),
        causes={Source.PLATFORM: Cause.DELETION, Source.USER: Cause.DELETION},
        descriptions={Cause.DELETION: "The VM is going to be deleted."},
        since=ApiVersion.V2019_01_01,
        default_duration=timedelta(seconds=10),
        announced_duration=None,
        simulates_duration=False,
        predicted_description=None,
    )


def described(page: str) -> str:
    """Return the page with the generated table of event types."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    rows = [
        f"| {type_.value} | {spec.effect.value} | {', '.join(spec.sources)} | {format_duration(spec.minimum_notice)} "
        f"| {format_duration(spec.default_duration)} | {spec.since.value} |\n"
        for type_, spec in EVENT_TYPES.items()
    ]
    heading = "| type | effect | sources | minimum notice | on the simulated platform | since api-version |\n"
    return before + BEGIN + heading + "|---|---|---|---|---|---|\n" + "".join(rows) + END + after


def test_documentation_shows_the_table(rewrite: bool) -> None:
    page = PAGE.read_text()
    if rewrite:
        PAGE.write_text(described(page))
    else:
        assert page == described(page)


def test_stale_table_is_detected() -> None:
    page = PAGE.read_text()
    stale = page.replace("| Platform | 30s |", "| Platform | 31s |")
    assert stale != page
    assert described(stale) == page
