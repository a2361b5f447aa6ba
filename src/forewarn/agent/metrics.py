"""The agent's figures in the text format of Prometheus. Every set of labels is closed: it cannot grow without end."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from forewarn import __version__
from forewarn.agent.phases import Half, Phase
from forewarn.agent.remarks import ApprovalCame, HalfCame, PhaseBegan, Remark
from forewarn.agent.walk import Asked, State, Walk
from forewarn.core.event import EventType

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

OTHER = "other"
COUNTED_STATES = (State.BEGUN, State.PAUSING, State.DONE, State.FAILED, State.SKIPPED)
TYPES = (*(type_.value for type_ in EventType), OTHER)

Labels = tuple[tuple[str, str], ...]


class Figures:
    """Counts what happens. Handlers that are not configured any more are counted together."""

    def __init__(self, handlers: Iterable[str], started_at: datetime) -> None:
        self._handlers = (*sorted(handlers), OTHER)
        self._started_at = started_at
        self._events: Counter[str] = Counter()
        self._phases: Counter[Phase] = Counter()
        self._halves: Counter[tuple[str, Half, State]] = Counter()
        self._approvals: Counter[Asked] = Counter()
        self._journal_troubles = 0

    def count(self, walk: Walk, remark: Remark) -> None:
        """Count a remark about a walk."""
        match remark:
            case PhaseBegan(phase, attempt):
                if attempt > 1:
                    return
                self._phases[phase] += 1
                if phase is Phase.NOTICE:
                    self._events[walk.event.type if walk.event.type in TYPES else OTHER] += 1
            case HalfCame(handler, half, progress):
                known = handler if handler in self._handlers else OTHER
                self._halves[known, half, progress.state] += 1
            case ApprovalCame(asked):
                self._approvals[asked] += 1

    def count_journal_trouble(self) -> None:
        """Count that something could not be written, or read."""
        self._journal_troubles += 1

    def show(self, walks: Iterable[Walk], troubles: Mapping[str, bool]) -> bytes:
        """Write everything as Prometheus reads it."""
        return "".join(line + "\n" for line in self._lines(tuple(walks), troubles)).encode()

    def _lines(self, walks: tuple[Walk, ...], troubles: Mapping[str, bool]) -> Iterator[str]:
        started = self._started_at.timestamp()
        yield from _family("info", "gauge", "Which agent this is.", [((("version", __version__),), 1)])
        yield from _family("start_time_seconds", "gauge", "When the agent started.", [((), started)])
        yield from _family(
            "trouble", "gauge", "Whether something is wrong.", [((("with", k),), int(v)) for k, v in troubles.items()]
        )
        phases = Counter(walk.phase for walk in walks)
        yield from _family(
            "walks", "gauge", "Events that are being dealt with.", [((("phase", p),), phases[p]) for p in Phase]
        )
        yield from _family(
            "unrecovered_steps",
            "gauge",
            "Steps whose recovery failed, and is tried again.",
            [((), _unrecovered(walks))],
        )
        yield from _family(
            "events_total", "counter", "Events that were noticed.", [((("type", t),), self._events[t]) for t in TYPES]
        )
        yield from _family(
            "phases_total", "counter", "Phases that began.", [((("phase", p),), self._phases[p]) for p in Phase]
        )
        yield from _family("halves_total", "counter", "What became of what handlers did.", self._half_samples())
        asked = (Asked.UNDER_WAY, Asked.GIVEN, Asked.FAILED)
        yield from _family(
            "approvals_total",
            "counter",
            "Approvals that were sent, and what became of them.",
            [((("state", a),), self._approvals[a]) for a in asked],
        )
        yield from _family(
            "journal_troubles_total", "counter", "What the disk did not take, or give.", [((), self._journal_troubles)]
        )

    def _half_samples(self) -> list[tuple[Labels, float]]:
        return [
            ((("handler", handler), ("half", half), ("state", state)), self._halves[handler, half, state])
            for handler in self._handlers
            for half in Half
            for state in COUNTED_STATES
        ]


def _unrecovered(walks: tuple[Walk, ...]) -> int:
    return sum(step.recover.state is State.FAILED for walk in walks for step in walk.steps)


def _family(name: str, kind: str, what: str, samples: list[tuple[Labels, float]]) -> Iterator[str]:
    yield f"# HELP forewarn_agent_{name} {what}"
    yield f"# TYPE forewarn_agent_{name} {kind}"
    for labels, value in samples:
        inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
        yield f"forewarn_agent_{name}{{{inside}}} {value:.17g}" if inside else f"forewarn_agent_{name} {value:.17g}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
