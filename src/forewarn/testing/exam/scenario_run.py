"""Run one scenario of the exam: start a service, run the script with the program as handler, evaluate the checks."""

import itertools
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from forewarn.api.errors import ApiError
from forewarn.testing.exam.catalog import HANDLER_VM, ExamScenario
from forewarn.testing.exam.checks import Finding, Verdict, evaluate
from forewarn.testing.exam.effect_checks import RecoverCheck
from forewarn.testing.exam.expectations import Expectations
from forewarn.testing.exam.handler import ExamHandler
from forewarn.testing.exam.handler_process import (
    DIRECTORY_PLACEHOLDER,
    PREPARED_VARIABLE,
    RECOVERED_VARIABLE,
    SCENARIO_VARIABLE,
    LaunchOptions,
)
from forewarn.testing.exam.markers import Marker, MarkerWatcher
from forewarn.testing.exam.stall_watcher import StallWatcher
from forewarn.testing.exam.trace import ENOUGH_LOOKS, EventKind, HandlerTrace
from forewarn.testing.scenario import (
    Cancelled,
    LiveBackend,
    ScenarioError,
    Step,
    commands,
    required_setup,
    run_script,
)
from forewarn.testing.service import Forewarn

LIMIT = 30.0
"""The time limit of a scenario, in seconds, without stalls of the machine and long poll intervals of the program."""

STALLED_SHARE = 0.2
"""The part of a run from which on stalls of the machine may have changed its result."""

RECOVERY_TIMEOUT = 3.0
"""How many seconds a program has to recover after the last step."""

RECOVERY_POLL_INTERVAL = 0.05
"""The seconds between two checks for the recovery."""

MIN_DURATION = 2.5
"""The shortest run, in seconds: in less time the poll interval cannot be measured."""

MAX_INTERVAL = 15.0
"""The longest poll interval, in seconds, for which the exam extends the notice."""

EVENT_COMMANDS = (
    commands.Schedule,
    commands.Restart,
    commands.Redeploy,
    commands.Delete,
    commands.Evict,
    commands.Fail,
    commands.Predict,
)
SECOND = timedelta(seconds=1)
MAX_CATCH_UP = timedelta(minutes=5)
"""A clock that is further behind is so on purpose (`clock_lag`)."""


class Markers(msgspec.Struct, frozen=True, kw_only=True):
    """Files that the handler writes. Relative paths are relative to the handler's working directory.

    `{dir}` in a path stands for the run's own directory.
    """

    prepared: Path | None = None
    recovered: Path | None = None

    @property
    def are_shared(self) -> bool:
        """Whether all runs write the same file: then only one run at a time can be judged."""
        paths = (self.prepared, self.recovered)
        return any(path is not None and DIRECTORY_PLACEHOLDER not in str(path) for path in paths)


class ExamOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The program to examine, and how.

    `limit` is the time limit of a scenario in seconds. `pace` multiplies the exam's timeouts for the program's
    reactions, for slow machines.
    """

    way: LaunchOptions
    vm: str = HANDLER_VM
    wishes: Expectations = Expectations()
    markers: Markers = Markers()
    limit: float = LIMIT
    pace: float = 1.0


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one scenario. `output` is the end of the program's output."""

    scenario: str
    title: str
    findings: tuple[Finding, ...]
    seconds: float
    is_finished: bool
    """Whether the run lasted until the end of the scenario or of the program, and no finding is uncertain."""
    exit_code: int | None = None
    """Set if the program ended by itself."""
    problem: str | None = None
    """Why the scenario did not run to its end."""
    output: str = ""
    tries: int = 1
    """2 if the first run was inconclusive and was repeated."""
    stalled: float = 0.0
    """How many seconds of the run the exam or the program had to wait for a processor."""
    essential: tuple[str, ...] = ()
    """The checks that the scenario is about."""
    is_exercised: bool = True
    """Whether the situation of all essential checks occurred."""
    labels: Mapping[str, str] = {}
    """The ids of the scenario's events by their labels."""

    @property
    def kept(self) -> list[Finding]:
        """The findings that are kept."""
        return self._of(Verdict.KEPT)

    @property
    def broken(self) -> list[Finding]:
        """The findings that are broken."""
        return self._of(Verdict.BROKEN)

    @property
    def warnings(self) -> list[Finding]:
        """The findings about behaviour that Azure tolerates."""
        return self._of(Verdict.WARNING)

    @property
    def not_judged(self) -> list[Finding]:
        """The findings that could not be judged."""
        return self._of(Verdict.NOT_JUDGED)

    @property
    def is_starved(self) -> bool:
        """Whether the machine was so busy that it may have changed the result."""
        return _is_starved(self.seconds, self.stalled) or any(finding.is_uncertain for finding in self.findings)

    @property
    def is_passed(self) -> bool:
        """Whether the scenario ran to its end, with what it is about, and no check was broken."""
        return self.is_finished and self.is_exercised and not self.broken

    def _of(self, verdict: Verdict) -> list[Finding]:
        return [finding for finding in self.findings if finding.verdict is verdict]


