"""Port of the scenario player: what plays scenarios in an emulator belongs to the test tools, not to the service."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import NamedTuple, Protocol, TypeAlias

from forewarn.api import v1
from forewarn.api.client import ServiceAddress

MAX_RUN_TIME = timedelta(hours=1)
"""How long a run may take in real time."""


class ScenarioObserver(Protocol):
    """Observes a scenario from the thread that plays it."""

    def began(self, step: str) -> None:
        """Report the step that begins."""
        ...

    def ended(self, step: v1.ScenarioStep, scopes: Sequence[str]) -> None:
        """Report a step with its result, and the scopes that the scenario has added and not removed."""
        ...


class ScenarioOutcome(NamedTuple):
    """How a scenario ended, and why if it did not run to its end."""

    verdict: v1.ScenarioVerdict
    reason: str = ""


class PreparedScenario(Protocol):
    """A valid scenario, which can be played once."""

    @property
    def title(self) -> str:
        """The title."""
        ...

    @property
    def step_count(self) -> int:
        """The number of steps."""
        ...

    def problem(self, clock: v1.Clock) -> str | None:
        """Return why a service with this clock cannot play it, and what to do, if that is known before."""
        ...

    def play(self, address: ServiceAddress, observer: ScenarioObserver) -> ScenarioOutcome:
        """Play it in a service, and remove what it has added; called in a thread of its own."""
        ...

    def cancel(self, reason: str) -> None:
        """End it soon, from any thread."""
        ...


class ScenarioPlayer(Protocol):
    """Reads and plays scenarios."""

    def scenarios(self, clock: v1.Clock) -> Sequence[v1.Scenario]:
        """Return the scenarios that ship with Forewarn, as a service with this clock can play them."""
        ...

    def prepare(self, name: str, text: str | None) -> PreparedScenario:
        """Return a shipped scenario, or the one with this text; raise ScenarioNotFound or InvalidScenario."""
        ...


LoadPlayer: TypeAlias = Callable[[], ScenarioPlayer]
"""Returns the player; the first call loads it, and may take a moment."""
