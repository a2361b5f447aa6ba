"""Import and export of the fleet file: differences are returned and applied."""

import asyncio

import msgspec
import pytest

from forewarn.api import v1
from forewarn.api.errors import RequestRefused
from forewarn.api.fleet_file import CreationContext, read_fleet_file, read_fleet_json
from forewarn.core.event import EventType
from forewarn.core.scope import Scope
from forewarn.fleet.errors import SaveFailed
from forewarn.fleet.importer import apply_import
from forewarn.operator import import_job
from forewarn.operator.import_job import SMALL_FILE_BYTES
from tests.fleet.fleets import CallbackObserver
from tests.operator.running_api import TEN, ApiResponse, RunningApi, run_api

ONE_MORE = """
    [[scopes]]
    name = "new"
    kind = "availability-set"
    vms = [{ name = "new-{n}", count = 2 }]
"""


def exported(service: RunningApi) -> tuple[Scope, ...]:
    scopes = (view.scope for view in sorted(service.fleet.replica.views(), key=lambda view: view.id))
    return tuple(bare(scope) for scope in scopes if scope is not None)


def bare(scope: Scope) -> Scope:
    """Return the content of a scope in a file."""
    return msgspec.structs.replace(scope, epoch="e1", changed_at=TEN, entries=0)


@pytest.mark.parametrize("format_", ["toml", "json"])
async def test_export_can_be_imported_unchanged(format_: str) -> None:
    birth = CreationContext(TEN, lambda: "e1")
    async with run_api() as service:
        reply = await service.request("GET", f"/v1/fleet?format={format_}")
        before = exported(service)
    read = read_fleet_json if format_ == "json" else read_fleet_file
    scopes = read(reply.body.decode(), file="", context=birth)
    assert (reply.status, reply.headers["content-type"].split(";")[0]) == (200, f"application/{format_}")
    assert tuple(bare(scope) for scope in scopes) == before


async def test_import_of_an_export_changes_nothing() -> None:
    async with run_api() as service:
        text = (await service.request("GET", "/v1/fleet")).body
        before = await service.stored_state()
        reply = await service.request("POST", "/v1/fleet/import?prune=true", text)
        after = await service.stored_state()
    assert (reply.status, reply.json) == (
        200,
        {"dry_run": False, "differences": [], "unchanged_count": 15, "refused_count": 0},
    )
    assert after == before


async def test_import_returns_and_applies_differences() -> None:
    added = [("added", "new", None), ("added", "new", "new-0"), ("added", "new", "new-1")]
    async with run_api() as service:
        before = await service.stored_state()
        dry = await imported(service, ONE_MORE, dry_run=True)
        untouched = await service.stored_state() == before
        made = await imported(service, ONE_MORE)
        vms = await service.client(lambda api: [vm.name for vm in api.vms(scope="new")])
        pruned = await imported(service, ONE_MORE, prune=True)
        left = await service.client(lambda api: [scope.id for scope in api.scopes()])
    assert (shown(dry), dry.dry_run, untouched) == (added, True, True)
    assert (shown(made), made.dry_run, made.refused_count, vms) == (added, False, 0, ["new-0", "new-1"])
    assert {what for what, _, _ in shown(pruned)} == {"removed"}
    assert left == ["new"]


async def imported(service: RunningApi, text: str, *, dry_run: bool = False, prune: bool = False) -> v1.ImportResult:
    lines = await service.client(
        lambda api: list(api.import_fleet(text.encode(), "toml", dry_run=dry_run, prune=prune))
    )
    assert [line.result for line in lines[:-1]] == [None] * (len(lines) - 1)
    result = lines[-1].result
    assert result is not None, lines[-1]
    return result


def shown(result: v1.ImportResult) -> list[tuple[str, str, str | None]]:
    return [(one.action, one.scope, one.vm) for one in result.differences]


async def test_changed_fields_are_returned_and_journaled() -> None:
    async with run_api() as service:
        text = (await service.request("GET", "/v1/fleet?format=json")).json
        (db,) = (scope for scope in text["scopes"] if scope["name"] == "db-0")
        db["vms"][0]["host"] = "hv-99"
        result = (await service.request("POST", "/v1/fleet/import?format=json", text)).json
        (old,) = (vm for vm in exported(service) if vm.id == "db-0")
        _, journal = await service.stored_state()
    (one,) = result["differences"]
    assert (one["action"], one["scope"], one["vm"], one["fields"]["host"][1]) == ("changed", "db-0", "db-0", "hv-99")
    assert (old.vm("db-0").host, journal[-1].entry.by, journal[-1].key.id) == ("hv-99", "admin", "db-0")


async def test_removal_of_a_vm_with_open_events_is_refused_and_the_rest_is_applied() -> None:
    async with run_api() as service:
        await service.client(lambda api: api.schedule(v1.ScheduleEvents(type=EventType.FREEZE, vms=["db-0"])))
        result = await imported(service, ONE_MORE, prune=True)
        left = await service.client(lambda api: [scope.id for scope in api.scopes()])
    assert {one.scope for one in result.differences if one.refusal} == {"db-0"}
    assert (left, result.refused_count) == (["db-0", "new"], 2)


