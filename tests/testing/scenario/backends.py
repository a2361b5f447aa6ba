"""Run a scenario on the core backend and on the live backend, and render what happened."""

import re
from collections.abc import Sequence

from forewarn.testing.scenario import (
    Backend,
    CoreBackend,
    LiveBackend,
    Script,
    StepResult,
    parse,
    render_script,
    required_setup,
    run_script,
)
from forewarn.testing.service import Forewarn

NO_FLEET: dict[str, object] = {"scopes": []}


def render(story: Script, played: Sequence[StepResult]) -> str:
    """The story as it went."""
    return render_script(story, {each.step.line: each.facts for each in played})


def run_on_core(text: str) -> str:
    """Play a story on the pure core."""
    return _run(text, CoreBackend())


def run_on_service(text: str) -> str:
    """Play a story in a service of its own, with the policy that the story wants."""
    wanted = required_setup(parse(text))
    with Forewarn(NO_FLEET, settings=wanted.settings) as service, LiveBackend(service.api, setup=wanted) as stage:
        return _run(text, stage)


def _run(text: str, stage: Backend) -> str:
    story = parse(text)
    return render(story, list(run_script(story, stage)))


def without_reasons(text: str) -> str:
    """The same, with the codes of refusals alone: the API says some of them in words of its own."""
    return re.sub(r"(?m)(refused [a-z-]+): .*$", r"\1", text)