def _is_starved(seconds: float, stalled: float) -> bool:
    return stalled > STALLED_SHARE * seconds


def _timeout_text(limit: float, seconds: float, stalled: float) -> str:
    if _is_starved(seconds, stalled):
        return f"the machine was too slow: {stalled:.0f} of {seconds:.0f} s were spent waiting for a processor"
    return f"the scenario did not end within {limit:g} s, although the machine was not busy"


OnStep = Callable[[str], None]


class ScenarioRun:
    """One run of a scenario. It ends with the scenario, with the program, or at the time limit."""

    def __init__(self, options: ExamOptions, exam_scenario: ExamScenario, on_step: OnStep = lambda _: None) -> None:
        self._options, self._exam_scenario, self._on_step = options, exam_scenario, on_step
        self._scenario = exam_scenario.scenario(options.vm)
        self._began_at = time.monotonic()
        self._is_over = threading.Event()
        self._is_timed_out = False
        self._stalls = StallWatcher(self._check_limit)
        self._handler: ExamHandler | None = None
        self._backend: LiveBackend | None = None
        self._kinds: dict[str, EventKind] = {}
        self._problem: str | None = None
        self._prepared: Marker | None = None
        self._recovered: Marker | None = None

    def run(self) -> Result:
        """Run the program in the scenario and evaluate the checks. Raises LaunchFailed if it cannot be started."""
        self._began_at = time.monotonic()
        with TemporaryDirectory(prefix="forewarn-exam-") as directory, self._stalls:
            self._prepared = _marker(self._options.markers.prepared, Path(directory))
            self._recovered = _marker(self._options.markers.recovered, Path(directory))
            return self._run_in(Path(directory))

    def stop(self) -> None:
        """End the run, from any thread."""
        self._is_over.set()
        if self._backend is not None:
            self._backend.cancel()

    def _check_limit(self) -> None:
        """End the run at its limit. Called at each tick of the stall watcher, in its thread."""
        waited = 0.0 if self._handler is None else self._handler.waiting_time
        if self._stalls.elapsed - waited > self._options.limit and not self._is_over.is_set():
            self._is_timed_out = True
            self.stop()

    # The run.

    def _run_in(self, directory: Path) -> Result:
        setup = required_setup(self._scenario.script)
        settings = {**setup.settings, "speed": self._exam_scenario.speed}
        speed = self._exam_scenario.speed
        start = datetime.now(UTC) - self._exam_scenario.clock_lag - self._exam_scenario.lead_in / speed
        with Forewarn({"scopes": []}, start=start, settings=settings) as service:
            handler = self._handler = self._new_handler(service, directory)
            backend = LiveBackend(
                service.api,
                setup=setup,
                speed=self._exam_scenario.speed,
                program=handler,
                timeout=self._exam_scenario.approval_timeout * self._options.pace,
            )
            try:
                with MarkerWatcher(self._prepared, self._recovered) as markers, backend:
                    service.observe_requests(markers.observe)
                    self._backend = backend
                    if self._is_over.is_set():
                        backend.cancel()
                    is_complete = self._run_script(service, backend, handler)
                    return self._result(service, backend, handler, is_complete=is_complete)
            finally:
                handler.end()

    def _new_handler(self, service: Forewarn, directory: Path) -> ExamHandler:
        return ExamHandler(
            self._options.way,
            self._exam_scenario,
            service,
            directory=directory,
            environment=self._environment(),
            pace=self._options.pace,
            stalls=self._stalls,
            is_over=self._is_over,
            on_end=self.stop,
        )

    def _environment(self) -> dict[str, str]:
        variables = {SCENARIO_VARIABLE: self._exam_scenario.name}
        if self._prepared is not None:
            variables[PREPARED_VARIABLE] = str(self._prepared.path)
        if self._recovered is not None:
            variables[RECOVERED_VARIABLE] = str(self._recovered.path)
        return variables

    def _run_script(self, service: Forewarn, backend: LiveBackend, handler: ExamHandler) -> bool:
        """Run the scenario; return whether it ran to its end."""
        try:
            steps = run_script(self._scenario.script, backend, on_step=lambda step: self._before_step(step, service))
            for _ in steps:
                pass
            handler.catch_up()
            self._wait_for_recovery(service, backend, handler)
            self._is_over.wait(max(0.0, self._began_at + MIN_DURATION - time.monotonic()))
        except Cancelled:
            return False
        except (ScenarioError, ApiError) as error:
            self._problem = str(error)
            return False
        return not self._is_timed_out

    def _before_step(self, step: Step, service: Forewarn) -> None:
        self._on_step(step.text.strip())
        if isinstance(step.command, EVENT_COMMANDS):
            _advance_clock(service, extra=self._extra_notice())

    def _extra_notice(self) -> timedelta:
        """Return how much later NotBefore must be for a program that polls rarely, so that it has ENOUGH_LOOKS."""
        if self._handler is None or self._exam_scenario.has_exact_notice:
            return timedelta(0)
        needed = ENOUGH_LOOKS * min(self._handler.poll_interval, MAX_INTERVAL)
        self._handler.extra_notice = max(0.0, needed - self._exam_scenario.real_notice.total_seconds())
        return timedelta(seconds=self._handler.extra_notice)

    def _wait_for_recovery(self, service: Forewarn, backend: LiveBackend, handler: ExamHandler) -> None:
        """Wait until the program has recovered from all events, if a marker shows that."""
        checks = [check for check in self._exam_scenario.checks if isinstance(check, RecoverCheck)]
        began_at = time.monotonic()
        while self._recovered is not None and handler.has_time(began_at, RECOVERY_TIMEOUT * self._options.pace):
            trace = self._trace(service, backend, handler, is_complete=True)
            if not any(evaluate(check, trace, self._options.wishes).verdict is Verdict.BROKEN for check in checks):
                return
            if self._is_over.wait(RECOVERY_POLL_INTERVAL):
                return

    # Observations.

    def _trace(
        self, service: Forewarn, backend: LiveBackend, handler: ExamHandler, *, is_complete: bool
    ) -> HandlerTrace:
        process = handler.process
        name = "" if handler.vm is None else f"{handler.vm.scope}/{handler.vm.name}"
        return HandlerTrace(
            vm=self._options.vm if handler.vm is None else handler.vm.name,
            requests=service.newest_requests(name) if name else (),
            dropped=service.dropped_requests,
            labels=self._labels(backend),
            kinds=self._event_kinds(service, backend),
            one_shot_runs=None if process is None or self._options.way.interval is None else process.runs,
            began_at=self._began_at if process is None else process.began_at,
            finished_at=time.monotonic(),
            exit_status=None if process is None else process.exit_status,
            vm_removed_at=handler.vm_removed_at,
            is_finished=is_complete,
            is_timed_out=self._is_timed_out,
            prepared=None if self._prepared is None else self._prepared.changes,
            recovered=None if self._recovered is None else self._recovered.changes,
            output="" if process is None else process.output,
            stalls=self._stalls.stalls,
        )

    def _labels(self, backend: LiveBackend) -> dict[str, str]:
        """Return the ids of all events by their labels."""
        backend.state.read_journal()
        found = ((label, backend.state.names.event(label)) for label in (f"E{number}" for number in itertools.count(1)))
        known = itertools.takewhile(lambda each: each[1] is not None, found)
        return {label: id_.upper() for label, id_ in known if id_ is not None}

    def _event_kinds(self, service: Forewarn, backend: LiveBackend) -> dict[str, EventKind]:
        """Return type and source of all events by id; they never change."""
        for id_ in self._labels(backend).values():
            if id_ not in self._kinds:
                facts = [entry.facts for entry in service.api.event(id_).journal if "type" in entry.facts]
                if facts:
                    self._kinds[id_] = EventKind(facts[0]["type"], facts[0].get("source"))
        return self._kinds

    def _result(self, service: Forewarn, backend: LiveBackend, handler: ExamHandler, *, is_complete: bool) -> Result:
        trace = self._trace(service, backend, handler, is_complete=is_complete)
        was_begun = handler.process is not None
        is_finished = (
            is_complete or trace.exit_status is not None or (was_begun and not self._is_timed_out and not self._problem)
        )
        findings = tuple(evaluate(check, trace, self._options.wishes) for check in self._exam_scenario.checks)
        uncertain = next((finding for finding in findings if finding.is_uncertain), None)
        essential = self._exam_scenario.essential_checks
        seconds, stalled = time.monotonic() - self._began_at, sum(stall.lost for stall in trace.stalls)
        return Result(
            scenario=self._exam_scenario.name,
            title=self._scenario.title,
            findings=findings,
            seconds=seconds,
            is_finished=is_finished and uncertain is None,
            exit_code=None if trace.exit_status is None else trace.exit_status.code,
            problem=self._problem
            or (_timeout_text(self._options.limit, seconds, stalled) if self._is_timed_out else None)
            or (None if uncertain is None else uncertain.seen),
            output=trace.output,
            stalled=stalled,
            is_exercised=all(finding.is_exercised for finding in findings if finding.demand in essential),
            essential=essential,
            labels=trace.labels,
        )


def _advance_clock(service: Forewarn, *, extra: timedelta) -> None:
    """Advance the service's clock to the real time before an event is created, so that its dates are true.

    With extra notice, the service's clock is that much ahead, and so is NotBefore.
    """
    behind = datetime.now(UTC) + extra - service.now
    if SECOND <= behind <= MAX_CATCH_UP:
        service.advance(behind // SECOND * SECOND)


def _marker(path: Path | None, directory: Path) -> Marker | None:
    return None if path is None else Marker(Path(str(path).replace(DIRECTORY_PLACEHOLDER, str(directory))).absolute())
