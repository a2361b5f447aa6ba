"""Restore of a backup: new epochs, a hold, no token valid again, and nothing that happens twice."""

from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from forewarn.clock import SystemClock
from forewarn.compose.backup import back_up
from forewarn.compose.data_directory import PRESET_FILE
from forewarn.compose.restore import (
    BackupNotFound,
    InvalidBackup,
    LostHold,
    RestoreReport,
    restore_backup,
)
from forewarn.compose.restored_fleet import UnfinishedWork
from forewarn.core.access import Role
from forewarn.core.event import State
from forewarn.core.operations import restart
from forewarn.core.restore import INCARNATION_STEP
from forewarn.core.schedule import ScheduleRequest
from forewarn.store.port import StoreInUse
from forewarn.store.sqlite.database import DATABASE_FILE
from tests.compose.service_data import create_data, open_fleet, read_data
from tests.core.builders import a_request
from tests.fleet.fleets import until


def take_backup(tmp_path: Path) -> Path:
    file = tmp_path / "backup.db"
    back_up(tmp_path / "data", file, replace=True, now=SystemClock().now(), on_progress=lambda *_: None)
    return file


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


async def restored(tmp_path: Path, directory: str = "data") -> RestoreReport:
    return await restore_backup(tmp_path / "backup.db", tmp_path / directory, on_progress=lambda *_: None)


def reboot_soon(vm: str) -> ScheduleRequest:
    return a_request(vm, id=str(uuid4()).upper(), notice=timedelta(seconds=0))


async def test_every_scope_has_a_new_epoch_beyond_all_that_guests_have_seen(tmp_path: Path) -> None:
    await create_data(tmp_path / "data", "web", "db")
    take_backup(tmp_path)
    async with open_fleet(tmp_path / "data") as fleet:
        for _ in range(3):
            await fleet.events.schedule(a_request("web-0", id=str(uuid4()).upper(), notice=timedelta(hours=1)))
    before = (await read_data(tmp_path / "data")).scopes
    report = await restored(tmp_path)
    after = (await read_data(tmp_path / "data")).scopes
    assert (report.scopes, set(after)) == (2, {"web", "db"})
    assert {name: scope.incarnation for name, scope in after.items()} == {
        name: scope.incarnation + INCARNATION_STEP for name, scope in before.items()
    }
    assert before["web"].incarnation > 1
    assert not {scope.epoch for scope in after.values()} & {scope.epoch for scope in before.values()}
    assert len({scope.epoch for scope in after.values()}) == 2


async def test_nothing_planned_starts_until_the_release(tmp_path: Path) -> None:
    """An event that became due since the backup waits, whatever the service does, until an operator decides."""
    await create_data(tmp_path / "data", "web")
    async with open_fleet(tmp_path / "data") as fleet:
        await fleet.holds.set(by="ann", reason="disk swap")
        await fleet.events.schedule(reboot_soon("web-0"))
    take_backup(tmp_path)
    report = await restored(tmp_path)
    assert "check the fleet, then run `forewarn release`" in report.hold
    assert "already held by ann: disk swap" in report.hold
    async with open_fleet(tmp_path / "data", has_duties=True) as fleet:
        (view,) = fleet.replica.views()
        assert view.scope is not None
        assert [event.state for event in view.scope.events] == [State.SCHEDULED]
        await fleet.holds.release(by="ann")
        await until(lambda: view.scope is not None and view.scope.events[0].state is State.STARTED)


async def test_work_that_was_under_way_waits_for_a_person(tmp_path: Path) -> None:
    await create_data(tmp_path / "data", "web")
    async with open_fleet(tmp_path / "data") as fleet:
        failure = a_request("web-0", id=str(uuid4()).upper(), failure=True)
        ((_, event),) = await fleet.events.schedule(failure)
    take_backup(tmp_path)
    report = await restored(tmp_path)
    assert report.unknown_work == (UnfinishedWork(event=event, scope="web", vm="web-0"),)
    async with open_fleet(tmp_path / "data", has_duties=True) as fleet:
        assert fleet.duties.impacts.waiting == 0
        await fleet.events.resolve(event, by="ann", why="the VM has restarted", done=True)
        (view,) = fleet.replica.views()
        assert view.scope is not None
        assert view.scope.events == ()


async def test_restart_that_an_owner_requested_is_not_repeated(tmp_path: Path) -> None:
    await create_data(tmp_path / "data", "web")
    async with open_fleet(tmp_path / "data") as fleet:
        ((_, event),) = await fleet.events.schedule(restart("web-0", request=str(uuid4()).upper(), by="ann"))
    take_backup(tmp_path)
    report = await restored(tmp_path)
    assert report.canceled_events == (UnfinishedWork(event=event, scope="web", vm="web-0"),)
    assert (await read_data(tmp_path / "data")).scopes["web"].events == ()


