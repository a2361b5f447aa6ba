"""Runs of scenarios in this emulator: one at a time, in a thread of its own; the newest are kept in memory.

A scenario uses the service as any client does: through the operator API and the guest endpoints, on behalf of the
caller who plays it. What plays it is not part of the service, so it comes through the port `ScenarioPlayer`.
"""

import asyncio
import logging
import secrets
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial

import msgspec

from forewarn.api import v1
from forewarn.api.client import ServiceAddress
from forewarn.core.duration import format_duration
from forewarn.core.idempotency import IdempotencyKey, ResultMemory
from forewarn.core.journal import EntryKind
from forewarn.fleet.errors import FleetError
from forewarn.fleet.service import Fleet
from forewarn.fleet.tokens import Token
from forewarn.operator.auth import Caller
from forewarn.operator.clock_view import show_clock
from forewarn.operator.errors import EmulatorNotRunning, ScenarioConflict, ScenarioRefused, ScenarioRunNotFound
from forewarn.operator.scenario_player import (
    MAX_RUN_TIME,
    LoadPlayer,
    PreparedScenario,
    ScenarioOutcome,
    ScenarioPlayer,
)

log = logging.getLogger(__name__)

MAX_RUNS = 20
"""How many runs are kept, the newest."""

CANCEL_SECONDS = 30.0
"""How long to wait until a run that is canceled has removed what it added."""