WRONG = {
    "invalid TOML": ("toml", b"[[scopes", "invalid TOML"),
    "invalid JSON": ("json", b"{", "invalid JSON"),
    "nothing": ("toml", b"", "scopes"),
    "not UTF-8": ("toml", b"\xff\xfe", "not valid UTF-8"),
    "unknown key": ("toml", b'[[scopes]]\nname = "x"\nkind = "standalone"\nhost = "y"\n', "line 4: scopes[0].host: "),
    "large and wrong": ("toml", b"# comment\n" * (SMALL_FILE_BYTES // 5) + b"[[scopes", "invalid TOML"),
}


@pytest.mark.process
async def test_invalid_file_is_refused_and_changes_nothing() -> None:
    async with run_api() as service:
        before = await service.stored_state()
        for case, (format_, text, said) in WRONG.items():
            reply = await service.request("POST", f"/v1/fleet/import?format={format_}", text)
            assert (reply.status, reply.code, said in reply.json["error"]["message"]) == (
                422,
                "invalid-fleet-file",
                True,
            ), (case, reply.body)
            streamed = await service.request(
                "POST", f"/v1/fleet/import?format={format_}", text, Accept="application/x-ndjson"
            )
            lines = [msgspec.json.decode(line, type=v1.ImportProgress) for line in streamed.body.splitlines()]
            error = lines[-1].error
            assert (streamed.status, error and error.error.code) == (200, "invalid-fleet-file"), case
            assert await service.stored_state() == before, case


@pytest.mark.process
async def test_large_file_is_parsed_in_a_separate_process() -> None:
    text = ONE_MORE.replace("count = 2", "count = 1000") + "# a long file\n" * (SMALL_FILE_BYTES // 10)
    async with run_api(fleet_file=ONE_MORE) as service:
        result = await imported(service, text)
        vms = service.fleet.replica.vms
    assert (len(result.differences), result.unchanged_count, vms) == (998, 2, 1000)


@pytest.mark.process
async def test_fleet_file_may_be_larger_than_other_bodies() -> None:
    async with run_api() as service:
        large = b"#" * (2 * 1024 * 1024) + b"\nscopes = []\n"
        taken = await service.request("POST", "/v1/fleet/import", large)
        refused = await service.request("POST", "/v1/vms", large)
    assert (taken.status, refused.status, refused.code) == (200, 413, "body-too-large")


class Gate:
    """Pauses an import until it is released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.open = asyncio.Event(), asyncio.Event()

        async def wait(*args: object, **kwargs: object) -> None:
            self.reached.set()
            await self.open.wait()
            await apply_import(*args, **kwargs)  # type: ignore[arg-type]  # handed on as they came

        monkeypatch.setattr(import_job, "apply_import", wait)


async def test_second_import_is_refused_while_one_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    async with run_api() as service, asyncio.timeout(60):
        first: asyncio.Task[ApiResponse] = asyncio.create_task(
            service.request("POST", "/v1/fleet/import", ONE_MORE.encode())
        )
        await gate.reached.wait()
        with pytest.raises(RequestRefused, match="an import by admin is running, 0 of 1 scopes are done"):
            await service.client(lambda api: list(api.import_fleet(b"")))
        gate.open.set()
        assert (await first).status == 200
        again = await service.request("POST", "/v1/fleet/import", ONE_MORE.encode())
    assert (again.status, again.json["unchanged_count"]) == (200, 2)


async def test_import_continues_after_a_disconnect(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    body = ONE_MORE.encode()
    async with run_api() as service, asyncio.timeout(60):
        head = f"POST /v1/fleet/import HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
        _, writer = await asyncio.open_connection("127.0.0.1", service.port)
        writer.write(head.encode() + b"Authorization: Bearer a-token-for-tests\r\n\r\n" + body)
        await gate.reached.wait()
        writer.close()
        await writer.wait_closed()
        came = asyncio.Event()
        CallbackObserver(service.fleet, lambda change: came.set() if change.id == "new" else None)
        gate.open.set()
        await came.wait()
        assert service.fleet.replica.scope("new").vm("new-1").name == "new-1"


async def test_running_import_reports_the_shutdown_of_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shutdown does not wait for the import until its timeout."""
    gate = Gate(monkeypatch)
    body = ONE_MORE.encode()
    async with asyncio.timeout(60):
        async with run_api() as service:
            followed = asyncio.create_task(
                service.request("POST", "/v1/fleet/import", body, Accept="application/x-ndjson")
            )
            await gate.reached.wait()
        reply = await followed
    told = msgspec.json.decode(reply.body.splitlines()[-1])
    assert (reply.status, told["result"], told["error"]["error"]) == (
        200,
        None,
        {
            "code": "import-failed",
            "message": "the import ended after 0 of 1 scopes: the service is stopping; "
            "retry, and it continues with the differences",
            "details": {"done": "0", "total": "1", "reason": "the service is stopping"},
        },
    )


async def test_failed_import_reports_its_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(*_: object, **__: object) -> None:
        raise SaveFailed("no room left on the disk")

    async with run_api() as service, asyncio.timeout(60):
        with monkeypatch.context() as patched:
            patched.setattr(import_job, "apply_import", full)
            reply = await service.request("POST", "/v1/fleet/import", ONE_MORE.encode())
        again = await service.request("POST", "/v1/fleet/import", ONE_MORE.encode())
    assert (reply.status, reply.code, again.status) == (503, "import-failed", 200)
    assert reply.json["error"]["message"] == (
        "the import ended after 0 of 1 scopes: the next change could not be saved: no room left on the disk; "
        "retry, and it continues with the differences"
    )


async def test_scope_in_another_case_is_refused_unless_pruned() -> None:
    async with run_api(fleet_file=ONE_MORE) as service:
        text = ONE_MORE.replace('"new"', '"New"')
        before = await service.stored_state()
        reply = await service.request("POST", "/v1/fleet/import?dry_run=true", text.encode())
        untouched = await service.stored_state() == before
        await imported(service, text, prune=True)
        left = await service.client(lambda api: [scope.id for scope in api.scopes()])
    assert (reply.status, reply.code, untouched) == (422, "invalid-fleet-file", True)
    assert reply.json["error"]["message"] == "scope New is in the fleet as new; use that spelling, or import with prune"
    assert left == ["New"]
