"""Reports through the API: added, listed and shown, with permission for all scopes."""

import pytest

from forewarn.api import v1
from forewarn.api.errors import NotFound
from forewarn.core.access import Role
from tests.operator.running_api import run_api
from tests.operator.sample_report import sample_report


async def test_report_is_added_listed_and_shown() -> None:
    async with run_api() as service:
        added = await service.client(lambda api: api.add_report(sample_report()))
        assert await service.client(lambda api: api.report(added.id)) == added
        (listed,) = (await service.client(lambda api: api.reports())).reports
        with pytest.raises(NotFound):
            await service.client(lambda api: api.report("R0"))
    assert listed == v1.ReportSummary(
        id=added.id,
        kind=v1.ReportKind.EXAM,
        subject="./handler --fast",
        passed=False,
        summary="2 scenarios: 1 passed, 1 failed.",
        version="1.0",
        created_by="admin",
        created_at=added.created_at,
    )


async def test_reports_need_a_token_for_all_scopes() -> None:
    async with run_api() as service:
        body = sample_report()
        viewer, team = await service.token("eve", Role.VIEWER), await service.token("team", Role.OPERATOR, "web")
        assert (await service.request("GET", "/v1/reports", token=viewer)).status == 200
        for token in (viewer, team):
            assert (await service.request("POST", "/v1/reports", body, token=token)).status == 403
        assert (await service.request("GET", "/v1/reports", token=team)).status == 403
