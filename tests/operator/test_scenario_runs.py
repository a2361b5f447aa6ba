"""Runs of scenarios: one at a time, on behalf of the caller, canceled with the service, and bounded."""

import asyncio
from datetime import timedelta

import pytest

from forewarn.api import v1
from forewarn.api.client import ServiceAddress
from forewarn.core.access import Role
from forewarn.core.errors import KeyConflict
from forewarn.core.idempotency import IdempotencyKey
from forewarn.core.journal import EntryKind
from forewarn.operator import scenario_runs
from forewarn.operator.auth import caller_of
from forewarn.operator.errors import ScenarioConflict, ScenarioNotFound, ScenarioRefused, ScenarioRunNotFound
from forewarn.operator.scenario_runs import MAX_RUNS, ScenarioRuns
from forewarn.store.port import JournalQuery, JournalRow
from tests.operator.running_api import GUARD, RunningApi, run_api
from tests.operator.sample_scenario import SteppedPlayer, SteppedScenario

PLAY = v1.PlayScenario(name="sample")


def runs_of(service: RunningApi, scenario: SteppedScenario) -> ScenarioRuns:
    """Return the runs of a service; the scenario uses another one, which knows the secret of the run."""
    return ScenarioRuns(
        service.fleet,
        lambda: SteppedPlayer(scenario),
        lambda secret: ServiceAddress(service.url, "a-token-for-tests" if secret else ""),
    )


async def test_run_is_followed_to_its_verdict_and_journaled() -> None:
    async with run_api() as service:
        scenario = SteppedScenario()
        runs = runs_of(service, scenario)
        (token,) = service.fleet.tokens.all()
        run = await runs.play(PLAY, by=caller_of(token))
        await run.wait_changed(0, GUARD)
        assert (run.summary().current_step, run.summary().finished_step_count) == ("step 1", 0)
        before = run.summary().revision
        scenario.release(2)
        while run.verdict is None:
            await run.wait_changed(before, GUARD)
            before = run.summary().revision
        await run.wait_ended(GUARD)
        shown = run.show()
        rows: list[JournalRow] = []
        while len(rows) < 2:  # the end is journaled just after the verdict
            rows = await service.store.journal(
                JournalQuery(kinds=(EntryKind.SCENARIO_STARTED, EntryKind.SCENARIO_ENDED))
            )
            await asyncio.sleep(0)
    assert (shown.verdict, [step.line for step in shown.steps], shown.scopes) == ("passed", [1, 2], ("web-2",))
    assert [(row.entry.by, row.entry.facts) for row in rows] == [
        ("admin", {"run": "S1", "scenario": "sample"}),
        ("admin", {"run": "S1", "scenario": "sample", "verdict": "passed"}),
    ]


async def test_one_scenario_plays_at_a_time_and_a_repeated_request_gets_its_run() -> None:
    async with run_api() as service:
        scenario = SteppedScenario()
        runs, (token,) = runs_of(service, scenario), service.fleet.tokens.all()
        caller, key = caller_of(token), IdempotencyKey("k", "d", token.id)
        run = await runs.play(PLAY, by=caller, idempotency_key=key)
        assert await runs.play(PLAY, by=caller, idempotency_key=key) is run
        with pytest.raises(KeyConflict):
            await runs.play(PLAY, by=caller, idempotency_key=IdempotencyKey("k", "other", token.id))
        with pytest.raises(ScenarioConflict):
            await runs.play(PLAY, by=caller)
        assert await runs.cancel(run.id, by="ann", reason="enough") is run
        assert (run.verdict, run.reason) == (v1.ScenarioVerdict.CANCELED, "canceled by ann: enough")
        assert (await runs.cancel(run.id, by="bob")).reason == "canceled by ann: enough"


async def test_scenario_acts_for_the_caller_while_it_plays() -> None:
    """Its secret is of no use before, after, or when the caller's token is revoked."""
    async with run_api() as service:
        scenario = SteppedScenario()
        runs = runs_of(service, scenario)
        await service.token("ann", Role.OPERATOR)
        token = next(each for each in service.fleet.tokens.all() if each.name == "ann")
        run = await runs.play(PLAY, by=caller_of(token))
        assert runs.find_token(run.secret) == token
        assert runs.find_token("wrong") is None
        await service.fleet.tokens.revoke(token.id, by="test")
        assert runs.find_token(run.secret) is None
        await runs.close()
        assert (run.verdict, run.reason) == (v1.ScenarioVerdict.CANCELED, "the service is stopping")
        assert runs.find_token(run.secret) is None


async def test_wrong_requests_start_nothing() -> None:
    async with run_api() as service:
        (token,) = service.fleet.tokens.all()
        runs = runs_of(service, SteppedScenario(problem="it needs more"))
        for request, error in ((PLAY, ScenarioRefused), (v1.PlayScenario(name="other"), ScenarioNotFound)):
            with pytest.raises(error):
                await runs.play(request, by=caller_of(token))
        with pytest.raises(ScenarioRunNotFound):
            runs.find("S1")
        assert (runs.all(), runs.current) == ([], None)


async def test_only_the_newest_runs_are_kept() -> None:
    async with run_api() as service:
        (token,) = service.fleet.tokens.all()
        scenario = SteppedScenario()
        runs = runs_of(service, scenario)
        for _ in range(MAX_RUNS + 1):
            scenario.release(2)
            await (await runs.play(PLAY, by=caller_of(token))).wait_ended(GUARD)
        assert [run.id for run in runs.all()] == [f"S{n}" for n in range(MAX_RUNS + 1, 1, -1)]


async def test_run_that_takes_too_long_is_canceled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenario_runs, "MAX_RUN_TIME", timedelta(0))
    async with run_api() as service:
        (token,) = service.fleet.tokens.all()
        run = await runs_of(service, SteppedScenario()).play(PLAY, by=caller_of(token))
        await run.wait_ended(GUARD)
    assert (run.verdict, run.reason) == (v1.ScenarioVerdict.CANCELED, "it took longer than 0s")


async def test_error_in_the_player_is_the_verdict_invalid() -> None:
    class Broken(SteppedScenario):
        def play(self, *_: object) -> None:  # type: ignore[override]  # it is wrong
            raise ValueError("broken")

    async with run_api() as service:
        (token,) = service.fleet.tokens.all()
        run = await runs_of(service, Broken()).play(PLAY, by=caller_of(token))
        await run.wait_ended(GUARD)
    assert (run.verdict, "broken" in run.reason) == (v1.ScenarioVerdict.INVALID, True)


async def test_error_before_the_player_starts_is_the_verdict_invalid() -> None:
    def fail(_: str) -> ServiceAddress:
        raise OSError("no address")

    async with run_api() as service:
        (token,) = service.fleet.tokens.all()
        runs = runs_of(service, SteppedScenario())
        runs._find_address = fail
        run = await runs.play(PLAY, by=caller_of(token))
        await run.wait_ended(GUARD)
    assert (run.verdict, "no address" in run.reason) == (v1.ScenarioVerdict.INVALID, True)
