"""The agent's log and metrics: one JSON line per record, no secrets, and bounded label sets."""

import json
import logging
import sys
from pathlib import Path

import pytest

from forewarn.agent.handlers.base import Failed, HandlerCall, Phase
from forewarn.agent.log_events import ApprovalChanged, CallChanged, PhaseStarted, log_events
from forewarn.agent.metrics import AgentMetrics
from forewarn.agent.workflow.planner import WorkflowContext, advance, start
from forewarn.agent.workflow.reducer import apply_input
from forewarn.agent.workflow.state import ApprovalState, CallEnded, CallProgress, CallState, EventWorkflow, HandlerStep
from forewarn.cli.process.logs import JsonFormatter
from tests.agent.harness import ID, NOON, AgentHarness, FakeService, RecordingHandler, event

SECRET = 'hunter"2 über'


def line(formatter: JsonFormatter, message: str, **facts: object) -> str:
    record = logging.LogRecord("forewarn.agent", logging.WARNING, __file__, 1, message, (), None)
    record.__dict__.update(facts)
    return formatter.format(record)


def test_log_record_is_one_json_line_with_its_fields() -> None:
    text = line(JsonFormatter(), "two\nlines", event=ID, phase=Phase.READY, path=Path("/x"))
    assert "\n" not in text
    read = json.loads(text)
    assert list(read) == ["time", "level", "logger", "message", "event", "phase", "path"]
    assert (read["level"], read["message"], read["phase"], read["path"]) == ("warning", "two\nlines", "ready", "/x")


def test_secrets_are_redacted_in_every_part_of_a_line() -> None:
    formatter = JsonFormatter()
    formatter.add_secret(SECRET)
    formatter.add_secret(SECRET + "-longer")
    formatter.add_secret("")
    formatter.add_secret("abc")
    record = logging.LogRecord("x", logging.ERROR, __file__, 1, "abc %s", (SECRET,), None)
    try:
        float(SECRET)
    except ValueError:
        record.exc_info = sys.exc_info()
    record.__dict__["url"] = f"https://host/{SECRET}-longer"
    text = formatter.format(record)
    assert "hunter" not in text
    assert "longer" not in text
    assert json.loads(text)["message"] == "abc ***"


def test_secrets_are_redacted_in_undecodable_text() -> None:
    formatter = JsonFormatter()
    formatter.add_secret(SECRET)
    text = line(formatter, f"\udcff! {SECRET}", path=Path("\udcff"))
    assert json.loads(text)["message"] == "\udcff! ***"


def finished_workflow() -> tuple[EventWorkflow, EventWorkflow]:
    world = WorkflowContext(now=NOON, vm_name="web_0")
    before = start(event(), (HandlerStep(handler="drain"),), world).workflow
    return before, apply_input(before, CallEnded("drain", HandlerCall.PREPARE, 1, Failed("no")), now=NOON)


def test_log_events_are_the_changes_of_a_workflow() -> None:
    world = WorkflowContext(now=NOON, vm_name="web_0")
    before, after = finished_workflow()
    begun = CallProgress(
        state=CallState.RUNNING, attempt=1, tries=1, started_at=NOON, until=before.steps[0].prepare.until
    )
    assert list(log_events(None, start(event(), (HandlerStep(handler="drain"),), world))) == [
        PhaseStarted(Phase.NOTICE, 1),
        PhaseStarted(Phase.PREPARE, 1),
        CallChanged("drain", HandlerCall.PREPARE, begun),
    ]
    assert list(log_events(before, advance(after, world))) == [
        CallChanged("drain", HandlerCall.PREPARE, after.steps[0].prepare),
        ApprovalChanged(ApprovalState.NOT_YET, "this VM is not ready: drain failed: no"),
    ]
    assert list(log_events(before, advance(before, world))) == []


def test_metrics_have_closed_labels_and_a_fixed_set_of_lines() -> None:
    figures = AgentMetrics(["drain"], NOON)
    before, after = finished_workflow()
    empty = figures.render([], {"service": False})
    for handler in ("drain", 'gone "away"\n'):
        figures.count(after, CallChanged(handler, HandlerCall.PREPARE, after.steps[0].prepare))
    strange = start(event(type="Defrost"), (), WorkflowContext(now=NOON, vm_name="web_0")).workflow
    for workflow in (before, strange):
        figures.count(workflow, PhaseStarted(Phase.NOTICE, 1))
        figures.count(workflow, PhaseStarted(Phase.NOTICE, 2))
    figures.count(after, ApprovalChanged(ApprovalState.GIVEN, ""))
    figures.count_store_error()
    full = figures.render([after], {"service": True}).decode()
    names = [text.rsplit(" ", 1)[0] for text in full.splitlines() if text[0] != "#"]
    assert names == [text.rsplit(" ", 1)[0] for text in empty.decode().splitlines() if text[0] != "#"]
    assert len(names) == len(set(names))
    changed = set(full.splitlines()) - set(empty.decode().splitlines())
    assert changed == {
        'forewarn_agent_trouble{with="service"} 1',
        'forewarn_agent_walks{phase="prepare"} 1',
        'forewarn_agent_events_total{type="Reboot"} 1',
        'forewarn_agent_events_total{type="other"} 1',
        'forewarn_agent_phases_total{phase="notice"} 2',
        'forewarn_agent_halves_total{handler="drain",half="prepare",state="failed"} 1',
        'forewarn_agent_halves_total{handler="other",half="prepare",state="failed"} 1',
        'forewarn_agent_approvals_total{state="given"} 1',
        "forewarn_agent_journal_troubles_total 1",
    }


def test_reference_lists_every_metric() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "agent-http.md").read_text()
    shown = AgentMetrics([], NOON).render([], {}).decode().splitlines()
    kinds = [text.split(" ")[2:] for text in shown if text.startswith("# TYPE")]
    rows = [text.split("|")[1:3] for text in page.splitlines() if text.startswith("| `forewarn_agent_")]
    assert [[name.strip(" `"), kind.strip()] for name, kind in rows] == kinds


def test_prometheus_parses_the_metrics() -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    text = AgentMetrics(["drain"], NOON).render([finished_workflow()[0]], {"service": False, "journal": True}).decode()
    families = {family.name: family.type for family in parser.text_string_to_metric_families(text)}
    assert families["forewarn_agent_halves"] == "counter"
    assert families["forewarn_agent_walks"] == "gauge"


async def test_workflow_logs_every_step(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="forewarn.agent")
    harness = AgentHarness(tmp_path, FakeService(), [RecordingHandler("drain", [])])
    async with harness.run_agent():
        await harness.show(event())
        await harness.show()
    of_the_workflow = [record for record in caplog.records if "event" in record.__dict__]
    assert [record.getMessage() for record in of_the_workflow] == [
        "Reboot: notice",
        "Reboot: prepare",
        "Reboot: prepare of drain started",
        "Reboot: prepare of drain done",
        "Reboot: ready",
        "Reboot: approve",
        "Reboot: approving: this VM is ready, and no other VM is affected",
        "Reboot: approved: this VM is ready, and no other VM is affected",
        "Reboot: recover",
        "Reboot: recover of drain started",
        "Reboot: recover of drain done",
        "event handling finished",
    ]
    assert {record.__dict__["event"] for record in of_the_workflow} == {ID}
