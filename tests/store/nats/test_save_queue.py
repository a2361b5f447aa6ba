"""The queue of saves: order, batches, and what becomes of a save without an answer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import pytest
from nats.aio.msg import Msg

from forewarn.settings.nats import NatsSettings
from forewarn.store.nats import save_queue
from forewarn.store.nats.connection import ResponseMissing, ServerUnavailable
from forewarn.store.nats.message import Message
from forewarn.store.nats.store import NatsStore
from forewarn.store.port import (
    GuardConflict,
    JournalQuery,
    Record,
    RecordKey,
    RecordKind,
    RevisionConflict,
    SaveUnknown,
    StoreUnavailable,
)
from tests.store.contract import BATCH, HOLD, LEASE, WEB, entries, entry, whole_journal
from tests.support.nats_servers import NatsCluster

pytestmark = pytest.mark.process


class Answers:
    """Replaces the answers to the commits of a store's batches; everything else goes to the server as it is."""

    def __init__(self, store: NatsStore) -> None:
        self.sent = 0
        self._connection = store._stream.connection
        self._request = self._connection.request
        self._lost: list[Callable[[], Awaitable[None]]] = []
        self._codes: list[int] = []
        self._connection.request = self._handle  # type: ignore[method-assign]  # a fault between client and server

    def lose(self, and_then: Callable[[], Awaitable[None]] | None = None) -> None:
        """Let the server commit the next batch, lose its answer, and do something then."""
        self._lost.append(and_then or self._do_nothing)

    def refuse(self, code: int) -> None:
        """Refuse the next batch, without sending it, with a reason of JetStream."""
        self._codes.append(code)

    async def _handle(self, subject: str, data: bytes = b"", headers: Mapping[str, str] | None = None) -> Msg:
        if not headers or "Nats-Batch-Commit" not in headers:
            return await self._request(subject, data, headers)
        self.sent += 1
        if self._codes:
            error = f'{{"error":{{"code":400,"err_code":{self._codes.pop(0)},"description":"test"}},"seq":0}}'
            return Msg(_client=self._connection._client, data=error.encode())
        answer = await self._request(subject, data, headers)
        if self._lost:
            await self._lost.pop(0)()
            raise ResponseMissing("lost by the test")
        return answer

    async def _do_nothing(self) -> None:
        pass


@pytest.fixture
async def settings(nats_server: NatsCluster) -> NatsSettings:
    return await nats_server.create_cell()


@pytest.fixture
async def store(settings: NatsSettings, tmp_path: Path) -> AsyncIterator[NatsStore]:
    store = await NatsStore.open(settings, tmp_path / "one")
    yield store
    await store.aclose()


@pytest.fixture
async def other(settings: NatsSettings, tmp_path: Path) -> AsyncIterator[NatsStore]:
    """A second process."""
    store = await NatsStore.open(settings, tmp_path / "two")
    yield store
    await store.aclose()


@pytest.mark.parametrize("times", [1, 3])
async def test_save_whose_answer_was_lost_is_saved_once(store: NatsStore, times: int) -> None:
    first = await store.save(WEB, b"one", entries(1), expected=None)
    answers = Answers(store)
    for _ in range(times):
        answers.lose()
    second = await store.save(WEB, b"two", entries(2, first=2), expected=first)
    assert await store.load(WEB) == Record(WEB, b"two", second)
    assert [row.entry.n for row in await store.journal(JournalQuery())] == [1, 2, 3]
    assert answers.sent == times + 1


async def test_deletion_whose_answer_was_lost_is_saved_once(store: NatsStore) -> None:
    first = await store.save(WEB, b"one", [], expected=None)
    Answers(store).lose()
    assert await store.save(WEB, None, entries(1), expected=first) > first
    assert await store.load(WEB) is None
    assert len(await whole_journal(store)) == 1


