"""Run a scenario on the core backend or on the live backend, and render its facts."""

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


def render(script: Script, played: Sequence[StepResult]) -> str:
    """Render the scenario with the facts of the run."""
    return render_script(script, {each.step.line: each.facts for each in played})


def differing(played: list[StepResult]) -> list[StepResult]:
    """Return the steps whose facts are not as expected."""
    return [each for each in played if not each.is_as_expected]


def run_on_core(text: str) -> str:
    """Run a scenario on the core."""
    return _run(text, CoreBackend())


def run_on_service(text: str) -> str:
    """Run a scenario in a new service, with the policy that the scenario sets."""
    wanted = required_setup(parse(text))
    with Forewarn(NO_FLEET, settings=wanted.settings) as service, LiveBackend(service.api, setup=wanted) as backend:
        return _run(text, backend)


def _run(text: str, backend: Backend) -> str:
    script = parse(text)
    return render(script, list(run_script(script, backend)))


def without_reasons(text: str) -> str:
    """Remove the messages of refusals, but keep their codes: the API words some messages differently."""
    return re.sub(r"(?m)(refused [a-z-]+): .*$", r"\1", text)
