"""Units of systemd: those that run are stopped before the event, and just those are started after it."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from forewarn.agent.handlers.configured import Configured
from forewarn.agent.handlers.environment import inherited
from forewarn.agent.handlers.port import Again, Done, Ended, Errand
from forewarn.agent.handlers.programs import run
from forewarn.agent.handlers.remembered import Remembered
from forewarn.agent.settings import SystemdSettings

RUNNING = frozenset({"active", "activating", "reloading", "refreshing"})
"""What systemd calls units that have something to stop."""

LOADED = "loaded"


class SystemctlFailed(Exception):
    """systemctl did not do what it was asked for; the message says how it ended."""


class SystemdHandler(Configured[SystemdSettings]):
    """Stops and starts units by `systemctl`, which has to be on the PATH, and to be allowed to do so."""

    def __init__(self, settings: SystemdSettings, directory: Path, *, environ: Mapping[str, str] = os.environ) -> None:
        super().__init__(settings)
        self._environ = inherited(environ)
        self._remembered = Remembered(directory, settings.name)

    async def prepare(self, errand: Errand) -> Ended:
        """Stop what runs. What stands still already, for another reason, stays so afterwards."""
        del errand
        self._remembered.begin()
        try:
            states = await self._states("ActiveState")
            await self._all("stop", self._remembered.found(tuple(unit for unit in states if states[unit] in RUNNING)))
        except SystemctlFailed as error:
            return Again(str(error))
        return Done()

    async def recover(self, errand: Errand) -> Ended:
        """Start what was stopped."""
        del errand
        try:
            await self._all("start", self._remembered.to_restore(self.settings.units))
        except SystemctlFailed as error:
            return Again(str(error))
        self._remembered.restored()
        return Done()

    async def check(self) -> list[str]:
        """Ask whether there are such units."""
        try:
            states = await self._states("LoadState")
        except SystemctlFailed as error:
            return [str(error)]
        return [f"systemd has no unit {unit}: {state}" for unit, state in states.items() if state != LOADED]

    async def _states(self, of: str) -> dict[str, str]:
        said = {unit: await self._systemctl("show", f"--property={of}", unit) for unit in self.settings.units}
        return {unit: text.strip().removeprefix(f"{of}=") for unit, text in said.items()}

    async def _all(self, verb: str, units: tuple[str, ...]) -> None:
        if units:
            await self._systemctl(verb, *units)

    async def _systemctl(self, verb: str, *words: str) -> str:
        program = shutil.which("systemctl", path=self._environ.get("PATH", os.defpath))
        if program is None:
            raise SystemctlFailed("there is no program systemctl on the PATH")
        try:
            ran = await run([program, "--no-ask-password", "--no-pager", verb, *words], self._environ)
        except OSError as error:
            raise SystemctlFailed(f"{program} cannot be started: {error.strerror}") from error
        if ran.code != 0:
            raise SystemctlFailed(f"systemctl {verb} {' '.join(words)} {ran.how}")
        return ran.printed