async def test_whole_guarded_batch_is_found_again_after_its_answer_was_lost(store: NatsStore) -> None:
    hold = await store.save(HOLD, b"free", [], expected=None)
    keys = [RecordKey(RecordKind.SCOPE, f"scope-{n}") for n in range(5)]
    answers = Answers(store)
    answers.lose()
    answers.lose()
    saves = [store.save(key, b"value", entries(n), expected=None, guards={HOLD: hold}) for n, key in enumerate(keys)]
    revisions = await asyncio.gather(*saves)
    for key, revision in zip(keys, revisions, strict=True):
        assert await store.load(key) == Record(key, b"value", revision)
    assert [row.key for row in await whole_journal(store)] == [key for n, key in enumerate(keys) for _ in range(n)]


async def test_save_that_was_replaced_before_its_answer_came_is_not_refused(store: NatsStore, other: NatsStore) -> None:
    first = await store.save(WEB, b"one", entries(1), expected=None)

    async def replace() -> None:
        newest = await other.load(WEB)
        assert newest is not None
        await other.save(WEB, b"three", entries(1, first=3), expected=newest.revision)

    Answers(store).lose(replace)
    with pytest.raises(SaveUnknown):
        await store.save(WEB, b"two", entries(1, first=2), expected=first)
    assert [row.entry.n for row in await whole_journal(other)] == [1, 2, 3]


async def test_unanswered_save_that_lost_against_another_is_refused(store: NatsStore, other: NatsStore) -> None:
    """The newest value names the revision that it has replaced, which is the one that was expected here."""
    first = await store.save(WEB, b"one", entries(1), expected=None)
    second = await other.save(WEB, b"theirs", entries(1, first=2), expected=first)
    answers = Answers(store)
    answers.lose()
    with pytest.raises(RevisionConflict) as conflict:
        await store.save(WEB, b"mine", entries(1, first=9), expected=first)
    assert (conflict.value.expected, conflict.value.actual) == (first, second)
    assert [row.entry.n for row in await whole_journal(store)] == [1, 2]


@pytest.mark.parametrize("code", [10164, 10176, 10008])
async def test_batch_that_was_not_saved_for_now_is_sent_again(store: NatsStore, code: int) -> None:
    answers = Answers(store)
    for _ in range(3):
        answers.refuse(code)
    revision = await store.save(WEB, b"one", entries(1), expected=None)
    assert (answers.sent, await store.load(WEB)) == (4, Record(WEB, b"one", revision))


async def test_other_refusal_is_an_error_at_once(store: NatsStore) -> None:
    answers = Answers(store)
    answers.refuse(10077)
    with pytest.raises(StoreUnavailable, match="10077"):
        await store.save(WEB, b"one", entries(1), expected=None)
    assert (answers.sent, await store.load(WEB)) == (1, None)


