"""systemd handler: stops the running units before the event and starts exactly those after it."""

import os
from collections.abc import Mapping
from pathlib import Path

from forewarn.agent.handlers.base import CallResult, Done, HandlerBase, HandlerContext, Retry
from forewarn.agent.handlers.env import inherited_variables
from forewarn.agent.handlers.saved_state import SavedStateFile
from forewarn.agent.settings import SystemdSettings
from forewarn.process import run_process

RUNNING = frozenset({"active", "activating", "reloading", "refreshing"})
"""What systemd calls units that have something to stop."""

LOADED = "loaded"


class SystemdError(Exception):
    """systemctl did not do what it was asked for; the message says how it ended."""


class SystemdHandler(HandlerBase[SystemdSettings]):
    """Stops and starts units by `systemctl`, which has to be on the PATH, and to be allowed to do so."""

    def __init__(self, settings: SystemdSettings, directory: Path, *, environ: Mapping[str, str] = os.environ) -> None:
        super().__init__(settings)
        self._environ = inherited_variables(environ)
        self._saved_state = SavedStateFile(directory, settings.name)

    async def prepare(self, context: HandlerContext) -> CallResult:
        """Stop what runs. What stands still already, for another reason, stays so afterwards."""
        del context
        self._saved_state.begin()
        try:
            states = await self._states("ActiveState")
            await self._run_units(
                "stop", self._saved_state.save_running(tuple(unit for unit in states if states[unit] in RUNNING))
            )
        except SystemdError as error:
            return Retry(str(error))
        return Done()

    async def recover(self, context: HandlerContext) -> CallResult:
        """Start what was stopped."""
        del context
        try:
            await self._run_units("start", self._saved_state.to_restore(self.settings.units))
        except SystemdError as error:
            return Retry(str(error))
        self._saved_state.mark_restored()
        return Done()

    async def check(self) -> list[str]:
        """Ask whether there are such units."""
        try:
            states = await self._states("LoadState")
        except SystemdError as error:
            return [str(error)]
        return [f"systemd has no unit {unit}: {state}" for unit, state in states.items() if state != LOADED]

    async def _states(self, property_name: str) -> dict[str, str]:
        outputs = {
            unit: await self._systemctl("show", f"--property={property_name}", unit) for unit in self.settings.units
        }
        return {unit: text.strip().removeprefix(f"{property_name}=") for unit, text in outputs.items()}

    async def _run_units(self, verb: str, units: tuple[str, ...]) -> None:
        if units:
            await self._systemctl(verb, *units)

    async def _systemctl(self, verb: str, *words: str) -> str:
        import shutil  # loads half a megabyte of archivers that an agent at rest does not need

        program = shutil.which("systemctl", path=self._environ.get("PATH", os.defpath))
        if program is None:
            raise SystemdError("there is no program systemctl on the PATH")
        try:
            ran = await run_process(
                [program, "--no-ask-password", "--no-pager", verb, *words], self._environ, merge=True
            )
        except OSError as error:
            raise SystemdError(f"{program} cannot be started: {error.strerror}") from error
        if ran.code != 0:
            raise SystemdError(f"systemctl {verb} {' '.join(words)} {ran.summary}")
        return ran.stdout
