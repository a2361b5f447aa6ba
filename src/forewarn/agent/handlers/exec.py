"""Programs of the user: one for each half, or a directory of hooks for each phase, which run in the order of names.

| exit code | meaning                                   |
|-----------|-------------------------------------------|
| 0         | done                                      |
| 75        | not now: try again while there is time    |
| other     | failed                                    |
"""

import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from forewarn.agent.handlers.configured import Configured
from forewarn.agent.handlers.environment import event_json, inherited, variables
from forewarn.agent.handlers.port import Again, Done, Ended, Errand, Failed, Phase
from forewarn.agent.handlers.programs import is_runnable, run
from forewarn.agent.settings import ExecSettings
from forewarn.clock import Clock

NOT_NOW = 75
"""EX_TEMPFAIL of sysexits."""

HOOK = re.compile(r"[0-9]{2}-[A-Za-z0-9_-]+(\.[A-Za-z0-9]{1,4})?")
"""What a hook is called. Anything else beside them (README, 10-drain.sh~, .swp) is left alone."""

LEFT_BEHIND = (".bak", ".new", ".old", ".orig", ".rej", ".tmp")

HALVES = (Phase.PREPARE, Phase.RECOVER)


class ExecHandler(Configured[ExecSettings]):
    """Runs the user's programs."""

    def __init__(
        self, settings: ExecSettings, *, environ: Mapping[str, str] = os.environ, clock: Clock | None = None
    ) -> None:
        super().__init__(settings, clock)
        self._environ = inherited(environ)

    async def prepare(self, errand: Errand) -> Ended:
        """Run the program for it, or the hooks."""
        return await self._run_all(self._programs(Phase.PREPARE), errand)

    async def recover(self, errand: Errand) -> Ended:
        """Run the program for it, or the hooks."""
        return await self._run_all(self._programs(Phase.RECOVER), errand)

    async def tell(self, errand: Errand) -> Ended:
        """Run the hooks of a phase that has no half."""
        return Done() if errand.phase in HALVES else await self._tried_again(self._tell_once, errand)

    async def check(self) -> list[str]:
        """Look at every program, without running any."""
        problems = [] if self.settings.hooks is None else _problems_of_directory(self.settings.hooks)
        programs = {argv[0] for phase in Phase for argv in self._programs(phase)}
        return problems + [problem for path in sorted(programs) for problem in _problems_of(Path(path))]

    async def _tell_once(self, errand: Errand) -> Ended:
        return await self._run_all(self._programs(errand.phase), errand)

    def _programs(self, phase: Phase) -> list[Sequence[str]]:
        if self.settings.hooks is not None:
            return [[str(path)] for path in hooks_of(self.settings.hooks, phase)]
        own = {Phase.PREPARE: self.settings.prepare, Phase.RECOVER: self.settings.recover}.get(phase)
        return [own] if own else []

    async def _run_all(self, programs: list[Sequence[str]], errand: Errand) -> Ended:
        """Run one after the other; the first that is not done ends it, and another try begins anew."""
        for argv in programs:
            ended = await self._run(argv, errand)
            if not isinstance(ended, Done):
                return ended
        return Done()

    async def _run(self, argv: Sequence[str], errand: Errand) -> Ended:
        environ = self._environ | variables(errand, self._clock.now())
        try:
            ran = await run(argv, environ, event_json(errand.event))
        except (OSError, ValueError) as error:
            return Failed(f"{argv[0]} cannot be started: {error}")
        if ran.code == 0:
            return Done()
        why = f"{Path(argv[0]).name} {ran.how}"
        return Again(why) if ran.code == NOT_NOW else Failed(why)


def hooks_of(directory: Path, phase: Phase) -> list[Path]:
    """Return the hooks of a phase in their order; none where there is no directory for it."""
    try:
        names = sorted(path.name for path in (directory / phase.value).iterdir())
    except OSError:
        return []
    return [directory / phase.value / name for name in names if _is_hook(name)]


def _is_hook(name: str) -> bool:
    return HOOK.fullmatch(name) is not None and not name.endswith(LEFT_BEHIND)


def _problems_of_directory(directory: Path) -> list[str]:
    try:
        found = sorted(path.name for path in directory.iterdir() if path.is_dir())
    except OSError as error:
        return [f"{directory} cannot be read: {error.strerror}"]
    phases = [phase.value for phase in Phase]
    return [
        f"{directory / name}: there is no phase {name}; use {', '.join(phases)}" for name in found if name not in phases
    ]


def _problems_of(program: Path) -> list[str]:
    if problem := is_runnable(program):
        return [problem]
    if program.stat().st_mode & stat.S_IWOTH:
        return [f"{program} can be changed by everybody on this machine: chmod o-w {program}"]
    return []
