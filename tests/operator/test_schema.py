"""Schemathesis reads the description of the API and tries to catch the service out."""

import asyncio
import sys
from pathlib import Path

import msgspec
import pytest

from forewarn.operator.refusals import MALFORMED, STATUS
from tests.operator.stage import TOKEN, stage

SCHEMATHESIS = Path(sys.executable).parent / "schemathesis"
EXAMPLES = 30

# What is well formed is never called malformed: it is done, or refused for a reason that the rules know.
CHECKS = """
[checks]
positive_data_acceptance.expected-statuses = ["2xx", 404, 409, 422]
"""

NAMES = ["db-0", "web-0", "web/web-3", "batch_1", "shop/FrontEnd_IN_0", "nothing"]


@pytest.mark.parametrize(
    "known_names",
    [pytest.param(True, id="with names of VMs"), pytest.param(False, id="as served", marks=pytest.mark.long)],
)
async def test_service_keeps_to_its_description(tmp_path: Path, known_names: bool) -> None:
    (tmp_path / "checks.toml").write_text(CHECKS)
    async with stage() as service:
        description = (await service.ask("GET", "/openapi.json")).json
        if known_names:
            request = description["components"]["schemas"]["ScheduleEvents"]
            request["properties"]["vms"]["items"]["enum"] = NAMES
        (tmp_path / "openapi.json").write_bytes(msgspec.json.encode(description))
        process = await asyncio.create_subprocess_exec(
            SCHEMATHESIS,
            *("--config-file", "checks.toml", "run", "openapi.json", "--url", service.url),
            *("--header", f"Authorization: Bearer {TOKEN}", "--max-examples", str(EXAMPLES)),
            *("--generation-deterministic", "--warnings", "off", "--no-color"),
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        assert process.returncode == 0, said.decode()


async def test_description_is_of_openapi_3_1_and_names_every_path() -> None:
    async with stage() as service:
        description = (await service.ask("GET", "/openapi.json")).json
    assert description["openapi"].startswith("3.1.")
    assert {(path, method) for path, methods in description["paths"].items() for method in methods} == {
        ("/healthz", "get"),
        ("/v1/vms", "get"),
        ("/v1/events", "get"),
        ("/v1/events", "post"),
        ("/v1/clock", "get"),
        ("/v1/clock/advance", "post"),
    }
    assert description["security"] == [{"token": []}]
    assert description["paths"]["/healthz"]["get"]["security"] == [{}]


async def test_reference_names_every_path_and_every_code() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/operator-api.md").read_text()
    async with stage() as service:
        description = (await service.ask("GET", "/openapi.json")).json
    codes = {error.code for error in STATUS} | {malformed.code for malformed in MALFORMED.values()}
    assert [path for path in description["paths"] if path not in page] == []
    assert {
        code for code in codes | {"malformed", "no-token", "wrong-token", "internal"} if f"`{code}`" not in page
    } == set()
