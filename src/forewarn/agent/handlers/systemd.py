"""Units of systemd: those that run are stopped before the event, and just those are started after it."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from forewarn.agent.handlers.configured import Configured
from forewarn.agent.handlers.environment import inherited
from forewarn.agent.handlers.port import Again, Done, Ended, Errand
from forewarn.agent.handlers.programs import Ran, run
from forewarn.agent.handlers.remembered import Remembered
from forewarn.agent.settings import SystemdSettings

RUNNING = frozenset({"active", "activating", "reloading", "refreshing"})
"""What systemd calls units that have something to stop."""

LOADED = "loaded"


class SystemdHandler(Configured[SystemdSettings]):
    """Stops and starts units by `systemctl`, which has to be on the PATH, and to be allowed to do so."""

    def __init__(self, settings: SystemdSettings, directory: Path, *, environ: Mapping[str, str] = os.environ) -> None:
        super().__init__(settings)
        self._environ = inherited(environ)
        self._remembered = Remembered(directory, settings.name)

    async def prepare(self, errand: Errand) -> Ended:
        """Stop what runs. What stands still already, for another reason, stays so afterwards."""
        del errand
        try:
            states = {unit: await self._state(unit, "ActiveState") for unit in self.settings.units}
            running = self._remembered.found(tuple(unit for unit in states if states[unit] in RUNNING))
            return await self._all("stop", running)
        except OSError as error:
            return Again(_not_there(error))

    async def recover(self, errand: Errand) -> Ended:
        """Start what was stopped."""
        del errand
        try:
            ended = await self._all("start", self._remembered.to_restore(self.settings.units))
        except OSError as error:
            return Again(_not_there(error))
        if isinstance(ended, Done):
            self._remembered.restored()
        return ended

    async def check(self) -> list[str]:
        """Ask whether there are such units."""
        if shutil.which("systemctl", path=self._environ.get("PATH")) is None:
            return ["there is no program systemctl on the PATH"]
        try:
            states = {unit: await self._state(unit, "LoadState") for unit in self.settings.units}
        except OSError as error:
            return [_not_there(error)]
        return [
            f"systemd has no unit {unit}: {state or 'no answer'}" for unit, state in states.items() if state != LOADED
        ]

    async def _all(self, verb: str, units: tuple[str, ...]) -> Ended:
        if not units:
            return Done()
        ran = await self._systemctl(verb, *units)
        return Done() if ran.code == 0 else Again(f"systemctl {verb} {' '.join(units)} {ran.how}")

    async def _state(self, unit: str, of: str) -> str:
        ran = await self._systemctl("show", f"--property={of}", unit)
        return ran.printed.strip().removeprefix(f"{of}=") if ran.code == 0 else ""

    async def _systemctl(self, verb: str, *words: str) -> Ran:
        program = shutil.which("systemctl", path=self._environ.get("PATH")) or "systemctl"
        return await run([program, "--no-ask-password", "--no-pager", verb, *words], self._environ)


def _not_there(error: OSError) -> str:
    return f"systemctl cannot be started: {error.strerror or error}"
