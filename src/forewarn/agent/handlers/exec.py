"""Exec handler: runs the user's programs, one per handler call, or a directory of hooks per phase, in name order.

| exit code | meaning                                   |
|-----------|-------------------------------------------|
| 0         | done                                      |
| 75        | temporary failure: retry                  |
| other     | failed                                    |
"""

import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from forewarn.agent.handlers.base import CallResult, Done, Failed, HandlerBase, HandlerContext, Phase, Retry
from forewarn.agent.handlers.env import event_json, event_variables, inherited_variables
from forewarn.agent.handlers.programs import HandlerPrograms
from forewarn.agent.settings import ExecSettings, RecoverMode
from forewarn.clock import Clock
from forewarn.process import check_program

EX_TEMPFAIL = 75
"""EX_TEMPFAIL of sysexits.h."""

HOOK = re.compile(r"[0-9]{2}-[A-Za-z0-9_-]+(\.[A-Za-z0-9]{1,4})?")
"""Pattern of hook names. Other files in the directory (README, 10-drain.sh~, .swp) are ignored."""

BACKUP_SUFFIXES = (".bak", ".new", ".old", ".orig", ".rej", ".tmp")

CALL_PHASES = (Phase.PREPARE, Phase.RECOVER)


class ExecHandler(HandlerBase[ExecSettings]):
    """Runs the user's programs."""

    def __init__(
        self,
        settings: ExecSettings,
        programs: HandlerPrograms,
        *,
        environ: Mapping[str, str] = os.environ,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(settings, clock)
        self._programs = programs
        self._environ = inherited_variables(environ)

    @property
    def recovers_at_most_once(self) -> bool:
        """Whether a recover call is not repeated once it may have done something."""
        return self.settings.recovery is RecoverMode.AT_MOST_ONCE

    async def prepare(self, context: HandlerContext) -> CallResult:
        """Run the program of this call, or the hooks of the phase."""
        return await self._run_all(self._programs_of(Phase.PREPARE), context)

    async def recover(self, context: HandlerContext) -> CallResult:
        """Run the program of this call, or the hooks of the phase."""
        return await self._run_all(self._programs_of(Phase.RECOVER), context)

    async def notify(self, context: HandlerContext) -> CallResult:
        """Run the hooks of a phase that has no handler call."""
        return Done() if context.phase in CALL_PHASES else await self._retry(self._notify_once, context)

    async def check(self) -> list[str]:
        """Check every program without running it."""
        problems = [] if self.settings.hooks is None else _check_directory(self.settings.hooks)
        programs = {argv[0] for phase in Phase for argv in self._programs_of(phase)}
        return problems + [problem for path in sorted(programs) for problem in _check_program(Path(path))]

    async def _notify_once(self, context: HandlerContext) -> CallResult:
        return await self._run_all(self._programs_of(context.phase), context)

    def _programs_of(self, phase: Phase) -> list[Sequence[str]]:
        if self.settings.hooks is not None:
            return [[str(path)] for path in hooks_of(self.settings.hooks, phase)]
        own = {Phase.PREPARE: self.settings.prepare, Phase.RECOVER: self.settings.recover}.get(phase)
        return [own] if own else []

    async def _run_all(self, programs: list[Sequence[str]], context: HandlerContext) -> CallResult:
        """Run the programs one after the other and stop at the first failure. A retry starts with the first again."""
        for argv in programs:
            result = await self._run(argv, context)
            if not isinstance(result, Done):
                return result
        return Done()

    async def _run(self, argv: Sequence[str], context: HandlerContext) -> CallResult:
        environ = self._environ | event_variables(context, self._clock.now())
        try:
            ran = await self._programs.run(argv, environ, context, event_json(context.event))
        except (OSError, ValueError) as error:
            reason = f"cannot start {argv[0]}: {error}"
            # It has not run, so that even a recovery that runs at most once may be tried again.
            return Retry(reason) if self.recovers_at_most_once else Failed(reason)
        if ran.code == 0:
            return Done()
        reason = f"{Path(argv[0]).name} {ran.summary}"
        return Retry(reason) if ran.code == EX_TEMPFAIL else Failed(reason)


def hooks_of(directory: Path, phase: Phase) -> list[Path]:
    """Return the hooks of a phase in name order; none without a directory for the phase."""
    try:
        names = sorted(path.name for path in (directory / phase.value).iterdir())
    except OSError:
        return []
    return [directory / phase.value / name for name in names if _is_hook(name)]


def _is_hook(name: str) -> bool:
    return HOOK.fullmatch(name) is not None and not name.endswith(BACKUP_SUFFIXES)


def _check_directory(directory: Path) -> list[str]:
    try:
        found = sorted(path.name for path in directory.iterdir() if path.is_dir())
    except OSError as error:
        return [f"cannot read {directory}: {error.strerror}"]
    phases = [phase.value for phase in Phase]
    return [
        f"{directory / name}: unknown phase {name}; use {', '.join(phases)}" for name in found if name not in phases
    ]


def _check_program(program: Path) -> list[str]:
    if problem := check_program(program):
        return [problem]
    if program.stat().st_mode & stat.S_IWOTH:
        return [f"{program} is world-writable: chmod o-w {program}"]
    return []
