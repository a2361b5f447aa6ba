"""Agent views: the plan per event (dry run) and the agent's status, as tables and JSON."""

import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from forewarn.agent.rules import choose_handlers
from forewarn.agent.settings import AgentSettings, ApprovalMode
from forewarn.agent.status import AgentStatus, StepStatus, WorkflowStatus
from forewarn.agent.workflow.approval import is_immediate
from forewarn.agent.workflow.deadlines import plan_time_slices
from forewarn.agent.workflow.state import CallState, HandlerStep
from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.output import moment_text, write_message
from forewarn.cli.views.tables import Column, write_details, write_table
from forewarn.client.document import Event, read_document
from forewarn.client.document import Status as EventStatus
from forewarn.clock import SystemClock
from forewarn.core.duration import format_duration
from forewarn.core.event import Source
from forewarn.core.event_type import EVENT_TYPES, RELEASED_TYPES
from forewarn.wire.document_parser import InvalidDocument

SAMPLE_EVENT_ID = "00000000-0000-4000-8000-000000000000"
"""The id of sample events."""

STDIN = Path("-")


class PlannedStep(msgspec.Struct, frozen=True, kw_only=True):
    """A handler that would prepare, and the time that it would have; null if no time is left for it."""

    handler: str
    time: str | None

    def __str__(self) -> str:
        return f"{self.handler} (no time left)" if self.time is None else f"{self.handler} (up to {self.time})"


class EventPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The planned reaction to an event. `rule` counts from 0; null if no rule matches."""

    type: str
    source: str | None
    notice: str | None
    rule: int | None
    notifies: list[str]
    steps: list[PlannedStep]
    approval: str


def sample_events(settings: AgentSettings) -> Iterator[Event]:
    """Yield an event of every type with its minimum notice, and of both sources if a rule depends on the source."""
    now = SystemClock().now()
    sources = tuple(Source) if any(rule.sources for rule in settings.rules) else (Source.PLATFORM,)
    for type_ in RELEASED_TYPES:
        for source in sources:
            yield Event(
                id=SAMPLE_EVENT_ID,
                status=EventStatus.SCHEDULED,
                type=type_,
                source=source,
                resources=(settings.name or "this-vm",),
                not_before=now + EVENT_TYPES[type_].minimum_notice,
            )


def read_event(file: Path) -> Event:
    """Read an event in the endpoint's format, alone or in a document."""
    try:
        text = sys.stdin.buffer.read() if file == STDIN else file.read_bytes()
        content = msgspec.json.decode(text)
        is_document = isinstance(content, dict) and "Events" in content
        document = read_document(text if is_document else msgspec.json.encode({"Events": [content]}))
    except OSError as error:
        raise CliError(ExitCode.USAGE, f"--event: {file}: {error.strerror}") from error
    except (msgspec.DecodeError, InvalidDocument) as error:
        raise CliError(ExitCode.USAGE, f"--event: {file} is not an event in the endpoint's format: {error}") from error
    if document is None or len(document.events) != 1:
        raise CliError(ExitCode.USAGE, f"--event: {file} must contain exactly one event")
    return document.events[0]


def plan_event(settings: AgentSettings, event: Event, now: datetime) -> EventPlan:
    """Return the plan for an event that appears now, if every step takes its whole time limit."""
    choice = choose_handlers(settings, event)
    chosen = [settings.handler(name) for name in choice.handlers]
    steps = [
        HandlerStep(handler=each.name, importance=each.importance, time_limit=each.time_limit)
        for each in chosen
        if not each.is_notify_only
    ]
    left = event.time_left(now)
    return EventPlan(
        type=str(event.type),
        source=None if event.source is None else str(event.source),
        notice=None if left is None else _rounded(left),
        rule=choice.rule,
        notifies=[each.name for each in chosen if each.is_notify_only],
        steps=[
            PlannedStep(handler=slice_.handler, time=None if slice_.time is None else _rounded(slice_.time))
            for slice_ in plan_time_slices(event, steps, now=now)
        ],
        approval=_approval_text(settings, event),
    )


def write_plans(plans: list[EventPlan]) -> None:
    """Write plans as a table."""
    columns = (
        Column("TYPE"),
        Column("SOURCE", drop_order=2),
        Column("NOTICE", drop_order=1),
        Column("CHOSEN BY"),
        Column("APPROVED", drop_order=3),
        Column("STEPS", can_fold=True),
    )
    write_table(columns, (_row(plan) for plan in plans))


def status_json(status: AgentStatus) -> dict[str, object]:
    """Return a status for JSON output, with the current field names instead of those of the socket."""
    asdict = msgspec.structs.asdict
    workflows = [{**asdict(each), "steps": [asdict(step) for step in each.steps]} for each in status.workflows]
    return {**asdict(status), "workflows": workflows}


def write_status(status: AgentStatus, directory: Path) -> None:
    """Write the status of a running agent, or the saved state of the last one."""
    write_details(
        (
            ("agent", "running" if status.is_running else f"not running (according to {directory})"),
            ("VM", status.name or ""),
            ("endpoint", status.endpoint or ""),
            ("since", "" if status.started_at is None else moment_text(status.started_at)),
            *(("problem", problem) for problem in status.problems),
        )
    )
    if not status.workflows:
        write_message("No events.")
        return
    columns = (
        Column("EVENT"),
        Column("TYPE"),
        Column("NOT BEFORE", drop_order=1),
        Column("PHASE"),
        Column("APPROVAL", drop_order=2),
        Column("STEPS", can_fold=True),
    )
    write_table(columns, (_workflow_row(walk) for walk in status.workflows))


def _row(plan: EventPlan) -> tuple[str, ...]:
    chosen_by = "no rule" if plan.rule is None else f"rules[{plan.rule}]"
    steps = ", ".join([*plan.notifies, *map(str, plan.steps)])
    return (plan.type, plan.source or "", plan.notice or "", chosen_by, plan.approval, steps or "nothing")


def _approval_text(settings: AgentSettings, event: Event) -> str:
    policy = settings.approval.policy
    if event.is_started or policy is ApprovalMode.NEVER or choose_handlers(settings, event).rule is None:
        return "never"
    if policy is ApprovalMode.EACH:
        return "when ready"
    return f"by the leader, when {'it is' if is_immediate(event, settings.approval) else 'all are'} ready"


def _workflow_row(workflow: WorkflowStatus) -> tuple[str, ...]:
    due = "" if workflow.not_before is None else moment_text(workflow.not_before)
    approval = (
        f"{workflow.approval}: {workflow.approval_reason}" if workflow.approval_reason else str(workflow.approval)
    )
    return (
        workflow.event,
        workflow.type,
        due,
        workflow.phase.value,
        approval,
        ", ".join(map(_step_text, workflow.steps)),
    )


def _step_text(step: StepStatus) -> str:
    state, why = f"prepare {step.prepare}", step.prepare_reason
    if step.recover is not CallState.WAITING:
        state, why = f"recover {step.recover}", step.recover_reason
    return f"{step.handler}: {state}" + (f" ({why})" if why else "")


def _rounded(time: timedelta) -> str:
    return format_duration(timedelta(seconds=round(time.total_seconds())))
