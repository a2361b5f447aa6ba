"""The owner of a cell: one process at a time may change it."""

import asyncio
from pathlib import Path

import pytest

from forewarn.settings.nats import NatsSettings
from forewarn.store.nats import lease, save_queue
from forewarn.store.nats.lease import LeaseMessage, NatsLease, read_member
from forewarn.store.nats.message import StoredMessage
from forewarn.store.nats.store import NatsStore
from forewarn.store.port import CellInUse, StoreUnavailable
from tests.store.contract import GUARD_SECONDS, WEB
from tests.support.nats_servers import NatsCluster

pytestmark = pytest.mark.process


@pytest.fixture
async def settings(nats_server: NatsCluster) -> NatsSettings:
    return await nats_server.create_cell()


@pytest.fixture
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short, but a busy machine may still renew a lease seconds late."""
    monkeypatch.setattr(lease, "TTL_SECONDS", 5)
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.2)
    monkeypatch.setattr(lease, "MARGIN_SECONDS", 0.5)


async def test_second_process_is_refused_while_the_first_runs(
    settings: NatsSettings, tmp_path: Path, short_times: None
) -> None:
    first = await NatsStore.open(settings, tmp_path / "one")
    second = await NatsStore.open(settings, tmp_path / "two")
    await first.claim("member-1")
    with pytest.raises(CellInUse, match=r"process [0-9]+ on "):
        await second.claim("member-2", patience=6.0)
    await first.save(WEB, b"", [], expected=None)
    await first.aclose()
    await second.claim("member-2")  # at once, because the first one has ended in order
    await second.aclose()


async def test_killed_owner_is_replaced_when_its_message_has_ended(
    settings: NatsSettings, tmp_path: Path, short_times: None
) -> None:
    killed = await NatsStore.open(settings, tmp_path / "one")
    await killed.claim("member-1")
    await killed._stream.connection.aclose()  # as SIGKILL does
    second = await NatsStore.open(settings, tmp_path / "two")
    await second.claim("member-2")
    await second.save(WEB, b"", [], expected=None)
    await second.aclose()
    await killed.aclose()


async def test_restarted_member_takes_over_at_once_and_the_old_process_stops(
    settings: NatsSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.2)
    monkeypatch.setattr(save_queue, "PATIENCE_SECONDS", 0.1)
    first = await NatsStore.open(settings, tmp_path / "one")
    old = await first.claim("member-1", patience=0)
    again = await NatsStore.open(settings, tmp_path / "two")
    async with asyncio.timeout(GUARD_SECONDS):
        new = await again.claim("member-1")
        await old.lost.wait()
        with pytest.raises(CellInUse):
            await old.claim()
    with pytest.raises(StoreUnavailable):
        await first.save(WEB, b"old", [], expected=None)
    await again.save(WEB, b"new", [], expected=None)
    await first.aclose()
    assert new.is_valid
    await again.save(WEB, None, [], expected=(await again.load(WEB)).revision)  # type: ignore[union-attr]  # it exists
    await again.aclose()


async def test_waiting_process_gets_a_released_lease_and_a_lost_one_by_its_end(
    settings: NatsSettings, tmp_path: Path, short_times: None, caplog: pytest.LogCaptureFixture
) -> None:
    stores = [await NatsStore.open(settings, tmp_path / name) for name in ("one", "two", "three")]
    first, second, third = (store.lease("clock", f"member-{number}") for number, store in enumerate(stores))
    async with asyncio.timeout(GUARD_SECONDS):
        await first.claim()
        waiting = asyncio.create_task(second.claim())
        while "is held by process" not in caplog.text:  # noqa: ASYNC110 - the log has no event
            await asyncio.sleep(0.01)
        await first.release()
        await waiting
        assert (first.is_valid, first.lost.is_set(), second.is_valid) == (False, True, True)
        await stores[1]._stream.connection.aclose()  # as a cut cable
        await third.claim()
        await second.lost.wait()
        assert (second.is_valid, third.is_valid) == (False, True)
    for store in stores:
        await store.aclose()


async def test_lease_that_is_claimed_again_is_renewed_by_one_task(settings: NatsSettings, tmp_path: Path) -> None:
    """Two of them would refuse each other, and this process would lose a lease that nobody else has taken."""
    store = await NatsStore.open(settings, tmp_path)
    clock = store.lease("clock", "member")
    async with asyncio.timeout(GUARD_SECONDS):
        await clock.claim()
        await asyncio.sleep(0)  # the task begins
        await clock.release()
        await clock.claim()
        await clock.release()  # before the task has begun
        await clock.claim()
    assert [task.get_name() for task in asyncio.all_tasks()].count("renew the lease clock") == 1
    await store.aclose()


async def test_renewal_under_way_does_not_prevent_the_release(
    settings: NatsSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The renewal is about to be written when the release has read the newest message."""
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.0)
    stores = [await NatsStore.open(settings, tmp_path / name) for name in ("one", "two")]
    first, second = (store.lease("clock", f"member-{number}") for number, store in enumerate(stores))
    write, read_last = first._write, stores[0]._stream.read_last
    is_renewing, may_renew, has_ended = (asyncio.Event() for _ in range(3))

    async def write_late(data: bytes, ttl: str, *, expected: int) -> None:
        if data and not may_renew.is_set():
            is_renewing.set()
            try:
                await may_renew.wait()
                await write(data, ttl, expected=expected)
            finally:
                has_ended.set()
        else:
            await write(data, ttl, expected=expected)

    async def read_early(subject: str) -> StoredMessage | None:
        found = await read_last(subject)
        may_renew.set()
        await has_ended.wait()
        return found

    async with asyncio.timeout(GUARD_SECONDS):
        await first.claim()
        monkeypatch.setattr(first, "_write", write_late)
        await is_renewing.wait()
        monkeypatch.setattr(stores[0]._stream, "read_last", read_early)
        await first.release()
        assert (first.is_valid, first.lost.is_set()) == (False, True)
        second.patience = 0
        await second.claim()
    for store in stores:
        await store.aclose()


async def test_leases_with_different_names_are_independent(settings: NatsSettings, tmp_path: Path) -> None:
    store = await NatsStore.open(settings, tmp_path)
    leases = [store.lease(name, "member") for name in ("clock", "host-hv.0")]
    async with asyncio.timeout(GUARD_SECONDS):
        for each in leases:
            await each.claim()
    assert [each.is_valid for each in leases] == [True, True]
    await store.aclose()
    assert [each.is_valid for each in leases] == [False, False]


async def test_process_that_cannot_renew_saves_nothing(
    settings: NatsSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a suspension: by its own clock, another process may be the owner by now."""
    monkeypatch.setattr(save_queue, "PATIENCE_SECONDS", 0.1)
    store = await NatsStore.open(settings, tmp_path)
    await store.claim("member-1")
    monkeypatch.setattr(NatsLease, "is_valid", False)
    with pytest.raises(StoreUnavailable, match="may no longer be the only one"):
        await store.save(WEB, b"", [], expected=None)
    assert await store.load(WEB) is None
    await store.aclose()


def test_member_of_a_directory_stays_the_same(tmp_path: Path) -> None:
    assert read_member(tmp_path) == read_member(tmp_path) != ""


def test_message_without_an_owner_names_none() -> None:
    assert [LeaseMessage.parse(data) for data in (b"", b"{}", b"[]")] == [None, None, None]
