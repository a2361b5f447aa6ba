"""Fuzz tests of the API with Schemathesis."""

import asyncio
import re
import sys
from pathlib import Path

import msgspec
import pytest

from forewarn.operator import limits
from forewarn.operator.error_responses import statuses_by_code
from tests.operator.running_api import TOKEN, run_api

SCHEMATHESIS = Path(sys.executable).parent / "schemathesis"
QUICK = "examples,fuzzing,stateful"
THOROUGH = "examples,coverage,fuzzing,stateful"
"""The coverage phase tries every bound of every parameter, which takes minutes."""

# A well-formed request is never refused as malformed: it succeeds, or a rule refuses it. A list with more items than
# allowed can also be a body that is too large.
CHECKS = """
[checks]
positive_data_acceptance.expected-statuses = ["2xx", 404, 409, 422]
negative_data_rejection.expected-statuses = [400, 401, 403, 404, 405, 406, 409, 413, 415, 422, 428, 429, "5xx"]
"""

NAMES = ["db-0", "web-0", "web/web-3", "batch_1", "shop/FrontEnd_IN_0", "nothing"]

SCOPES = ["db-0", "web", "sh*", "nothing"]

LEFT_OUT = {
    "watchJournal": "it goes on for ever",
    "importFleet": "a fleet file is no JSON, and a wrong one would take everything away",
    "revokeToken": "it would revoke the token with which it asks",
}
"""These have their own tests."""


@pytest.mark.process
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("known_names", "examples", "phases"),
    [
        pytest.param(True, 8, QUICK, id="with names of VMs"),
        pytest.param(True, 8, THOROUGH, id="with names of VMs, every bound", marks=pytest.mark.long),
        pytest.param(False, 30, THOROUGH, id="as served", marks=pytest.mark.long),
    ],
)
async def test_service_conforms_to_its_openapi_document(
    tmp_path: Path, known_names: bool, examples: int, phases: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each operation alone, and then sequences in which operations use earlier responses."""
    monkeypatch.setattr(limits, "WRONG_TOKENS", 1_000_000)
    (tmp_path / "checks.toml").write_text(CHECKS)
    async with run_api() as service:
        description = (await service.request("GET", "/openapi.json")).json
        if known_names:
            schemas = description["components"]["schemas"]
            schemas["ScheduleEvents"]["properties"]["vms"]["items"]["enum"] = NAMES
            schemas["Operate"]["properties"]["vm"]["enum"] = NAMES
            schemas["CampaignSelection"]["properties"]["scopes"]["items"] = {"enum": SCOPES}
        (tmp_path / "openapi.json").write_bytes(msgspec.json.encode(description))
        process = await asyncio.create_subprocess_exec(
            SCHEMATHESIS,
            *("--config-file", "checks.toml", "run", "openapi.json", "--url", service.url),
            *("--header", f"Authorization: Bearer {TOKEN}", "--max-examples", str(examples)),
            *("--phases", phases),
            *(word for id_ in LEFT_OUT for word in ("--exclude-operation-id", id_)),
            *("--generation-deterministic", "--warnings", "off", "--no-color"),
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        assert process.returncode == 0, said.decode()
        assert "Stateful (in" in said.decode()


async def test_openapi_document_is_3_1_and_has_every_path() -> None:
    async with run_api() as service:
        description = (await service.request("GET", "/openapi.json")).json
    assert description["openapi"].startswith("3.1.")
    paths = {f"{method.upper()} {path}" for path, methods in description["paths"].items() for method in methods}
    assert paths == {
        "GET /healthz",
        "GET /readyz",
        "GET /metrics",
        "GET /v1/me",
        "POST /v1/calendar",
        "DELETE /v1/calendar",
        "GET /v1/clock",
        "POST /v1/clock/advance",
        "POST /v1/clock/speed",
        "GET /v1/scenarios",
        "GET /v1/scenario-runs",
        "POST /v1/scenario-runs",
        "GET /v1/scenario-runs/{run_id}",
        "POST /v1/scenario-runs/{run_id}/cancel",
        "GET /v1/reports",
        "POST /v1/reports",
        "GET /v1/reports/{report_id}",
        "GET /v1/scopes",
        "POST /v1/scopes",
        "GET /v1/scopes/{scope_id}",
        "PATCH /v1/scopes/{scope_id}",
        "DELETE /v1/scopes/{scope_id}",
        "GET /v1/vms",
        "POST /v1/vms",
        "GET /v1/vms/{vm}",
        "PATCH /v1/vms/{vm}",
        "DELETE /v1/vms/{vm}",
        "GET /v1/hosts",
        "GET /v1/hosts/{host}",
        "POST /v1/hosts/{host}/gone",
        "GET /v1/fleet",
        "POST /v1/fleet/import",
        "DELETE /v1/fleet/import",
        "GET /v1/diagnosis",
        "GET /v1/events",
        "POST /v1/events",
        "GET /v1/events/{event}",
        "POST /v1/events/{event}/cancel",
        "POST /v1/events/{event}/approve",
        "POST /v1/events/{event}/retry",
        "POST /v1/events/{event}/resolve",
        "POST /v1/operations/restart",
        "POST /v1/operations/redeploy",
        "POST /v1/operations/delete",
        "POST /v1/operations/evict",
        "POST /v1/operations/fail",
        "POST /v1/operations/predict-failure",
        "POST /v1/sockets",
        "GET /v1/campaigns",
        "POST /v1/campaigns",
        "POST /v1/campaigns/plan",
        "GET /v1/campaigns/{campaign}",
        "GET /v1/campaigns/{campaign}/waves",
        "POST /v1/campaigns/{campaign}/pause",
        "POST /v1/campaigns/{campaign}/resume",
        "POST /v1/campaigns/{campaign}/abort",
        "POST /v1/campaigns/{campaign}/retry",
        "POST /v1/campaigns/{campaign}/skip",
        "GET /v1/holds",
        "POST /v1/holds",
        "POST /v1/holds/release",
        "GET /v1/faults",
        "POST /v1/faults",
        "DELETE /v1/faults",
        "DELETE /v1/faults/{fault_id}",
        "GET /v1/journal",
        "GET /v1/watch",
        "GET /v1/tokens",
        "POST /v1/tokens",
        "DELETE /v1/tokens/{token_id}",
    }
    assert description["security"] == [{"token": []}, {"password": []}]
    assert description["paths"]["/healthz"]["get"]["security"] == [{}]


async def test_reference_names_every_path_and_every_code() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/operator-api.md").read_text()
    async with run_api() as service:
        description = (await service.request("GET", "/openapi.json")).json
    assert [path for path in description["paths"] if path not in page] == []
    rows = re.findall(r"^\| `([a-z-]+)` \| (\d{3}) \|", page, re.MULTILINE)
    assert sorted((code, int(status)) for code, status in rows) == sorted(statuses_by_code().items())
