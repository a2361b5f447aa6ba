"""The agent's metrics: every set of labels is closed, and values are counted once."""

from datetime import UTC, datetime

from forewarn.agent.metrics import COUNTED_STATES, OTHER, TYPES, AgentMetrics
from forewarn.agent.phases import HandlerCall, Phase
from forewarn.core.event_type import RELEASED_TYPES

STARTED_AT = datetime(2026, 11, 16, 10, tzinfo=UTC)


def samples(metrics: AgentMetrics) -> dict[str, float]:
    lines = metrics.render((), {"service": True, "disk": False}).decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def test_every_label_is_there_before_anything_has_happened() -> None:
    found = samples(AgentMetrics(["web", "db"], STARTED_AT))
    calls = [name for name in found if name.startswith("forewarn_agent_halves_total")]
    assert len(calls) == 3 * len(HandlerCall) * len(COUNTED_STATES), "two handlers, and all others together"
    assert [name for name in found if name.startswith("forewarn_agent_events_total")] == [
        f'forewarn_agent_events_total{{type="{type_}"}}' for type_ in (*RELEASED_TYPES, OTHER)
    ]
    assert TYPES[-1] == OTHER
    assert {found[name] for name in found if name.endswith("_total") or "_total{" in name} == {0.0}


def test_troubles_and_start_are_gauges() -> None:
    found = samples(AgentMetrics([], STARTED_AT))
    assert found['forewarn_agent_trouble{with="service"}'] == 1
    assert found['forewarn_agent_trouble{with="disk"}'] == 0
    assert found["forewarn_agent_start_time_seconds"] == STARTED_AT.timestamp()
    assert [found[f'forewarn_agent_walks{{phase="{phase}"}}'] for phase in Phase] == [0] * len(Phase)


def test_errors_of_the_disk_are_counted() -> None:
    metrics = AgentMetrics([], STARTED_AT)
    for _ in range(2):
        metrics.count_store_error()
    assert samples(metrics)["forewarn_agent_journal_troubles_total"] == 2


def test_name_of_a_handler_is_escaped() -> None:
    text = AgentMetrics(['a"b\\c\nd'], STARTED_AT).render((), {}).decode()
    assert r'handler="a\"b\\c\nd"' in text


def test_every_family_has_help_and_type() -> None:
    lines = AgentMetrics(["web"], STARTED_AT).render((), {}).decode().splitlines()
    helped = [line.split()[2] for line in lines if line.startswith("# HELP ")]
    assert helped == [line.split()[2] for line in lines if line.startswith("# TYPE ")]
    assert {line.partition("{")[0].split()[0] for line in lines if line[0] != "#"} <= {*helped}
