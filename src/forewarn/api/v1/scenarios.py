"""Scenario types: the scenarios that the emulator can play, and their runs."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec

from forewarn.api.v1.common import Request, Response
from forewarn.core.text import Name, Text

__all__ = [
    "CancelScenario",
    "PlayScenario",
    "Scenario",
    "ScenarioRun",
    "ScenarioRunList",
    "ScenarioRunSummary",
    "ScenarioStep",
    "ScenarioVerdict",
    "Scenarios",
]

MAX_SCENARIO_LENGTH = 64 * 1024

ScenarioText = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_SCENARIO_LENGTH)]


class ScenarioVerdict(StrEnum):
    """The result of a scenario."""

    PASSED = "passed"
    FAILED = "failed"
    INVALID = "invalid"
    CANCELED = "canceled"


class Scenario(Response, frozen=True):
    """A scenario that ships with Forewarn.

    `duration` is how much time of the scenario passes at most. `problem`, if not null, is why this service cannot play
    it.
    """

    name: str
    title: str
    handler: str | None
    step_count: int
    duration: str
    problem: str | None


class Scenarios(Response, frozen=True):
    """The scenarios that ship with Forewarn, sorted by name."""

    scenarios: Sequence[Scenario]


class ScenarioStep(Response, frozen=True):
    """A completed step. `expected` is null if no facts are specified; `awaited` is what the step waits for."""

    line: int
    text: str
    expected: Sequence[str] | None
    facts: Sequence[str]
    passed: bool
    awaited: str | None = None


class ScenarioRunSummary(Response, frozen=True):
    """A run of a scenario. `verdict` and `ended_at` are null while it plays.

    `scopes` are the scopes that the scenario has added to the fleet; they are removed when it ends. `revision` grows
    with every change of the run.
    """

    id: str
    name: str
    title: str
    verdict: ScenarioVerdict | None
    reason: str
    """Why it is invalid or was canceled."""
    step_count: int
    finished_step_count: int
    current_step: str | None
    scopes: Sequence[str]
    created_by: str
    created_at: datetime
    ended_at: datetime | None
    seconds: float
    """The real time that it has taken so far."""
    revision: int


class ScenarioRun(ScenarioRunSummary, frozen=True, kw_only=True):
    """A run of a scenario with its completed steps."""

    steps: Sequence[ScenarioStep]


class ScenarioRunList(Response, frozen=True):
    """The runs since the start of the service, newest first. Of many, it has the newest."""

    runs: Sequence[ScenarioRunSummary]


class PlayScenario(Request, frozen=True):
    """Play a scenario that ships with Forewarn, by its name; or with `text`, your own one, which gets this name."""

    name: Name
    text: ScenarioText | None = None


class CancelScenario(Request, frozen=True):
    """Cancel a run."""

    reason: Text = ""
