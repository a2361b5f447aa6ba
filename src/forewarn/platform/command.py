"""Command platform: runs the operator's program for each impact, and probes it after a crash.

| phase     | exit 0                              | exit 75         | other codes |
|-----------|-------------------------------------|-----------------|-------------|
| carry-out | done; Redeploy: last line is a host | try again later | failed      |
| probe     | done; Redeploy: last line is a host | not begun       | unknown     |
"""

import asyncio
import logging
import os
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import msgspec

from forewarn.clock import SystemClock
from forewarn.core.backoff import pause_after
from forewarn.core.duration import format_duration
from forewarn.core.errors import Invalid
from forewarn.core.event_type import EVENT_TYPES
from forewarn.core.impact import Done, Failed, ImpactOutcome, NotStarted, Retry, Unknown
from forewarn.platform.limiter import ConcurrencyLimiter, SlotTimeout
from forewarn.platform.port import Work
from forewarn.platform.processes import BackgroundProcess, ProcessFiles
from forewarn.process import ProcessResult
from forewarn.settings.schema import CommandSettings
from forewarn.settings.types import VARIABLE_PREFIX

log = logging.getLogger(__name__)

EX_TEMPFAIL = 75
"""EX_TEMPFAIL of sysexits.h: in a probe it means that the work has not begun."""

MAX_TRACKED = 10_000
"""For how many impacts the discounted attempts are remembered, so that a person's retry has all attempts again."""

QUEUE_TIMEOUT = 3600.0
"""How long, in seconds, work waits for a free slot before it is postponed. It has not begun, and must not seem so."""

SERVICE_VARIABLES = (VARIABLE_PREFIX, "LISTEN_", "WATCHDOG_", "NOTIFY_SOCKET")
"""Prefixes of the service's own environment variables, which programs do not get."""


class CommandPhase(StrEnum):
    """The phases of the program."""

    CARRY_OUT = "carry-out"
    PROBE = "probe"


class ProcessTimeout(NamedTuple):
    """The program took too long and was ended."""

    limit: timedelta
    result: ProcessResult


