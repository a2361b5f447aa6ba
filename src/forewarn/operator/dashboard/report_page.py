"""Report page: one report of an exam or a conformance check, with the findings of its text."""

from litestar import Response, get

from forewarn.core.access import Role
from forewarn.operator.auth import requires
from forewarn.operator.dashboard.pages import EMULATOR, AnyRequest, render_page
from forewarn.operator.emulator import check_emulator
from forewarn.operator.parameters import ReportId
from forewarn.operator.state import AppState


@get(f"{EMULATOR}/reports/{{report_id:str}}", opt=requires(Role.VIEWER, all_scopes=True))
async def show_report(request: AnyRequest, state: AppState, report_id: ReportId) -> Response[str]:
    """Show a report."""
    check_emulator(state)
    report = await state.reports.find(report_id)
    return render_page(request, "report.html", title=f"Report on {report.subject}", report=report)
