"""Results of steps and scenarios, as the API and the command line show them."""

from collections.abc import Sequence

from forewarn.api import v1
from forewarn.core.duration import format_duration
from forewarn.testing.scenario.commands import Expect
from forewarn.testing.scenario.runner import StepResult


def step_result(played: StepResult, *, max_facts: int | None = None) -> v1.ScenarioStep:
    """Return the result of a step, with at most this many facts."""
    command, facts = played.step.command, played.facts
    if max_facts is not None and len(facts) > max_facts:
        facts = (*facts[:max_facts], f"… and {len(facts) - max_facts} more")
    return v1.ScenarioStep(
        line=played.step.line,
        text=played.step.text.strip(),
        expected=played.step.expected,
        facts=facts,
        passed=played.is_as_expected,
        awaited=f"{command.fact} within {format_duration(command.within)}" if isinstance(command, Expect) else None,
    )


def verdict_of(steps: Sequence[v1.ScenarioStep]) -> v1.ScenarioVerdict:
    """Return the verdict on a scenario that ran to its end."""
    return v1.ScenarioVerdict.PASSED if all(step.passed for step in steps) else v1.ScenarioVerdict.FAILED
