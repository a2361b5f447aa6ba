"""Report routes: add, list and show the reports of exams and conformance checks."""

from litestar import Controller, get, post
from litestar.params import JSONBody

from forewarn.api import v1
from forewarn.core.access import Role
from forewarn.core.errors import KeyConflict
from forewarn.operator.auth import CallerDep, requires
from forewarn.operator.emulator import check_emulator
from forewarn.operator.errors import EmulatorNotRunning, ReportNotFound, ReportNotSaved
from forewarn.operator.parameters import IdempotencyKeyDep, ReportId, change_error_specs, error_specs
from forewarn.operator.state import AppState


class ReportController(Controller):
    """Reports. The newest are kept in the data directory."""

    path = "/v1/reports"
    tags = ("reports",)

    @post(
        operation_id="addReport",
        summary="Add a report",
        opt=requires(Role.OPERATOR, all_scopes=True),
        responses=change_error_specs(EmulatorNotRunning, ReportNotSaved, KeyConflict),
    )
    async def add(
        self, state: AppState, caller: CallerDep, idempotency_key: IdempotencyKeyDep, data: JSONBody[v1.AddReport]
    ) -> v1.Report:
        """Add a report. If there are more than 20, the oldest is removed."""
        check_emulator(state)
        return await state.reports.add(data, by=caller.name, idempotency_key=idempotency_key)

    @get(
        operation_id="listReports",
        summary="List reports",
        opt=requires(Role.VIEWER, all_scopes=True),
        responses=error_specs(EmulatorNotRunning),
    )
    async def list_reports(self, state: AppState) -> v1.ReportList:
        """List the reports without their findings, newest first."""
        check_emulator(state)
        return v1.ReportList(reports=await state.reports.all())

    @get(
        "/{report_id:str}",
        operation_id="showReport",
        summary="Show a report",
        opt=requires(Role.VIEWER, all_scopes=True),
        responses=error_specs(ReportNotFound, EmulatorNotRunning),
    )
    async def show(self, state: AppState, report_id: ReportId) -> v1.Report:
        """Show a report with its findings."""
        check_emulator(state)
        return await state.reports.find(report_id)