class CommandPlatform:
    """Runs the program for each impact, a few at a time. A running program is not ended with the service."""

    def __init__(self, settings: CommandSettings, directory: Path, environ: Mapping[str, str] = os.environ) -> None:
        self.settings = settings
        self._directory = directory
        self._environ = {name: value for name, value in environ.items() if not name.startswith(SERVICE_VARIABLES)}
        self._limiter = ConcurrencyLimiter(settings.at_once)
        self._discounted: dict[str, int] = {}

    @property
    def repeatable(self) -> bool:
        """Whether, by the settings, running the program again does no harm."""
        return self.settings.repeatable

    def reload(self, settings: CommandSettings) -> None:
        """Apply new settings; running programs keep theirs."""
        self.settings = settings
        self._limiter.set_limit(settings.at_once)

    async def carry_out(self, work: Work) -> ImpactOutcome:
        """Run the program and return the outcome."""
        try:
            async with self._limiter.slot(QUEUE_TIMEOUT):
                ran = await self._run(work, CommandPhase.CARRY_OUT, self.settings.time_limit)
        except SlotTimeout:
            return self._postpone(work)
        except OSError as error:
            why = f"{self._program} cannot be started: {error.strerror} ({self._path})"
            return self._failed(work, why, unavailable=True)
        outcome = self._outcome(work, ran) if isinstance(ran, ProcessResult) else await self._handle_timeout(work, ran)
        self._files(work, CommandPhase.CARRY_OUT).remove()
        return outcome

    async def probe(self, work: Work) -> Done | NotStarted | Unknown:
        """Wait for the program of an earlier service process if it still runs, then probe."""
        outcome = await self._run_probe(work, await self._wait_for_previous(work))
        self._files(work, CommandPhase.CARRY_OUT).remove()
        return outcome

    @property
    def _path(self) -> str:
        return self.settings.program[0]

    @property
    def _program(self) -> str:
        """The program's name in messages, which must be short."""
        return Path(self._path).name

    def _files(self, work: Work, phase: CommandPhase) -> ProcessFiles:
        return ProcessFiles(self._directory, f"{work.event}.{work.vm}.{phase}")

    async def _run(self, work: Work, phase: CommandPhase, limit: timedelta) -> ProcessResult | ProcessTimeout:
        """Start the program and wait for its end or its time limit."""
        with self._start(work, phase) as process:
            try:
                async with asyncio.timeout(limit.total_seconds()):
                    return await process.wait()
            except TimeoutError:
                return ProcessTimeout(limit, await process.terminate())

    def _start(self, work: Work, phase: CommandPhase) -> BackgroundProcess:
        self._directory.mkdir(mode=0o700, exist_ok=True)
        return BackgroundProcess.start(
            self.settings.program,
            self._environ | variables(work, phase),
            msgspec.json.encode(program_input(work, phase)),
            self._files(work, phase),
            attempt=work.attempt,
            now=SystemClock().now(),
        )

    async def _wait_for_previous(self, work: Work) -> str:
        """Wait for a program that outlived its service process; return its output."""
        found = BackgroundProcess.find(self._files(work, CommandPhase.CARRY_OUT))
        if found is None:
            return ""
        with found as process:
            if process.note.attempt != work.attempt:
                return ""
            left = process.time_left(self.settings.time_limit, SystemClock().now())
            try:
                async with asyncio.timeout(left.total_seconds()):
                    return output_text(await process.wait())
            except TimeoutError:
                log.warning("%s took too long for %s and was ended", self._program, work.id)
                return output_text(await process.terminate())

    async def _handle_timeout(self, work: Work, expired: ProcessTimeout) -> ImpactOutcome:
        """Probe after a timeout, as after a crash: a program that was ended may have done the work or not."""
        why = f"{self._program} took longer than {format_duration(expired.limit)} and was ended"
        match await self._run_probe(work, output_text(expired.result)):
            case Done() as done:
                return done
            case NotStarted():
                return self._failed(work, f"{why}; the work had not begun", output_text(expired.result))
            case Unknown(output=output):
                self._reset_attempts(work)
                return Unknown(f"{why}; whether the work was done is unknown", output)

    async def _run_probe(self, work: Work, earlier_output: str) -> Done | NotStarted | Unknown:
        """Probe whether the work was done; `earlier_output` is the output of the program that did it."""
        try:
            async with self._limiter.slot():
                ran = await self._run(work, CommandPhase.PROBE, self.settings.probe_limit)
        except OSError as error:
            return Unknown(f"cannot probe with {self._program}: {error.strerror} ({self._path})", earlier_output)
        finally:
            self._files(work, CommandPhase.PROBE).remove()
        if isinstance(ran, ProcessTimeout):
            return Unknown(
                f"{self._program} did not answer within {format_duration(ran.limit)}",
                earlier_output + output_text(ran.result),
            )
        return self._probe_result(work, ran, earlier_output)

    def _outcome(self, work: Work, result: ProcessResult) -> ImpactOutcome:
        output = output_text(result)
        if result.code == 0:
            try:
                done = Done(new_host(work, result), output)
            except Invalid as error:
                why = "correct the VM's host, then resolve the event as done"
                return self._failed(work, f"{self._program} succeeded, but {error}: {why}", output)
            self._discounted.pop(work.id, None)
            return done
        why = f"{self._program} {result.summary}"
        return self._retry_later(work, why, output) if result.code == EX_TEMPFAIL else self._failed(work, why, output)

    def _retry_later(self, work: Work, why: str, output: str) -> Retry | Failed:
        """Retry the work later, with exponential backoff, up to the limit of attempts."""
        tries = work.attempt - self._discounted.get(work.id, 0)
        if tries >= self.settings.attempts:
            why = f"{why}, in attempt {tries} of {self.settings.attempts}"
            return self._failed(work, why, output, unavailable=True)
        pause = pause_after(tries, self.settings.first_pause, self.settings.longest_pause)
        return Retry(pause, why, output, unavailable=True)

    def _failed(self, work: Work, why: str, output: str = "", *, unavailable: bool = False) -> Failed:
        self._reset_attempts(work)
        return Failed(why, output, unavailable)

    def _reset_attempts(self, work: Work) -> None:
        """Count the attempts from the start again, after an operator's retry."""
        self._discount_attempts(work, count=work.attempt)

    def _postpone(self, work: Work) -> Retry:
        """Postpone work that has not begun; this does not count as an attempt."""
        self._discount_attempts(work, count=self._discounted.get(work.id, 0) + 1)
        return Retry(self.settings.first_pause, f"the limit of {self.settings.at_once} running programs is reached")

    def _discount_attempts(self, work: Work, *, count: int) -> None:
        self._discounted[work.id] = count
        while len(self._discounted) > MAX_TRACKED:
            del self._discounted[next(iter(self._discounted))]

    def _probe_result(self, work: Work, result: ProcessResult, earlier_output: str) -> Done | NotStarted | Unknown:
        output = earlier_output + output_text(result)
        if result.code == EX_TEMPFAIL:
            return NotStarted()
        if result.code != 0:
            return Unknown(f"the probe by {self._program} {result.summary}", output)
        try:
            return Done(new_host(work, result), output)
        except Invalid as error:
            return Unknown(f"{self._program} reports success, but {error}", output)


def program_input(work: Work, phase: CommandPhase) -> dict[str, object]:
    """Return the JSON for the program's standard input."""
    seconds = None if work.duration is None else work.duration.total_seconds()
    return {
        "phase": phase,
        "impact": work.id,
        "attempt": work.attempt,
        "event": {
            "id": work.event,
            "type": work.type,
            "description": work.description,
            "duration_seconds": seconds,
        },
        "vm": {"scope": work.scope, "name": work.vm, "vm_id": work.vm_id, "host": work.host},
    }


def variables(work: Work, phase: CommandPhase) -> dict[str, str]:
    """Return the same as environment variables; unknown values are empty."""
    seconds = "" if work.duration is None else f"{work.duration.total_seconds():g}"
    values = {
        "PHASE": phase.value,
        "IMPACT": work.id,
        "ATTEMPT": str(work.attempt),
        "EVENT_ID": work.event,
        "EVENT_TYPE": work.type.value,
        "EVENT_DURATION": seconds,
        "EVENT_DESCRIPTION": "".join(char if char.isprintable() else " " for char in work.description),
        "SCOPE": work.scope,
        "VM": work.vm,
        "VM_ID": work.vm_id,
        "HOST": work.host or "",
    }
    return {VARIABLE_PREFIX + name: value for name, value in values.items()}


def new_host(work: Work, result: ProcessResult) -> str | None:
    """Return the last line that a Redeploy printed, if any: the VM's new host."""
    if not EVENT_TYPES[work.type].moves_vm:
        return None
    lines = result.stdout.strip().splitlines()
    return Done(lines[-1].strip()).host if lines else None


def output_text(result: ProcessResult) -> str:
    """Return the output, stdout first."""
    return "".join(f"{text.rstrip()}\n" for text in (result.stdout, result.stderr) if text.strip())
