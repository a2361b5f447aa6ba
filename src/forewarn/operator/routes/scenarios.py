"""Scenario routes: list the scenarios, play one, follow its result, and cancel it."""

from typing import Annotated

from litestar import Controller, get, post
from litestar.params import JSONBody, QueryParameter

from forewarn.api import v1
from forewarn.core.access import Role
from forewarn.core.errors import KeyConflict
from forewarn.operator.auth import CallerDep, requires
from forewarn.operator.emulator import check_emulator, check_time_virtual
from forewarn.operator.errors import (
    EmulatorNotRunning,
    InvalidScenario,
    ScenarioConflict,
    ScenarioNotFound,
    ScenarioRefused,
    ScenarioRunNotFound,
    TimeNotVirtual,
)
from forewarn.operator.parameters import IdempotencyKeyDep, RunId, change_error_specs, error_specs
from forewarn.operator.state import AppState

Revision = Annotated[
    int,
    QueryParameter(
        name="after_revision",
        ge=-1,
        le=2**31,
        description="Respond when the run has a newer revision or has ended, at the latest after 10 seconds.",
    ),
]

MAX_WAIT = 10.0
"""How many seconds a request that follows a run waits."""


class ScenarioController(Controller):
    """Scenarios. They are played in this service, one at a time, with the rights of the caller."""

    path = "/v1"
    tags = ("scenarios",)

    @get(
        "/scenarios",
        operation_id="listScenarios",
        summary="List scenarios",
        opt=requires(Role.VIEWER),
        responses=error_specs(EmulatorNotRunning),
    )
    async def list_scenarios(self, state: AppState) -> v1.Scenarios:
        """List the scenarios that ship with Forewarn."""
        check_emulator(state)
        return v1.Scenarios(scenarios=await state.scenario_runs.scenarios())

    @post(
        "/scenario-runs",
        operation_id="playScenario",
        summary="Play a scenario",
        opt=requires(Role.OPERATOR, all_scopes=True),
        responses=change_error_specs(
            ScenarioNotFound,
            EmulatorNotRunning,
            TimeNotVirtual,
            ScenarioConflict,
            ScenarioRefused,
            KeyConflict,
            InvalidScenario,
        ),
    )
    async def play(
        self, state: AppState, caller: CallerDep, idempotency_key: IdempotencyKeyDep, data: JSONBody[v1.PlayScenario]
    ) -> v1.ScenarioRun:
        """Start a scenario in this service and return at once; follow its run with `showScenarioRun`.

        It adds scopes of its own, and other names if these are in use; it sends requests as their VMs. A manual clock
        advances for the whole fleet. When the scenario ends, however it ends, its scopes, faults, holds and campaigns
        are removed; the clock stays where it is. If the process is killed, its scopes remain.
        """
        check_time_virtual(state)
        return (await state.scenario_runs.play(data, by=caller, idempotency_key=idempotency_key)).show()

    @get(
        "/scenario-runs",
        operation_id="listScenarioRuns",
        summary="List the runs of scenarios",
        opt=requires(Role.VIEWER, all_scopes=True),
        responses=error_specs(EmulatorNotRunning),
    )
    async def list_runs(self, state: AppState) -> v1.ScenarioRunList:
        """List the last runs since the start of the service, newest first. They are kept in memory."""
        check_emulator(state)
        return v1.ScenarioRunList(runs=tuple(run.summary() for run in state.scenario_runs.all()))

    @get(
        "/scenario-runs/{run_id:str}",
        operation_id="showScenarioRun",
        summary="Show or follow a run",
        opt=requires(Role.VIEWER, all_scopes=True),
        responses=error_specs(ScenarioRunNotFound, EmulatorNotRunning),
    )
    async def show_run(self, state: AppState, run_id: RunId, after_revision: Revision = -1) -> v1.ScenarioRun:
        """Show a run with the results of its steps so far.

        To follow it, repeat the request with the `revision` of the last response.
        """
        check_emulator(state)
        run = state.scenario_runs.find(run_id)
        await run.wait_changed(after_revision, MAX_WAIT)
        return run.show()

    @post(
        "/scenario-runs/{run_id:str}/cancel",
        operation_id="cancelScenario",
        summary="Cancel a run",
        status_code=200,
        opt=requires(Role.OPERATOR, all_scopes=True),
        responses=change_error_specs(ScenarioRunNotFound, EmulatorNotRunning),
    )
    async def cancel(
        self, state: AppState, caller: CallerDep, run_id: RunId, data: JSONBody[v1.CancelScenario]
    ) -> v1.ScenarioRun:
        """Cancel a run. The response comes when its scopes are removed. A run that has ended stays as it is.

        A step that waits for the clock ends at once; others are finished first.
        """
        check_emulator(state)
        return (await state.scenario_runs.cancel(run_id, by=caller.name, reason=data.reason)).show()
