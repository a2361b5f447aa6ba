"""One scenario of the exam: a service of its own, the story played in it, and the program in the handler's place."""

import re
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from forewarn.api.errors import ApiError
from forewarn.testing.exam.candidate import Candidate
from forewarn.testing.exam.demands import Finding, Recovers, Verdict, find
from forewarn.testing.exam.markers import Marker, Watching
from forewarn.testing.exam.program import PREPARED_VARIABLE, RECOVERED_VARIABLE, SCENARIO_VARIABLE, Way
from forewarn.testing.exam.record import Record
from forewarn.testing.exam.sheets import HANDLER, Sheet
from forewarn.testing.exam.wishes import Wishes
from forewarn.testing.scenario import Cancelled, LiveStage, Scenario, ScenarioError, Step, play, wanted_by
from forewarn.testing.scenario import commands as say
from forewarn.testing.service import Forewarn

LIMIT = 20.0
"""How many seconds of real time a scenario takes at the most."""

RECOVERY = 3.0
"""How many seconds a program has, in the end, to recover."""

LOOK_AGAIN = 0.05
"""How often one looks whether it has, in seconds."""

SHORTEST = 2.5
"""For how many seconds a program is watched at the least: in less nobody could say how often it asks."""

LABEL = re.compile(r"\bE\d+\b")
MAKING = (say.Schedule, say.Restart, say.Redeploy, say.Delete, say.Evict, say.Fail, say.Predict)
SECOND = timedelta(seconds=1)
FARTHEST = timedelta(minutes=5)
"""A clock that is farther behind is meant to be."""


class Markers(msgspec.Struct, frozen=True, kw_only=True):
    """Files that the handler writes. A path that is not absolute is in the directory that each run has for itself."""

    prepared: Path | None = None
    recovered: Path | None = None

    @property
    def are_shared(self) -> bool:
        """Whether several runs would write the same file: then only one at a time can be told apart."""
        return any(path is not None and path.is_absolute() for path in (self.prepared, self.recovered))


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be examined, and how.

    A scenario takes `limit` seconds at the most. On a slow machine `pace` is how many times longer than usual the
    exam waits for whatever the program has to do.
    """

    way: Way
    vm: str = HANDLER
    wishes: Wishes = Wishes()
    markers: Markers = Markers()
    limit: float = LIMIT
    pace: float = 1.0


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What was found in one scenario. `output` is the end of what the program has printed."""

    scenario: str
    title: str
    findings: tuple[Finding, ...]
    seconds: float
    is_finished: bool
    """Whether the story was played to its end, or the program's."""
    exit_code: int | None = None
    """Where the program has ended by itself."""
    problem: str | None = None
    """Why the story could not be played to its end."""
    output: str = ""
    tries: int = 1
    """It is 2 where a busy machine may have spoilt the first one."""

    @property
    def kept(self) -> list[Finding]:
        """What was as it must be."""
        return self._of(Verdict.KEPT)

    @property
    def broken(self) -> list[Finding]:
        """What was not as it must be."""
        return self._of(Verdict.BROKEN)

    @property
    def not_judged(self) -> list[Finding]:
        """What nobody can say."""
        return self._of(Verdict.NOT_JUDGED)

    @property
    def is_passed(self) -> bool:
        """Whether nothing was broken, and the story was played to its end."""
        return self.is_finished and not self.broken

    def _of(self, verdict: Verdict) -> list[Finding]:
        return [finding for finding in self.findings if finding.verdict is verdict]


OnStep = Callable[[str], None]


