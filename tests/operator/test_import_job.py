"""Import jobs: one at a time, in a separate process for large files, and not stopped by a disconnect."""

import asyncio

import msgspec
import pytest

from forewarn.api.errors import RequestRefused
from forewarn.api.fleet_file import FleetFormat
from forewarn.fleet.errors import OutcomeUnknown, SaveFailed
from forewarn.fleet.importer import IMPORT_CONCURRENCY, apply_import
from forewarn.operator import import_job
from forewarn.operator.errors import ImportCanceled, InvalidFleetFile
from forewarn.operator.import_job import SMALL_FILE_BYTES, ImportJob, ImportJobs, ImportLimits, ImportRequest
from tests.fleet.fleets import CallbackObserver, run_fleet
from tests.operator.running_api import ApiResponse, run_api
from tests.operator.sample_fleet_file import ONE_MORE, imported


@pytest.mark.process
async def test_large_file_is_parsed_in_a_separate_process() -> None:
    text = ONE_MORE.replace("count = 2", "count = 1000") + "# a long file\n" * (SMALL_FILE_BYTES // 10)
    async with run_api(fleet_file=ONE_MORE) as service:
        result = await imported(service, text)
        vms = service.fleet.replica.vms
    assert (len(result.differences), result.unchanged_count, vms) == (998, 2, 1000)


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


async def test_import_with_an_unknown_outcome_is_not_reported_as_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def doubt(*_: object, **__: object) -> None:
        raise OutcomeUnknown("disk I/O error")

    async with run_api() as service, asyncio.timeout(60):
        with monkeypatch.context() as patched:
            patched.setattr(import_job, "apply_import", doubt)
            reply = await service.request("POST", "/v1/fleet/import", ONE_MORE.encode())
    assert (reply.status, reply.code) == (503, "outcome-unknown")
    assert reply.json["error"]["details"] == {"reason": "disk I/O error, after 0 of 1 scopes of the import"}


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


MANY = "".join(f'[[scopes]]\nname = "s{n}"\nkind = "standalone"\n' for n in range(3 * IMPORT_CONCURRENCY))


async def test_canceled_import_ends_between_scopes_and_reports_what_was_done(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    async with run_api(fleet_file=ONE_MORE) as service, asyncio.timeout(60):
        first = asyncio.create_task(service.request("POST", "/v1/fleet/import", MANY.encode()))
        await gate.reached.wait()
        canceled = asyncio.Event()
        cancel = ImportJob.cancel

        def cancel_and_tell(job: ImportJob, by: str) -> None:
            cancel(job, by)
            canceled.set()

        monkeypatch.setattr(ImportJob, "cancel", cancel_and_tell)
        second = asyncio.create_task(service.request("DELETE", "/v1/fleet/import"))
        await canceled.wait()
        gate.open.set()
        imported_reply, reply = await first, await second
        present = {view.id for view in service.fleet.replica.views()} - {"new"}
        again = await service.request("POST", "/v1/fleet/import", MANY.encode())
        left = await service.request("DELETE", "/v1/fleet/import")
    total = 3 * IMPORT_CONCURRENCY
    assert reply.json == {"canceled": True, "created_by": "admin", "done": IMPORT_CONCURRENCY, "total": total}
    assert (imported_reply.status, imported_reply.code) == (409, "import-canceled")
    assert imported_reply.json["error"]["message"] == (
        f"admin has canceled the import after {IMPORT_CONCURRENCY} of {total} scopes; these stay changed; "
        "import the file again to continue with the differences"
    )
    assert present == {f"s{n}" for n in range(IMPORT_CONCURRENCY)}
    assert (again.json["unchanged_count"], len(again.json["differences"])) == (
        IMPORT_CONCURRENCY,
        2 * (total - IMPORT_CONCURRENCY),
    )
    assert (left.status, left.code) == (404, "import-not-found")


def asked(text: str) -> ImportRequest:
    return ImportRequest(chunks=[text.encode()], format=FleetFormat.TOML, dry_run=False, prune=False, by="ann")


async def test_import_is_canceled_while_its_file_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = asyncio.Event()

    async def read(*_: object) -> list[bytes]:
        reading.set()
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(import_job, "_parse", read)
    async with run_fleet() as fleet, asyncio.timeout(60):
        jobs = ImportJobs(fleet, ImportLimits())
        job = jobs.start(asked(MANY))
        await reading.wait()
        assert await jobs.cancel(by="bob") is job
        with pytest.raises(ImportCanceled, match=r"bob has canceled the import .*; nothing has changed"):
            await job.wait()


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        (ImportLimits(seconds=0.0), "it could not be read within 0 s; split it, or set imports.time_limit"),
        (ImportLimits(vms=11), "the file defines more than 11 VMs; split it, or set imports.vms of the service"),
    ],
    ids=["time", "VMs"],
)
async def test_limits_of_a_file(limits: ImportLimits, problem: str) -> None:
    async with run_fleet() as fleet, asyncio.timeout(60):
        job = ImportJobs(fleet, limits).start(asked(MANY))
        with pytest.raises(InvalidFleetFile, match=problem):
            await job.wait()
        assert list(fleet.replica.views()) == []


@pytest.mark.parametrize(
    ("format_", "text"),
    [
        ("toml", "# [[\nscopes = " + "[" * 20_000),
        ("toml", '# [[\nx = "[[[["\na = ' + "[" * 20_000 + "]" * 20_000),
        ("json", '{"a": "[[",\n"scopes": ' + "[" * 20_000),
    ],
    ids=["toml", "toml with texts", "json"],
)
async def test_deep_nesting_is_refused_with_its_position(format_: str, text: str) -> None:
    async with run_api() as service:
        reply = await service.request("POST", f"/v1/fleet/import?format={format_}", text.encode())
    details = reply.json["error"]["details"]
    start = text.index("[" * 100) + 64 - (1 if format_ == "json" else 0)
    line, column = text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start)
    assert (reply.status, reply.code, details["line"]) == (422, "invalid-fleet-file", str(line))
    assert details["problem"] == f"invalid {format_.upper()}: more than 64 levels of brackets, in column {column}"


@pytest.mark.parametrize(
    ("format_", "text"),
    [
        ("toml", f"[[scopes]]\nname = 'x'\nkind = 'standalone'\ninstance.{'.'.join(['a'] * 5_000)} = '1'\n"),
        (
            "json",
            '{"scopes": [{"name": "x", "kind": "standalone", "instance": ' + '{"a": ' * 900 + "1" + "}" * 901 + "]}",
        ),
    ],
    ids=["keys with dots", "tables"],
)
async def test_tables_too_deep_for_the_reader_are_refused_with_their_key(format_: str, text: str) -> None:
    """They are not too deep for the parser."""
    async with run_api() as service:
        reply = await service.request("POST", f"/v1/fleet/import?format={format_}", text.encode())
    details = reply.json["error"]["details"]
    assert (reply.status, reply.code, details["problem"]) == (
        422,
        "invalid-fleet-file",
        "more than 64 levels of tables",
    )
    assert details["key"] == f"scopes[0].instance{'.a' * 64}"
    assert details["line"] == ("4" if format_ == "toml" else "")