class ScenarioRun:
    """One run, from its start to its verdict. Any number of clients can follow it."""

    def __init__(self, id_: str, name: str, scenario: PreparedScenario, by: Caller, created_at: datetime) -> None:
        self.id, self.name, self.scenario, self.by = id_, name, scenario, by
        self.secret = secrets.token_urlsafe(32)
        """Lets the scenario use the API on behalf of the caller while it plays."""
        self.steps: list[v1.ScenarioStep] = []
        self._created_at = created_at
        self._ended_at: datetime | None = None
        self._outcome: ScenarioOutcome | None = None
        self._current: str | None = None
        self._scopes: tuple[str, ...] = ()
        self._loop = asyncio.get_running_loop()
        self._began, self._took = self._loop.time(), 0.0
        self._revision = 0
        self._changed = asyncio.Event()

    @property
    def verdict(self) -> v1.ScenarioVerdict | None:
        """The verdict; None while it plays."""
        return None if self._outcome is None else self._outcome.verdict

    @property
    def reason(self) -> str:
        """Why it is invalid or was canceled."""
        return "" if self._outcome is None else self._outcome.reason

    def began(self, step: str) -> None:
        """Report the step that begins, from the thread that plays it."""
        self._loop.call_soon_threadsafe(self._begin, step)

    def ended(self, step: v1.ScenarioStep, scopes: Sequence[str]) -> None:
        """Report the result of a step, from the thread that plays it."""
        self._loop.call_soon_threadsafe(self._add, step, tuple(scopes))

    def finish(self, outcome: ScenarioOutcome, at: datetime) -> None:
        """Set the verdict."""
        self._outcome, self._ended_at, self._current = outcome, at, None
        self._took = self._loop.time() - self._began
        self._notify()

    def _begin(self, step: str) -> None:
        self._current = step
        self._notify()

    def _add(self, step: v1.ScenarioStep, scopes: tuple[str, ...]) -> None:
        self.steps.append(step)
        self._current, self._scopes = None, scopes
        self._notify()

    def _notify(self) -> None:
        self._revision += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_changed(self, revision: int, seconds: float) -> None:
        """Return when the run has a newer revision or has ended, or after this time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._revision <= revision and self.verdict is None:
                    await self._changed.wait()

    async def wait_ended(self, seconds: float) -> None:
        """Return when the run has ended, or after this time."""
        await self.wait_changed(sys.maxsize, seconds)

    def summary(self) -> v1.ScenarioRunSummary:
        """Return the run without its steps."""
        seconds = self._loop.time() - self._began if self.verdict is None else self._took
        return v1.ScenarioRunSummary(
            id=self.id,
            name=self.name,
            title=self.scenario.title,
            verdict=self.verdict,
            reason=self.reason,
            step_count=self.scenario.step_count,
            finished_step_count=len(self.steps),
            current_step=self._current,
            scopes=self._scopes,
            created_by=self.by.name,
            created_at=self._created_at,
            ended_at=self._ended_at,
            seconds=round(seconds, 3),
            revision=self._revision,
        )

    def show(self) -> v1.ScenarioRun:
        """Return the run with its steps."""
        return v1.ScenarioRun(**msgspec.structs.asdict(self.summary()), steps=tuple(self.steps))


class ScenarioRuns:
    """Plays scenarios one at a time, because each moves the clock of the whole fleet."""

    def __init__(
        self,
        fleet: Fleet,
        load_player: LoadPlayer | None = None,
        find_address: Callable[[str], ServiceAddress] | None = None,
    ) -> None:
        self._fleet = fleet
        self._load_player = load_player
        self._find_address = find_address
        self._runs: dict[str, ScenarioRun] = {}
        self._number = 0
        self._results = ResultMemory[ScenarioRun]()
        self._lock = asyncio.Lock()

    @property
    def has_player(self) -> bool:
        """Whether scenarios can be played at all."""
        return self._load_player is not None

    @property
    def current(self) -> ScenarioRun | None:
        """The run that plays."""
        newest = next(reversed(self._runs.values()), None)
        return newest if newest is not None and newest.verdict is None else None

    def all(self) -> list[ScenarioRun]:
        """Return the runs, newest first."""
        return list(reversed(self._runs.values()))

    def find(self, id_: str) -> ScenarioRun:
        """Return a run; raise ScenarioRunNotFound."""
        if id_ not in self._runs:
            raise ScenarioRunNotFound(id_, MAX_RUNS)
        return self._runs[id_]

    def find_token(self, secret: str) -> Token | None:
        """Return the token on behalf of which the scenario with this secret plays, while it is valid."""
        run = self.current
        if run is None or not secrets.compare_digest(run.secret.encode(), secret.encode()):
            return None
        return self._fleet.tokens.find_by_id(run.by.token)

    async def scenarios(self) -> Sequence[v1.Scenario]:
        """Return the scenarios that ship with Forewarn."""
        return await asyncio.to_thread((await self._require_player()).scenarios, show_clock(self._fleet))

    async def play(
        self, request: v1.PlayScenario, *, by: Caller, idempotency_key: IdempotencyKey | None = None
    ) -> ScenarioRun:
        """Start a run; it is in the journal on return. A repeated request returns the same run."""
        player = await self._require_player()
        async with self._lock:
            if (previous := self._results.find(idempotency_key)) is not None:
                return previous
            if (current := self.current) is not None:
                raise ScenarioConflict(current.name, current.by.name, current.id)
            scenario = await asyncio.to_thread(player.prepare, request.name, request.text)
            if (problem := await asyncio.to_thread(scenario.problem, show_clock(self._fleet))) is not None:
                raise ScenarioRefused(request.name, problem)
            run = ScenarioRun(f"S{self._number + 1}", request.name, scenario, by, self._fleet.clock.now())
            await self._fleet.emulator.journal.record(EntryKind.SCENARIO_STARTED, by=by.name, facts=_facts(run))
            self._number += 1
            self._runs[run.id] = run
            if len(self._runs) > MAX_RUNS:
                del self._runs[next(iter(self._runs))]
            self._fleet.start_task(self._play(run), name=f"scenario {run.id}")
            self._results.add(idempotency_key, run)
            return run

    async def cancel(self, id_: str, *, by: str, reason: str = "") -> ScenarioRun:
        """Cancel a run, and return it when it has removed what it added. A run that has ended stays as it is."""
        run = self.find(id_)
        if run.verdict is None:
            run.scenario.cancel(f"canceled by {by}" + (f": {reason}" if reason else ""))
            await run.wait_ended(CANCEL_SECONDS)
        return run

    async def close(self) -> None:
        """Cancel the run that plays, before the service stops."""
        if (run := self.current) is not None:
            run.scenario.cancel("the service is stopping")
            await run.wait_ended(CANCEL_SECONDS)

    async def _require_player(self) -> ScenarioPlayer:
        """Return the player, which takes a moment to load."""
        if self._load_player is None:
            raise EmulatorNotRunning
        return await asyncio.to_thread(self._load_player)

    async def _play(self, run: ScenarioRun) -> None:
        limit = asyncio.get_running_loop().call_later(
            MAX_RUN_TIME.total_seconds(), run.scenario.cancel, f"it took longer than {format_duration(MAX_RUN_TIME)}"
        )
        outcome = ScenarioOutcome(v1.ScenarioVerdict.CANCELED, "the service has stopped")
        try:
            outcome = await self._play_in_thread(run)
        except Exception as error:
            log.exception("internal error in scenario run %s", run.id)
            outcome = ScenarioOutcome(v1.ScenarioVerdict.INVALID, f"internal error, see the log: {error!r}")
        finally:
            limit.cancel()
            run.finish(outcome, self._fleet.clock.now())
        facts = {**_facts(run), "verdict": outcome.verdict.value}
        try:
            await self._fleet.emulator.journal.record(
                EntryKind.SCENARIO_ENDED, by=run.by.name, facts=facts, why=outcome.reason[:512]
            )
        except FleetError as error:
            log.warning("could not save the end of scenario run %s: %s", run.id, error)

    async def _play_in_thread(self, run: ScenarioRun) -> ScenarioOutcome:
        """Play the scenario in a thread that a stopping process need not wait for."""
        if self._find_address is None:
            raise EmulatorNotRunning
        loop = asyncio.get_running_loop()
        done: asyncio.Future[ScenarioOutcome] = loop.create_future()
        address = self._find_address(run.secret)

        def play() -> None:
            try:
                end = partial(done.set_result, run.scenario.play(address, run))
            except Exception as error:  # noqa: BLE001 - raised again in the event loop
                end = partial(done.set_exception, error)
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(lambda: None if done.done() else end())

        threading.Thread(target=play, name=f"forewarn-scenario-{run.id}", daemon=True).start()
        return await done


def _facts(run: ScenarioRun) -> dict[str, str]:
    return {"run": run.id, "scenario": run.name}