async def test_tokens_revoked_since_the_backup_stay_revoked(tmp_path: Path) -> None:
    await create_data(tmp_path / "data", "web")
    async with open_fleet(tmp_path / "data") as fleet:
        for name in ("kept", "revoked", "revoked-before"):
            await fleet.tokens.create(name, Role.ADMIN, by="test")
        ids = {token.name: token.id for token in fleet.tokens.all()}
        await fleet.tokens.revoke(ids["revoked-before"], by="test")
    take_backup(tmp_path)
    async with open_fleet(tmp_path / "data") as fleet:
        await fleet.tokens.create("late", Role.VIEWER, by="test")
        late_revoked, secret = await fleet.tokens.create("late-revoked", Role.ADMIN, by="test")
        for id_ in (ids["revoked"], late_revoked.id):
            await fleet.tokens.revoke(id_, by="test")
    report = await restored(tmp_path)
    assert [token.name for token in report.revoked_tokens] == ["late-revoked", "revoked"]
    assert [token.name for token in report.lost_tokens] == ["late"]
    assert report.unconfirmed_tokens == ()
    assert (await read_data(tmp_path / "data")).valid_tokens == {"kept"}
    async with open_fleet(tmp_path / "data") as fleet:
        await fleet.tokens.adopt(secret, by="the token file")
        assert fleet.tokens.find(secret) is None, "a revoked secret in the token file is not adopted as a new one"


async def test_tokens_that_the_replaced_data_does_not_know_are_listed(tmp_path: Path) -> None:
    await create_data(tmp_path / "data", "web")
    async with open_fleet(tmp_path / "data") as fleet:
        await fleet.tokens.create("old", Role.ADMIN, by="test")
    take_backup(tmp_path)
    report = await restored(tmp_path, "new-machine")
    assert ([token.name for token in report.unconfirmed_tokens], report.replaced) == (["old"], None)
    assert (await read_data(tmp_path / "new-machine")).valid_tokens == {"old"}


async def test_holds_set_since_the_backup_are_listed(tmp_path: Path) -> None:
    await create_data(tmp_path / "data", "web", "db")
    async with open_fleet(tmp_path / "data") as fleet:
        await fleet.holds.set(by="ann", reason="rack 4", scope="db")
    take_backup(tmp_path)
    async with open_fleet(tmp_path / "data") as fleet:
        await fleet.holds.set(by="bob", reason="a customer's demo", scope="web")
        await fleet.holds.set(by="bob", reason="a storm")
    report = await restored(tmp_path)
    assert set(report.lost_holds) == {
        LostHold(scope="web", by="bob", reason="a customer's demo"),
        LostHold(scope=None, by="bob", reason="a storm"),
    }


async def test_replaced_data_is_kept_and_can_be_restored_in_turn(tmp_path: Path) -> None:
    await create_data(tmp_path / "data", "web")
    take_backup(tmp_path)
    await create_data(tmp_path / "data", "late")
    report = await restored(tmp_path)
    assert set((await read_data(tmp_path / "data")).scopes) == {"web"}
    assert report.replaced is not None
    await restore_backup(Path(report.replaced, DATABASE_FILE), tmp_path / "data", on_progress=lambda *_: None)
    assert set((await read_data(tmp_path / "data")).scopes) == {"web", "late"}


async def test_unreadable_data_is_replaced_and_kept(tmp_path: Path) -> None:
    await create_data(tmp_path / "data", "web")
    take_backup(tmp_path)
    (tmp_path / "data" / DATABASE_FILE).write_bytes(b"SQLite format 3\0" + bytes(4096))
    report = await restored(tmp_path)
    assert report.replaced_problem is not None
    assert report.replaced is not None
    assert (tmp_path / report.replaced / DATABASE_FILE).read_bytes().endswith(bytes(4096))
    assert set((await read_data(tmp_path / "data")).scopes) == {"web"}


async def test_restore_refuses_a_directory_in_use_and_a_file_that_is_no_backup(tmp_path: Path) -> None:
    await create_data(tmp_path / "data", "web")
    take_backup(tmp_path)
    async with open_fleet(tmp_path / "data"):
        with pytest.raises(StoreInUse):
            await restored(tmp_path)
    with pytest.raises(BackupNotFound):
        await restore_backup(tmp_path / "missing.db", tmp_path / "data", on_progress=lambda *_: None)
    (tmp_path / "other.db").write_text("no database")
    with pytest.raises(InvalidBackup, match="not a database"):
        await restore_backup(tmp_path / "other.db", tmp_path / "nowhere", on_progress=lambda *_: None)
    assert not (tmp_path / "nowhere").exists()
    state = await read_data(tmp_path / "data")
    assert (set(state.scopes), state.hold) == ({"web"}, None)


@pytest.mark.parametrize(
    ("backup", "present", "after"),
    [
        ("production", "", "production"),
        ("emulator", "production", "production"),
        ("production", "emulator", "production"),
        ("emulator", "", "emulator"),
        ("", "", None),
    ],
)
async def test_data_of_real_vms_stays_recognisable(
    tmp_path: Path, backup: str, present: str, after: str | None
) -> None:
    preset = tmp_path / "data" / PRESET_FILE
    await create_data(tmp_path / "data", "web")
    if backup:
        preset.write_text(f"{backup}\n")
    take_backup(tmp_path)
    preset.unlink(missing_ok=True)
    if present:
        preset.write_text(f"{present}\n")
    await restored(tmp_path)
    assert (preset.read_text().strip() if preset.exists() else None) == after


async def test_error_leaves_the_old_data_as_it_was(tmp_path: Path) -> None:
    await create_data(tmp_path / "data", "web")
    take_backup(tmp_path)
    before = names_in(tmp_path / "data")

    def fail(step: str, *_: int) -> None:
        if step == "Beginning new epochs":
            raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        await restore_backup(tmp_path / "backup.db", tmp_path / "data", on_progress=fail)
    assert names_in(tmp_path / "data") == before
    assert (await read_data(tmp_path / "data")).hold is None
