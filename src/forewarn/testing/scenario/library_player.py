"""Plays scenarios in the service of this process, for the operator API: the adapter of its port `ScenarioPlayer`."""

from collections.abc import Sequence
from functools import cache

from forewarn.api import v1
from forewarn.api.client import ApiClient, ServiceAddress
from forewarn.api.errors import ApiError
from forewarn.core.duration import format_duration
from forewarn.operator.errors import InvalidScenario, ScenarioNotFound
from forewarn.operator.scenario_player import MAX_RUN_TIME, ScenarioObserver, ScenarioOutcome
from forewarn.testing.scenario.journal_watcher import Cancelled
from forewarn.testing.scenario.lexer import ScenarioError
from forewarn.testing.scenario.library import Scenario, library_names, library_scenarios, library_text, parse_scenario
from forewarn.testing.scenario.live_backend import LiveBackend
from forewarn.testing.scenario.result import step_result, verdict_of
from forewarn.testing.scenario.runner import run_script
from forewarn.testing.scenario.setup import DEFAULT_SETUP, max_duration, required_setup
from forewarn.testing.scenario.speed_limits import ScenarioTimes, measure, speed_problem

MAX_STEPS = 1_000
"""How many steps a scenario can have here."""

MAX_FACTS = 200
"""How many facts of a step are kept."""

OTHER_POLICY = "it needs a service with its own policy; `forewarn scenario run` plays it in a private one"


class LibraryPlayer:
    """Plays the scenarios that ship with Forewarn, and scenarios of users."""

    def scenarios(self, clock: v1.Clock) -> Sequence[v1.Scenario]:
        """Return the scenarios that ship with Forewarn, as a service with this clock can play them."""
        return tuple(
            v1.Scenario(
                name=scenario.name,
                title=scenario.title,
                handler=scenario.handler,
                step_count=len(scenario.script.steps),
                duration=format_duration(max_duration(scenario.script)),
                problem=_problem(scenario, times, clock),
            )
            for scenario, times in _shipped()
        )

    def prepare(self, name: str, text: str | None) -> "LiveScenario":
        """Return a shipped scenario, or the one with this text; raise ScenarioNotFound or InvalidScenario."""
        if text is None and name not in library_names():
            raise ScenarioNotFound(name)
        try:
            scenario = parse_scenario(name, library_text(name) if text is None else text)
        except ScenarioError as error:
            raise InvalidScenario(error.line, error.column, error.word, error.problem) from error
        if len(scenario.script.steps) > MAX_STEPS:
            raise InvalidScenario(
                scenario.script.steps[MAX_STEPS].line, 1, "", f"at most {MAX_STEPS} steps are allowed"
            )
        return LiveScenario(scenario)


class LiveScenario:
    """A scenario that is played once, in a running service."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._backend: LiveBackend | None = None
        self._canceled: str | None = None

    @property
    def title(self) -> str:
        """The title."""
        return self._scenario.title

    @property
    def step_count(self) -> int:
        """The number of steps."""
        return len(self._scenario.script.steps)

    def problem(self, clock: v1.Clock) -> str | None:
        """Return why a service with this clock cannot play it, and what to do; None if it can."""
        return _problem(self._scenario, measure(self._scenario.script), clock)

    def play(self, address: ServiceAddress, observer: ScenarioObserver) -> ScenarioOutcome:
        """Play it, and remove what it has added."""
        outcome = ScenarioOutcome(v1.ScenarioVerdict.CANCELED, self._canceled or "")
        try:
            api = ApiClient(address.url, address.token, ca=address.ca, pinned=address.pinned)
            with LiveBackend(api, speed=api.clock().speed) as self._backend:
                if self._canceled is None:
                    outcome = self._run(self._backend, observer)
        except ScenarioError as error:
            outcome = ScenarioOutcome(v1.ScenarioVerdict.INVALID, str(error))
        except ApiError as error:
            outcome = ScenarioOutcome(v1.ScenarioVerdict.INVALID, f"{error}{self._left_behind()}")
        return outcome

    def cancel(self, reason: str) -> None:
        """End it at the next step or the next move of the clock; the first reason counts."""
        self._canceled = self._canceled or reason
        if self._backend is not None:
            self._backend.cancel()

    def _run(self, backend: LiveBackend, observer: ScenarioObserver) -> ScenarioOutcome:
        steps: list[v1.ScenarioStep] = []
        try:
            for played in run_script(
                self._scenario.script, backend, on_step=lambda step: observer.began(step.text.strip())
            ):
                steps.append(step_result(played, max_facts=MAX_FACTS))
                observer.ended(steps[-1], _own_scopes(backend))
        except Cancelled:
            return ScenarioOutcome(v1.ScenarioVerdict.CANCELED, self._canceled or "")
        return ScenarioOutcome(verdict_of(steps))

    def _left_behind(self) -> str:
        """Return what could not be removed from the fleet, as the end of a sentence."""
        scopes = () if self._backend is None else _own_scopes(self._backend)
        return f"; remove what it has left behind: {', '.join(scopes)}" if scopes else ""


def _own_scopes(backend: LiveBackend) -> tuple[str, ...]:
    return tuple(scope.id for scope in backend.state.scopes.values() if scope.is_own)


def _problem(scenario: Scenario, times: ScenarioTimes, clock: v1.Clock) -> str | None:
    if required_setup(scenario.script) != DEFAULT_SETUP:
        return OTHER_POLICY
    return speed_problem(times, clock, max_wait=MAX_RUN_TIME)


@cache
def _shipped() -> tuple[tuple[Scenario, ScenarioTimes], ...]:
    """Return the scenarios that ship with Forewarn, with their times."""
    return tuple((scenario, measure(scenario.script)) for scenario in library_scenarios())
