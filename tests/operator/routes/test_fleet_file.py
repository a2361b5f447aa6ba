"""Import and export of the fleet file: differences are returned and applied."""

import msgspec
import pytest

from forewarn.api import v1
from forewarn.api.fleet_file import CreationContext, read_fleet_file, read_fleet_json
from forewarn.core.event import EventType
from forewarn.core.scope import Scope
from forewarn.operator.import_job import SMALL_FILE_BYTES
from tests.operator.running_api import TEN, RunningApi, run_api
from tests.operator.sample_fleet_file import ONE_MORE, imported


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
async def test_fleet_file_may_be_larger_than_other_bodies() -> None:
    async with run_api() as service:
        large = b"#" * (2 * 1024 * 1024) + b"\nscopes = []\n"
        taken = await service.request("POST", "/v1/fleet/import", large)
        refused = await service.request("POST", "/v1/vms", large)
    assert (taken.status, refused.status, refused.code) == (200, 413, "body-too-large")