class Sitting:
    """A scenario while it is played. It is over when its story is, when its program is, or when its time is."""

    def __init__(self, ask: Ask, sheet: Sheet, on_step: OnStep = lambda _: None) -> None:
        self._ask, self._sheet, self._on_step = ask, sheet, on_step
        self._scenario = sheet.scenario(ask.vm)
        self._began_at = time.monotonic()
        self._is_over = threading.Event()
        self._is_late = False
        self._stage: LiveStage | None = None
        self._problem: str | None = None
        self._prepared: Marker | None = None
        self._recovered: Marker | None = None

    def run(self) -> Result:
        """Examine the program, and judge. Raises NotBegun where there is no such program."""
        self._began_at = time.monotonic()
        with TemporaryDirectory(prefix="forewarn-exam-") as folder:
            self._prepared = _marker(self._ask.markers.prepared, Path(folder))
            self._recovered = _marker(self._ask.markers.recovered, Path(folder))
            return self._played(Path(folder))

    def end(self) -> None:
        """Let it be over, from any thread."""
        self._is_over.set()
        if self._stage is not None:
            self._stage.cancel()

    def _end_late(self) -> None:
        self._is_late = True
        self.end()

    # Its course.

    def _played(self, folder: Path) -> Result:
        wanted = wanted_by(self._scenario.story)
        settings = {**wanted.settings, "speed": self._sheet.speed}
        start = datetime.now(UTC) - self._sheet.behind
        with Forewarn({"scopes": []}, start=start, settings=settings) as service:
            candidate = self._candidate(service, folder)
            stage = LiveStage(
                service.api,
                wanted=wanted,
                speed=self._sheet.speed,
                program=candidate,
                patience=self._sheet.patience * self._ask.pace,
            )
            timer = threading.Timer(self._ask.limit - (time.monotonic() - self._began_at), self._end_late)
            timer.daemon = True
            timer.start()
            try:
                with Watching(self._prepared, self._recovered), stage:
                    self._stage = stage
                    if self._is_over.is_set():
                        stage.cancel()
                    is_played = self._play(service, stage, candidate)
                    return self._judged(service, stage, candidate, is_played=is_played)
            finally:
                timer.cancel()
                candidate.end()

    def _candidate(self, service: Forewarn, folder: Path) -> Candidate:
        return Candidate(
            self._ask.way,
            self._sheet,
            service,
            folder=folder,
            environment=self._environment(),
            pace=self._ask.pace,
            is_over=self._is_over,
            on_end=self.end,
        )

    def _environment(self) -> dict[str, str]:
        variables = {SCENARIO_VARIABLE: self._sheet.name}
        if self._prepared is not None:
            variables[PREPARED_VARIABLE] = str(self._prepared.path)
        if self._recovered is not None:
            variables[RECOVERED_VARIABLE] = str(self._recovered.path)
        return variables

    def _play(self, service: Forewarn, stage: LiveStage, candidate: Candidate) -> bool:
        """Play the story; tell whether that was possible to its end."""
        try:
            for _ in play(self._scenario.story, stage, on_step=lambda step: self._before(step, service)):
                pass
            candidate.keep_up()
            self._await_recovery(service, stage, candidate)
            self._is_over.wait(max(0.0, self._began_at + SHORTEST - time.monotonic()))
        except Cancelled:
            return False
        except (ScenarioError, ApiError) as error:
            self._problem = str(error)
            return False
        return not self._is_late

    def _before(self, step: Step, service: Forewarn) -> None:
        self._on_step(step.text.strip())
        if isinstance(step.command, MAKING):
            _catch_up(service)

    def _await_recovery(self, service: Forewarn, stage: LiveStage, candidate: Candidate) -> None:
        """Give the program the time to recover from everything, where that can be seen."""
        demands = [demand for demand in self._sheet.demands if isinstance(demand, Recovers)]
        end = time.monotonic() + RECOVERY * self._ask.pace
        while self._recovered is not None and time.monotonic() < end:
            record = self._record(service, stage, candidate, is_played=True)
            if not any(find(demand, record, self._ask.wishes).verdict is Verdict.BROKEN for demand in demands):
                return
            if self._is_over.wait(LOOK_AGAIN):
                return

    # What was seen.

    def _record(self, service: Forewarn, stage: LiveStage, candidate: Candidate, *, is_played: bool) -> Record:
        running = candidate.running
        name = "" if candidate.vm is None else f"{candidate.vm.scope}/{candidate.vm.name}"
        return Record(
            vm=self._ask.vm,
            requests=service.newest_requests(name) if name else (),
            dropped=service.dropped_requests,
            labels=_labels(self._scenario, stage),
            began_at=self._began_at if running is None else running.began_at,
            over_at=time.monotonic(),
            ended=None if running is None else running.ended,
            left_at=candidate.left_at,
            is_finished=is_played,
            is_cut_short=self._is_late,
            prepared=None if self._prepared is None else self._prepared.changes,
            recovered=None if self._recovered is None else self._recovered.changes,
            output="" if running is None else running.output,
        )

    def _judged(self, service: Forewarn, stage: LiveStage, candidate: Candidate, *, is_played: bool) -> Result:
        record = self._record(service, stage, candidate, is_played=is_played)
        was_begun = candidate.running is not None
        is_finished = is_played or record.ended is not None or (was_begun and not self._is_late and not self._problem)
        return Result(
            scenario=self._sheet.name,
            title=self._scenario.title,
            findings=tuple(find(demand, record, self._ask.wishes) for demand in self._sheet.demands),
            seconds=time.monotonic() - self._began_at,
            is_finished=is_finished,
            exit_code=None if record.ended is None else record.ended.code,
            problem=self._problem
            or (f"the {self._ask.limit:g} s were over before the story was" if self._is_late else None),
            output=record.output,
        )


def _catch_up(service: Forewarn) -> None:
    """Have the service's time be the real one when an event is made: its dates are to be true for the program."""
    behind = datetime.now(UTC) - service.now
    if SECOND <= behind <= FARTHEST:
        service.advance(behind // SECOND * SECOND)


def _labels(scenario: Scenario, stage: LiveStage) -> Mapping[str, str]:
    stage.world.catch_up()
    found = {label: stage.world.names.event(label) for label in sorted(set(LABEL.findall(scenario.text)))}
    return {label: id_.upper() for label, id_ in found.items() if id_ is not None}


def _marker(path: Path | None, folder: Path) -> Marker | None:
    return None if path is None else Marker(folder / path)
