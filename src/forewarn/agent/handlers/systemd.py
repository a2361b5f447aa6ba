"""systemd handler: stops the running units before the event and starts exactly those after it."""

import os
from collections.abc import Mapping
from pathlib import Path

from forewarn.agent.handlers.base import CallResult, Done, HandlerBase, HandlerContext, Retry
from forewarn.agent.handlers.env import inherited_variables
from forewarn.agent.handlers.programs import HandlerPrograms
from forewarn.agent.handlers.saved_state import SavedStateFile
from forewarn.agent.settings import SystemdSettings
from forewarn.core.base_error import BaseError

RUNNING = frozenset({"active", "activating", "reloading", "refreshing"})
"""The active states of units that have something to stop."""

LOADED = "loaded"


class SystemdError(BaseError):
    """systemctl failed; the message says how."""

    template = "{problem}"
    problem: str


class SystemdHandler(HandlerBase[SystemdSettings]):
    """Stops and starts units with `systemctl`, which must be on the PATH and permitted to do so."""

    def __init__(
        self,
        settings: SystemdSettings,
        directory: Path,
        programs: HandlerPrograms,
        *,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        super().__init__(settings)
        self._programs = programs
        self._environ = inherited_variables(environ)
        self._saved_state = SavedStateFile(directory, settings.name)

    async def prepare(self, context: HandlerContext) -> CallResult:
        """Stop the running units. Units that were already stopped are not started afterwards."""
        self._saved_state.begin()
        try:
            states = await self._states("ActiveState", context)
            running = tuple(unit for unit in states if states[unit] in RUNNING)
            await self._run_units("stop", self._saved_state.save_running(running), context)
        except SystemdError as error:
            return Retry(str(error))
        return Done()

    async def recover(self, context: HandlerContext) -> CallResult:
        """Start the units that were stopped."""
        try:
            await self._run_units("start", self._saved_state.to_restore(self.settings.units), context)
        except SystemdError as error:
            return Retry(str(error))
        self._saved_state.mark_restored()
        return Done()

    async def check(self) -> list[str]:
        """Check that the units exist."""
        try:
            states = await self._states("LoadState")
        except SystemdError as error:
            return [str(error)]
        return [f"systemd has no unit {unit}: {state}" for unit, state in states.items() if state != LOADED]

    async def _states(self, property_name: str, context: HandlerContext | None = None) -> dict[str, str]:
        outputs = {
            unit: await self._systemctl("show", (f"--property={property_name}", unit), context)
            for unit in self.settings.units
        }
        return {unit: text.strip().removeprefix(f"{property_name}=") for unit, text in outputs.items()}

    async def _run_units(self, verb: str, units: tuple[str, ...], context: HandlerContext) -> None:
        if units:
            await self._systemctl(verb, units, context)

    async def _systemctl(self, verb: str, words: tuple[str, ...], context: HandlerContext | None) -> str:
        import shutil  # late: it loads half a megabyte of archive modules that an idle agent does not need

        program = shutil.which("systemctl", path=self._environ.get("PATH", os.defpath))
        if program is None:
            raise SystemdError("systemctl is not on the PATH")
        try:
            argv = [program, "--no-ask-password", "--no-pager", verb, *words]
            ran = await self._programs.run(argv, self._environ, context)
        except OSError as error:
            raise SystemdError(f"cannot start {program}: {error.strerror}") from error
        if ran.code != 0:
            raise SystemdError(f"systemctl {verb} {' '.join(words)} {ran.summary}")
        return ran.stdout