async def test_save_without_any_answer_is_unknown_in_the_end(store: NatsStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(save_queue, "PATIENCE_SECONDS", 0.2)

    async def never(subject: str, data: bytes = b"", headers: Mapping[str, str] | None = None) -> Msg:
        raise ResponseMissing("lost by the test")

    monkeypatch.setattr(store._stream.connection, "request", never)
    with pytest.raises(SaveUnknown):
        await store.save(WEB, b"one", entries(1), expected=None)


async def test_saves_that_have_waited_too_long_are_refused_with_a_failed_batch(
    store: NatsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They do not wait as long again, one after the other, during an outage."""
    monkeypatch.setattr(save_queue, "PATIENCE_SECONDS", 0.0)
    sent: set[bytes] = set()

    async def refuse(messages: Sequence[Message]) -> int:
        sent.update(message.data for message in messages)
        raise ServerUnavailable("test")

    monkeypatch.setattr(store._stream, "publish_batch", refuse)
    values = (b"one", b"two", b"three")
    results = await asyncio.gather(
        *(store.save(WEB, value, [], expected=None) for value in values), return_exceptions=True
    )
    assert [type(result) for result in results] == [StoreUnavailable] * 3
    assert sent == {b"one"}


async def test_saves_wait_for_any_time_while_batches_succeed(store: NatsStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(save_queue, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(save_queue, "MAX_OPEN", 1)
    keys = [RecordKey(RecordKind.SCOPE, f"scope-{n}") for n in range(3)]
    revisions = await asyncio.gather(*(store.save(key, b"value", [], expected=None) for key in keys))
    assert [await store.load(key) for key in keys] == [
        Record(key, b"value", revision) for key, revision in zip(keys, revisions, strict=True)
    ]


async def test_guarded_saves_share_batches(store: NatsStore) -> None:
    hold = await store.save(HOLD, b"free", [], expected=None)
    lease = await store.save(LEASE, b"mine", [], expected=None)
    answers = Answers(store)
    keys = [RecordKey(RecordKind.SCOPE, f"scope-{n}") for n in range(250)]
    guards = {HOLD: hold, LEASE: lease}
    saves = [store.save(key, b"value", entries(1), expected=None, guards=guards) for key in keys]
    revisions = await asyncio.gather(*saves)
    assert answers.sent <= 4
    for key, revision in zip(keys[::50], revisions[::50], strict=True):
        assert await store.load(key) == Record(key, b"value", revision)
    assert sorted(row.key for row in await whole_journal(store)) == sorted(keys)


async def test_conflict_of_one_save_does_not_refuse_the_others_of_its_batch(store: NatsStore, other: NatsStore) -> None:
    hold = await store.save(HOLD, b"free", [], expected=None)
    await other.save(WEB, b"theirs", [], expected=None)
    results = await asyncio.gather(
        store.save(BATCH, b"one", entries(1), expected=None, guards={HOLD: hold}),
        store.save(WEB, b"one", entries(1), expected=None, guards={HOLD: hold}),
        store.save(RecordKey(RecordKind.SCOPE, "third"), b"one", entries(1), expected=None, guards={HOLD: hold}),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [int, RevisionConflict, int]
    assert len(await whole_journal(store)) == 2


async def test_no_save_of_two_processes_has_an_outdated_guard(store: NatsStore, other: NatsStore) -> None:
    holds = [await store.save(HOLD, b"0", [entry(1, why="0")], expected=None)]

    async def change() -> None:
        for number in range(1, 21):
            holds.append(await store.save(HOLD, b"", [entry(1, why=str(number))], expected=holds[-1]))

    async def start(process: NatsStore, key: RecordKey) -> None:
        number = -1
        while number < 20:
            number, hold = len(holds) - 1, holds[-1]
            present = await process.load(key)
            expected = present.revision if present else None
            try:
                await process.save(key, b"", [entry(1, why=str(number))], expected=expected, guards={HOLD: hold})
            except GuardConflict:
                continue

    keys = [RecordKey(RecordKind.SCOPE, f"scope-{n}") for n in range(4)]
    await asyncio.gather(change(), *(start((store, other)[n % 2], key) for n, key in enumerate(keys)))
    for process in (store, other):
        current = ""
        for row in await whole_journal(process):
            current = row.entry.why if row.key == HOLD else current
            assert row.entry.why == current


async def test_revisions_of_parallel_batches_are_those_of_the_stream(store: NatsStore, other: NatsStore) -> None:
    """The revision of a save follows from the end of its batch, because its messages are stored one after the other."""
    keys = [RecordKey(RecordKind.SCOPE, f"scope-{n}") for n in range(40)]
    saves = [(store, other)[n % 2].save(key, b"", entries(n % 7 * 150), expected=None) for n, key in enumerate(keys)]
    revisions = await asyncio.gather(*saves)
    assert [record and record.revision for record in [await store.load(key) for key in keys]] == revisions


async def test_too_many_entries_are_refused(store: NatsStore) -> None:
    with pytest.raises(ValueError, match="more than fit"):
        await store.save(WEB, b"", entries(save_queue.MAX_MESSAGES * 200), expected=None)
    assert await store.load(WEB) is None


async def test_record_of_the_cell_cannot_be_saved(store: NatsStore) -> None:
    with pytest.raises(ValueError, match="fleet/cell belongs to the store"):
        await store.save(RecordKey(RecordKind.FLEET, "cell"), b"", [], expected=None)
