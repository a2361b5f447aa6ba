"""Save queue: sends saves as atomic batches, and finds out what became of those without an answer.

A save is one batch: its journal lines, its guards and its record, each with the sequence that it expects. JetStream
stores the messages of a batch one after the other, or none of them.

Within this process saves take effect in the order in which they were queued, as far as they depend on each other: two
saves of one record, or a save and the guard of another one. At most `MAX_OPEN` batches are open at a time, because
a server accepts 50 from all processes. Only one of them has guards, because two batches with the same guard exclude
each other; it takes all guarded saves that are waiting.

A batch without an answer is sent again with the same expectations, until it is accepted or refused. A refused one may
be its own second copy: the id of the change, which is in each record, tells. To read the record alone proves nothing,
since a batch can be stored after that.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from secrets import token_hex
from typing import NamedTuple

from forewarn.core.backoff import backoff
from forewarn.core.journal import Entry
from forewarn.store.nats.connection import ApiRefused, ResponseMissing, ServerUnavailable
from forewarn.store.nats.message import (
    BASE,
    CHANGE,
    EXPECTED,
    EXPECTED_SUBJECT,
    TTL,
    Message,
    StoredMessage,
    journal_messages,
    record_message,
)
from forewarn.store.nats.stream import WRONG_SEQUENCE, CellStream
from forewarn.store.port import (
    Deleted,
    GuardConflict,
    Guards,
    Record,
    RecordKey,
    RevisionConflict,
    SaveUnknown,
    StoreError,
    StoreUnavailable,
)

MAX_OPEN = 8
"""How many batches of this process are open at a time."""

MAX_GUARDED = 100
"""How many guarded saves one batch has."""

MAX_MESSAGES = 1_000
"""How many messages JetStream accepts in a batch."""

PATIENCE_SECONDS = 20.0
"""How long a save is repeated: longer than the election of a leader, which takes up to 8 seconds."""

FIRST_PAUSE, LONGEST_PAUSE = 0.005, 0.5
"""The bounds of the pause in seconds before a batch is sent again; a random part of it keeps processes apart."""

NOT_SAVED = frozenset({10164, 10176, 10008, 10009})
"""Reasons for which nothing was saved, and which pass: another batch is under way with the same expectation, too many
batches are open, the cluster has no leader."""


class QueuedSave(NamedTuple):
    """A save that waits for its batch."""

    key: RecordKey
    value: bytes | None
    lines: tuple[Message, ...]
    expected: int | None
    guards: Guards
    change: str
    deadline: float
    """When it has waited long enough."""
    saved: asyncio.Future[int]

    @property
    def messages(self) -> int:
        """How many messages it adds to a batch."""
        return len(self.lines) + len(self.guards) + 1

    def refuse(self, error: Exception) -> None:
        """Give the caller an error, unless the outcome is known."""
        if not self.saved.done():
            self.saved.set_exception(error)
            self.saved.exception()  # the caller may have been cancelled

    def at_revision(self, revision: int) -> Record | Deleted:
        """Return this save as a change."""
        return Deleted(self.key, revision) if self.value is None else Record(self.key, self.value, revision)


class Saved(NamedTuple):
    """A save that is in the stream."""

    change: Record | Deleted
    last_lines: int
    """The sequence of its last journal message; 0 if it has none."""


class SaveQueue:
    """The saves of this process."""

    def __init__(
        self, stream: CellStream, *, is_allowed: Callable[[], bool], on_saved: Callable[[Saved], None]
    ) -> None:
        self._stream = stream
        self._is_allowed = is_allowed
        self._on_saved = on_saved
        self._waiting: deque[QueuedSave] = deque()
        self._open: dict[asyncio.Task[None], tuple[QueuedSave, ...]] = {}

    async def save(
        self, key: RecordKey, value: bytes | None, entries: Sequence[Entry], expected: int | None, guards: Guards
    ) -> int:
        """Queue a save and return its revision."""
        for subject in (key, *guards):
            self._stream.subjects.of(subject)  # refuses an id that is too long
        change = token_hex(12)
        lines = tuple(
            journal_messages(self._stream.subjects.journal, key, entries, change=change, format_=self._stream.format)
        )
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_SECONDS
        save = QueuedSave(key, value, lines, expected, dict(guards), change, deadline, loop.create_future())
        if save.messages > MAX_MESSAGES:
            raise ValueError(f"a save of {key} has {len(entries)} journal entries, more than fit into one batch")
        self._waiting.append(save)
        self._start_batches()
        return await asyncio.shield(save.saved)

    async def drain(self) -> None:
        """Return when every queued save has its outcome."""
        while self._open:
            await asyncio.wait(self._open)
            await asyncio.sleep(0)

    def _start_batches(self) -> None:
        """Start a batch for each save that depends on no other one, while there are free places."""
        guarded: list[QueuedSave] = []
        guards: dict[RecordKey, int | None] = {}
        kept: deque[QueuedSave] = deque()
        written = {save.key for saves in self._open.values() for save in saves}
        read = {guard for saves in self._open.values() for save in saves for guard in save.guards}
        has_guarded = bool(read)
        free = MAX_OPEN - len(self._open)
        messages = 0
        while self._waiting and (free > 0 or guarded):
            save = self._waiting.popleft()
            is_ready = save.key not in written and save.key not in read and not (written & save.guards.keys())
            if is_ready and save.guards:
                is_ready = (
                    not has_guarded
                    and (bool(guarded) or free > 0)
                    and len(guarded) < MAX_GUARDED
                    and messages + save.messages <= MAX_MESSAGES
                    and all(guards.get(guard, revision) == revision for guard, revision in save.guards.items())
                )
                if is_ready:
                    free -= not guarded
                    guarded.append(save)
                    guards |= save.guards
                    messages += save.messages
            elif is_ready and free > 0:
                free -= 1
                self._start((save,))
            else:
                is_ready = False
            if not is_ready:
                kept.append(save)
            written.add(save.key)
            read |= save.guards.keys()
        kept.extend(self._waiting)
        self._waiting = kept
        if guarded:
            self._start(tuple(guarded))

    def _start(self, saves: tuple[QueuedSave, ...]) -> None:
        task = asyncio.get_running_loop().create_task(self._run(saves), name=f"save {saves[0].key}")
        self._open[task] = saves
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._open.pop(task)
        self._start_batches()

    async def _run(self, saves: tuple[QueuedSave, ...]) -> None:
        batch = _Batch(self._stream, saves, self._is_allowed, self._on_saved)
        try:
            await batch.run()
        except Exception as error:  # noqa: BLE001 - each caller gets it
            batch.refuse(error)
            self._refuse_expired()

    def _refuse_expired(self) -> None:
        """After a batch has failed, refuse the saves that have waited for too long: the next ones may fail, too."""
        now = asyncio.get_running_loop().time()
        for save in self._waiting:
            if save.deadline <= now:
                save.refuse(StoreUnavailable(f"the stream {self._stream.name}", "earlier saves have failed"))
        self._waiting = deque(save for save in self._waiting if not save.saved.done())


class _Batch:
    """Some saves that are sent together until each has its outcome."""

    def __init__(
        self,
        stream: CellStream,
        saves: Iterable[QueuedSave],
        is_allowed: Callable[[], bool],
        on_saved: Callable[[Saved], None],
    ) -> None:
        self._stream = stream
        self._is_allowed = is_allowed
        self._saves = list(saves)
        self._on_saved = on_saved
        self._markers: dict[RecordKey, int] = {}
        """The sequences of the deletion markers that stand for records that do not exist."""
        self._sent: dict[RecordKey, set[int]] = {}
        """The sequences that were expected of each record, in all attempts."""
        self._is_uncertain = False
        """Whether an attempt has no answer, so that all saves may be in the stream."""

    async def run(self) -> None:
        """Send the saves until each has its outcome, as long as patience lasts."""
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        pauses = backoff(FIRST_PAUSE, LONGEST_PAUSE)
        while self._saves:
            try:
                if await self._attempt():
                    continue
            except ResponseMissing as error:
                self._is_uncertain = True
                reason = str(error)
            except ServerUnavailable as error:
                reason = str(error)
            except ApiRefused as error:
                if error.code not in NOT_SAVED and not self._is_uncertain:
                    raise self._stream.unavailable(error) from error
                reason = str(error)
            else:
                reason = "other changes of the same records are under way"
            if asyncio.get_running_loop().time() > deadline:
                raise self._give_up(reason)
            await asyncio.sleep(next(pauses) * random.uniform(0.5, 1))  # noqa: S311 - no secret

    def refuse(self, error: Exception) -> None:
        """Give an error to all saves without an outcome."""
        for save in self._saves:
            save.refuse(error)
        self._saves = []

    async def _attempt(self) -> bool:
        """Send the batch once; return whether something is known now that was not known before."""
        if not self._is_allowed():
            raise ServerUnavailable("this process may no longer be the only one that changes the cell")
        messages = self._encode()
        try:
            last = await self._stream.publish_batch(messages)
        except ApiRefused as error:
            if error.code != WRONG_SEQUENCE:
                raise
            return await self._resolve()
        self._accept(last, len(messages))
        return True

    def _encode(self) -> list[Message]:
        """Return the messages: journal lines, which carry guards if there are any, more guards, and the records."""
        subjects = self._stream.subjects
        guards = {guard: revision for save in self._saves for guard, revision in save.guards.items()}
        messages = [line for save in self._saves for line in save.lines]
        for number, (guard, revision) in enumerate(guards.items()):
            expectation = {
                EXPECTED: str(self._expected_sequence(guard, revision)),
                EXPECTED_SUBJECT: subjects.of(guard),
            }
            if number < len(messages):
                messages[number] = messages[number]._replace(headers=messages[number].headers | expectation)
            else:
                messages.append(Message(subjects.guards, b"", expectation | {TTL: "1s"}))
        last_line = 0
        first_record = len(messages) + 1
        for number, save in enumerate(self._saves):
            last_line += len(save.lines)
            expected = self._expected_sequence(save.key, save.expected)
            self._sent.setdefault(save.key, set()).add(expected)
            messages.append(
                record_message(
                    subjects.of(save.key),
                    save.value,
                    change=save.change,
                    expected=expected,
                    lines_distance=first_record + number - last_line if save.lines else 0,
                    format_=self._stream.format,
                )
            )
        return messages

    def _expected_sequence(self, key: RecordKey, revision: int | None) -> int:
        return self._markers.get(key, 0) if revision is None else revision

    def _accept(self, last: int, count: int) -> None:
        """Confirm all saves; the batch ends at the sequence `last`."""
        first_record = last - len(self._saves) + 1
        first_message = last - count + 1
        lines = 0
        for number, save in enumerate(self._saves):
            lines += len(save.lines)
            revision = first_record + number
            self._on_saved(Saved(save.at_revision(revision), first_message + lines - 1 if save.lines else 0))
            if not save.saved.done():
                save.saved.set_result(revision)
        self._saves = []

    async def _resolve(self) -> bool:
        """Find out why the batch was refused: refuse the saves that conflict, or confirm all if they are saved."""
        saves = self._saves
        keys = {key: None for save in saves for key in (save.key, *save.guards)}
        try:
            found = await asyncio.gather(*(self._stream.read_last(self._stream.subjects.of(key)) for key in keys))
        except ResponseMissing as error:  # of a read
            raise ServerUnavailable(str(error)) from error
        newest = dict(zip(keys, found, strict=True))
        if self._is_uncertain:
            for number, save in enumerate(saves):
                message = newest[save.key]
                if message is not None and message.headers.get(CHANGE) == save.change:
                    # One is saved, so all are; they are stored one after the other.
                    self._accept(message.sequence - number + len(saves) - 1, len(self._encode()))
                    return True
            if not any(self._is_unsaved(save, newest[save.key]) for save in saves):
                raise self._give_up("other processes have changed the records since")
        before = dict(self._markers)
        for key, message in newest.items():
            if message is not None and message.is_marker:
                self._markers[key] = message.sequence
        self._saves = []
        for save in saves:
            conflict = _find_conflict(save, newest)
            if conflict is None:
                self._saves.append(save)
            else:
                save.refuse(conflict)
        is_decided = len(self._saves) < len(saves) or before != self._markers
        if is_decided:
            self._is_uncertain = False  # no earlier copy can be accepted any more: sequences only increase
        return is_decided

    def _is_unsaved(self, save: QueuedSave, newest: StoredMessage | None) -> bool:
        """Return whether a record proves that no attempt was saved: it is unchanged, or was replaced by another."""
        if newest is None:
            return True
        sent = self._sent.get(save.key, set())
        return newest.sequence in sent or int(newest.headers.get(BASE, -1)) in sent

    def _give_up(self, reason: str) -> StoreError:
        if self._is_uncertain:
            return SaveUnknown(f"the stream {self._stream.name}", reason)
        return StoreUnavailable(f"the stream {self._stream.name}", reason)


def _find_conflict(save: QueuedSave, newest: dict[RecordKey, StoredMessage | None]) -> RevisionConflict | None:
    """Return the first guard, or else the record, that is not at the revision that the save expects."""
    for key, expected in (*save.guards.items(), (save.key, save.expected)):
        message = newest[key]
        actual = None if message is None or message.is_marker else message.sequence
        if actual != expected:
            return (RevisionConflict if key == save.key else GuardConflict)(key, expected=expected, actual=actual)
    return None
