"""The agent's metrics in the Prometheus text format. Every set of labels is closed, so cardinality is bounded."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from forewarn import __version__
from forewarn.agent.log_events import ApprovalChanged, CallChanged, LogEvent, PhaseStarted
from forewarn.agent.phases import HandlerCall, Phase
from forewarn.agent.workflow.state import ApprovalState, CallState, EventWorkflow
from forewarn.core.event_type import RELEASED_TYPES

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

OTHER = "other"
COUNTED_STATES = (CallState.RUNNING, CallState.PAUSING, CallState.DONE, CallState.FAILED, CallState.SKIPPED)
TYPES = (*(type_.value for type_ in RELEASED_TYPES), OTHER)

Labels = tuple[tuple[str, str], ...]


class AgentMetrics:
    """Counts log events. Handlers that are no longer configured are counted together, as "other"."""

    def __init__(self, handlers: Iterable[str], started_at: datetime) -> None:
        self._handlers = (*sorted(handlers), OTHER)
        self._started_at = started_at
        self._events: Counter[str] = Counter()
        self._phases: Counter[Phase] = Counter()
        self._calls: Counter[tuple[str, HandlerCall, CallState]] = Counter()
        self._approvals: Counter[ApprovalState] = Counter()
        self._store_errors = 0

    def count(self, workflow: EventWorkflow, log_event: LogEvent) -> None:
        """Count a log event of a workflow."""
        match log_event:
            case PhaseStarted(phase, attempt):
                if attempt > 1:
                    return
                self._phases[phase] += 1
                if phase is Phase.NOTICE:
                    self._events[workflow.event.type if workflow.event.type in TYPES else OTHER] += 1
            case CallChanged(handler, call, progress):
                known = handler if handler in self._handlers else OTHER
                self._calls[known, call, progress.state] += 1
            case ApprovalChanged(state):
                self._approvals[state] += 1

    def count_store_error(self) -> None:
        """Count a failed read or write of a workflow file."""
        self._store_errors += 1

    def render(self, workflows: Iterable[EventWorkflow], troubles: Mapping[str, bool]) -> bytes:
        """Render all metrics in the Prometheus text format."""
        return "".join(line + "\n" for line in self._lines(tuple(workflows), troubles)).encode()

    def _lines(self, workflows: tuple[EventWorkflow, ...], troubles: Mapping[str, bool]) -> Iterator[str]:
        started = self._started_at.timestamp()
        yield from _family("info", "gauge", "Version of the agent.", [((("version", __version__),), 1)])
        yield from _family("start_time_seconds", "gauge", "Start time of the agent, in Unix seconds.", [((), started)])
        yield from _family(
            "trouble", "gauge", "1 if there is a problem.", [((("with", k),), int(v)) for k, v in troubles.items()]
        )
        phases = Counter(workflow.phase for workflow in workflows)
        yield from _family(
            "walks", "gauge", "Events being handled, by phase.", [((("phase", p),), phases[p]) for p in Phase]
        )
        yield from _family(
            "unrecovered_steps",
            "gauge",
            "Steps whose recovery failed, or ended in an unknown state.",
            [((), _unrecovered(workflows))],
        )
        yield from _family(
            "events_total", "counter", "Events noticed, by type.", [((("type", t),), self._events[t]) for t in TYPES]
        )
        yield from _family(
            "phases_total", "counter", "Phases started.", [((("phase", p),), self._phases[p]) for p in Phase]
        )
        yield from _family("halves_total", "counter", "Handler calls, by state.", self._call_samples())
        states = (ApprovalState.IN_FLIGHT, ApprovalState.GIVEN, ApprovalState.FAILED)
        yield from _family(
            "approvals_total",
            "counter",
            "Approvals sent, given and failed.",
            [((("state", a),), self._approvals[a]) for a in states],
        )
        yield from _family(
            "journal_troubles_total", "counter", "Failed reads or writes of workflow files.", [((), self._store_errors)]
        )

    def _call_samples(self) -> list[tuple[Labels, float]]:
        return [
            ((("handler", handler), ("half", call), ("state", state)), self._calls[handler, call, state])
            for handler in self._handlers
            for call in HandlerCall
            for state in COUNTED_STATES
        ]


def _unrecovered(workflows: tuple[EventWorkflow, ...]) -> int:
    lost = {CallState.FAILED, CallState.UNKNOWN}
    return sum(step.recover.state in lost for workflow in workflows for step in workflow.steps)


def _family(name: str, kind: str, what: str, samples: list[tuple[Labels, float]]) -> Iterator[str]:
    yield f"# HELP forewarn_agent_{name} {what}"
    yield f"# TYPE forewarn_agent_{name} {kind}"
    for labels, value in samples:
        inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
        yield f"forewarn_agent_{name}{{{inside}}} {value:.17g}" if inside else f"forewarn_agent_{name} {value:.17g}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
