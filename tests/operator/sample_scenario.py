"""A scenario player whose steps the test releases one by one."""

import threading
from collections.abc import Sequence

from forewarn.api import v1
from forewarn.api.client import ApiClient, ServiceAddress
from forewarn.operator.errors import ScenarioNotFound
from forewarn.operator.scenario_player import ScenarioObserver, ScenarioOutcome

GUARD = 60


def sample_step(line: int, *, passed: bool = True) -> v1.ScenarioStep:
    """Return a step."""
    return v1.ScenarioStep(line=line, text=f"step {line}", expected=None, facts=("nothing",), passed=passed)


class SteppedScenario:
    """A scenario that waits for the test before each step."""

    title = "A sample"
    step_count = 2

    def __init__(self, problem: str | None = None) -> None:
        self._problem = problem
        self.caller: str | None = None
        self._released = threading.Semaphore(0)
        self._canceled: str | None = None

    def problem(self, clock: v1.Clock) -> str | None:
        """Return why it cannot be played."""
        return self._problem

    def play(self, address: ServiceAddress, observer: ScenarioObserver) -> ScenarioOutcome:
        """Play the steps."""
        self.caller = ApiClient(address.url, address.token).me().name
        for line in (1, 2):
            observer.began(f"step {line}")
            assert self._released.acquire(timeout=GUARD)
            if self._canceled is not None:
                return ScenarioOutcome(v1.ScenarioVerdict.CANCELED, self._canceled)
            observer.ended(sample_step(line), ("web-2",))
        return ScenarioOutcome(v1.ScenarioVerdict.PASSED)

    def cancel(self, reason: str) -> None:
        """End at the next step."""
        self._canceled = reason
        self._released.release()

    def release(self, steps: int = 1) -> None:
        """Let the next steps happen."""
        self._released.release(steps)


class SteppedPlayer:
    """A player of one scenario."""

    def __init__(self, scenario: SteppedScenario) -> None:
        self.scenario = scenario

    def scenarios(self, clock: v1.Clock) -> Sequence[v1.Scenario]:
        """Return none."""
        return ()

    def prepare(self, name: str, text: str | None) -> SteppedScenario:
        """Return the scenario."""
        if name != "sample":
            raise ScenarioNotFound(name)
        return self.scenario
