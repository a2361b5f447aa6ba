"""Agent views: the plan of each event, and the status as table and JSON."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from forewarn.agent.phases import Phase
from forewarn.agent.settings import AgentSettings, read_settings
from forewarn.agent.status import AgentStatus, StepStatus, WorkflowStatus
from forewarn.agent.workflow.state import ApprovalState, CallState
from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.views.agent import (
    EventPlan,
    PlannedStep,
    plan_event,
    read_event,
    sample_events,
    status_json,
    write_plans,
    write_status,
)
from forewarn.client.document import Event, Status
from forewarn.core.event import Source
from forewarn.core.event_type import RELEASED_TYPES

TEN = datetime(2026, 3, 2, 10, tzinfo=UTC)
ID = "602D9444-D2CD-49C7-8624-8643E7171297"
SETTINGS = """\
name = "web_0"

[handlers.drain]
kind = "exec"
prepare = ["/bin/true"]
importance = 90
time_limit = "20s"

[handlers.backup]
kind = "exec"
prepare = ["/bin/true"]
importance = 10
time_limit = "30s"

[[rules]]
types = ["Preempt", "Reboot"]
handlers = ["log", "drain", "backup"]
"""
STEP = StepStatus(
    handler="drain",
    importance=90,
    prepare=CallState.DONE,
    prepare_attempt=1,
    prepare_reason="",
    recover=CallState.WAITING,
    recover_attempt=0,
    recover_reason="",
)
WORKFLOW = WorkflowStatus(
    event=ID,
    type="Reboot",
    status="Scheduled",
    resources=("web_0",),
    not_before=TEN + timedelta(minutes=15),
    phase=Phase.PREPARE,
    is_ready=False,
    approval=ApprovalState.NOT_YET,
    approval_reason="backup is not ready",
    restarts=0,
    steps=(
        STEP,
        msgspec.structs.replace(STEP, handler="backup", prepare=CallState.FAILED, prepare_reason="exit code 1"),
        msgspec.structs.replace(STEP, handler="tidy", recover=CallState.FAILED, recover_reason="no such file"),
    ),
)
STATUS = AgentStatus(
    is_running=True,
    name="web_0",
    endpoint="http://169.254.169.254",
    started_at=TEN,
    problems=("the disk is full",),
    workflows=(WORKFLOW,),
)


def settings(directory: Path, text: str = SETTINGS) -> AgentSettings:
    file = directory / "agent.toml"
    file.write_text(text)
    return read_settings(file, {"HOME": str(directory)})


def announced(type_: str = "Reboot", *, notice: timedelta | None = timedelta(minutes=15), status: str = "") -> Event:
    return Event(
        id=ID,
        status=status or Status.SCHEDULED,
        type=type_,
        source=Source.PLATFORM,
        resources=("web_0",),
        not_before=None if notice is None else TEN + notice,
    )


def test_plan_has_the_rule_the_notified_handlers_and_the_steps(tmp_path: Path) -> None:
    assert plan_event(settings(tmp_path), announced(), TEN) == EventPlan(
        type="Reboot",
        source="Platform",
        notice="15m",
        rule=0,
        notifies=["log"],
        steps=[PlannedStep(handler="drain", time="20s"), PlannedStep(handler="backup", time="30s")],
        approval="by the leader, when all are ready",
    )


def test_least_important_step_gets_the_remaining_time_or_none(tmp_path: Path) -> None:
    agent = settings(tmp_path)
    steps = [
        plan_event(agent, announced("Preempt", notice=timedelta(seconds=seconds)), TEN).steps for seconds in (30, 10)
    ]
    assert [list(map(str, each)) for each in steps] == [
        ["drain (up to 20s)", "backup (up to 9s)"],
        ["drain (up to 9s)", "backup (no time left)"],
    ]


@pytest.mark.parametrize(
    ("mode", "event", "approval"),
    [
        ("leader", announced(), "by the leader, when all are ready"),
        ("each", announced(), "when ready"),
        ("never", announced(), "never"),
        ("each", announced("Redeploy"), "never"),
        ("each", announced(status="Started", notice=None), "never"),
    ],
    ids=["leader", "each", "never", "no rule", "started"],
)
def test_plan_shows_who_approves(tmp_path: Path, mode: str, event: Event, approval: str) -> None:
    agent = settings(tmp_path, f'{SETTINGS}\n[approval]\npolicy = "{mode}"\n')
    assert plan_event(agent, event, TEN).approval == approval


def test_plans_are_written_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    full = EventPlan(
        type="Reboot",
        source="Platform",
        notice="15m",
        rule=0,
        notifies=["log"],
        steps=[PlannedStep(handler="drain", time="20s"), PlannedStep(handler="backup", time=None)],
        approval="when ready",
    )
    empty = EventPlan(type="Freeze", source=None, notice=None, rule=None, notifies=[], steps=[], approval="never")
    write_plans([full, empty])
    assert [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()] == [
        "TYPE SOURCE NOTICE CHOSEN BY APPROVED STEPS",
        "Reboot Platform 15m rules[0] when ready log, drain (up to 20s), backup (no time left)",
        "Freeze no rule never nothing",
    ]


def test_sample_events_are_of_every_type_and_of_both_sources_only_if_a_rule_depends_on_it(tmp_path: Path) -> None:
    samples = list(sample_events(settings(tmp_path)))
    assert [(each.type, each.source) for each in samples] == [(type_, Source.PLATFORM) for type_ in RELEASED_TYPES]
    assert {each.resources for each in samples} == {("web_0",)}
    by_source = settings(tmp_path, f'{SETTINGS}sources = ["User"]\n')
    assert [(each.type, each.source) for each in sample_events(by_source)] == [
        (type_, source) for type_ in RELEASED_TYPES for source in Source
    ]


EVENT = f'{{"EventId": "{ID}", "EventStatus": "Scheduled", "EventType": "Reboot", "Resources": ["web_0"]}}'
WRONG_FILES = {
    "missing": (None, "--event: {}: No such file or directory"),
    "two events": (
        f'{{"Events": [{EVENT}, {EVENT.replace(ID, "other")}]}}',
        "--event: {} must contain exactly one event",
    ),
    "no event": ('{"Events": []}', "--event: {} must contain exactly one event"),
}


@pytest.mark.parametrize(("text", "message"), WRONG_FILES.values(), ids=WRONG_FILES)
def test_wrong_event_file_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    file = tmp_path / "event.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(CliError) as refused:
        read_event(file)
    assert (refused.value.code, str(refused.value)) == (ExitCode.USAGE, message.format(file))


@pytest.mark.parametrize(
    "text", [EVENT, f'{{"DocumentIncarnation": 1, "Events": [{EVENT}]}}'], ids=["alone", "document"]
)
def test_event_is_read_alone_or_in_a_document(tmp_path: Path, text: str) -> None:
    file = tmp_path / "event.json"
    file.write_text(text)
    found = read_event(file)
    assert (found.id, found.type, found.status, found.resources) == (ID, "Reboot", "Scheduled", ("web_0",))


def test_status_is_written_as_details_and_a_table(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write_status(STATUS, tmp_path)
    out, err = capsys.readouterr()
    steps = "drain: prepare done, backup: prepare failed (exit code 1), tidy: recover failed (no such file)"
    assert (err, [" ".join(line.split()) for line in out.splitlines() if line]) == (
        "",
        [
            "agent running",
            "VM web_0",
            "endpoint http://169.254.169.254",
            "since 2026-03-02 10:00:00Z",
            "problem the disk is full",
            "EVENT TYPE NOT BEFORE PHASE APPROVAL STEPS",
            f"{ID} Reboot 2026-03-02 10:15:00Z prepare not yet: backup is not ready {steps}",
        ],
    )


def test_status_of_a_stopped_agent_without_events(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write_status(AgentStatus(is_running=False), tmp_path)
    out, err = capsys.readouterr()
    assert (out.split(), err) == (["agent", "not", "running", "(according", "to", f"{tmp_path})"], "No events.\n")


def test_json_of_a_status_has_the_current_names() -> None:
    shown = status_json(STATUS)
    assert list(shown) == ["is_running", "name", "endpoint", "started_at", "problems", "workflows"]
    (workflow,) = msgspec.to_builtins(shown)["workflows"]
    assert (workflow["approval"], workflow["approval_reason"]) == ("not yet", "backup is not ready")
    assert workflow["steps"][1] == {
        "handler": "backup",
        "importance": 90,
        "prepare": "failed",
        "prepare_attempt": 1,
        "prepare_reason": "exit code 1",
        "recover": "waiting",
        "recover_attempt": 0,
        "recover_reason": "",
    }
