"""Durable saves per second with many writers at once, compared with one commit per save."""

import asyncio
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import msgspec
import uvloop

from bench.figures import format_number, ratio_of_rounds, rounded
from bench.fleets import Shape, encode, make_scope
from bench.result import BenchmarkResult
from bench.workspace import Workspace
from forewarn.core.journal import Entry, EntryKind
from forewarn.store.port import Record, RecordKey, RecordKind
from forewarn.store.sqlite.database import DATABASE_FILE, prepare_database
from forewarn.store.sqlite.store import SqliteStore
from forewarn.store.sqlite.writer import Save, Writer, encode_entries

TARGET_RATIO = 5.0


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """Number of writers, and duration."""

    writers: int = 64
    vms_each: int = 20
    rounds: int = 5
    seconds: float = 2.0


FULL = Size()
QUICK = Size(rounds=1, seconds=0.5)


class Payload(msgspec.Struct, frozen=True):
    """The data of each save: a scope and one journal line."""

    value: bytes
    entry: Entry


def measure(workspace: Workspace, size: Size = FULL) -> BenchmarkResult:
    """Measure both alternately on the same disk."""
    now = datetime.now(UTC)
    scope = make_scope(Shape(scopes=1, vms_each=size.vms_each), 0, now=now)
    payload = Payload(encode(scope), Entry(n=1, at=now, kind=EntryKind.SCHEDULED, by="bench"))
    together: list[float] = []
    each: list[float] = []
    for number in range(1, size.rounds + 1):
        each.append(_commit_each(workspace.empty_directory(), payload, size))
        together.append(uvloop.run(_save_together(workspace.empty_directory(), payload, size)))
        workspace.log(
            f"    round {number} of {size.rounds}: a commit each {format_number(each[-1])}/s, "
            f"{size.writers} writers {format_number(together[-1])}/s"
        )
    ratio = ratio_of_rounds(together, each)
    return BenchmarkResult(
        what=f"durable saves per second, {size.writers} writers at once, against a commit each",
        measured=f"{ratio:.1f} × ({format_number(median(together))}/s : {format_number(median(each))}/s)",
        target=f"≥ {TARGET_RATIO:.0f} ×",
        met=ratio >= TARGET_RATIO,
        figures={
            "ratio": round(ratio, 2),
            "together_per_second": rounded(together),
            "each_per_second": rounded(each),
            "value_bytes": len(payload.value),
        },
        note=(
            f"records of {len(payload.value):,} bytes and one journal line; a commit each: the store's own writer in a "
            f"bare loop, without event loop or threads; both wait for the disk (synchronous=FULL); median of "
            f"{size.rounds} rounds' ratios"
        ),
    )


def _commit_each(directory: Path, payload: Payload, size: Size) -> float:
    """Save the writers' records in turn, each in a separate transaction, as fast as possible."""
    path = directory / DATABASE_FILE
    prepare_database(path)
    revisions: dict[RecordKey, int | None] = dict.fromkeys(_keys(size))
    saved = 0
    with closing(Writer(path)) as writer:
        began_at = time.monotonic()
        while not saved or time.monotonic() - began_at < size.seconds:
            for key, expected in revisions.items():
                (outcome,) = writer.commit([Save(key, payload.value, encode_entries([payload.entry]), expected)])
                assert isinstance(outcome, Record)
                revisions[key] = outcome.revision
            saved += len(revisions)
        return saved / (time.monotonic() - began_at)


async def _save_together(directory: Path, payload: Payload, size: Size) -> float:
    """Let each writer save its record again as soon as the last save is durable."""
    store = await SqliteStore.open(directory)
    try:
        began_at = time.monotonic()
        until = began_at + size.seconds
        saved = sum(await asyncio.gather(*(_write(store, key, payload, until) for key in _keys(size))))
        return saved / (time.monotonic() - began_at)
    finally:
        await store.aclose()


async def _write(store: SqliteStore, key: RecordKey, payload: Payload, until: float) -> int:
    revision: int | None = None
    saved = 0
    while not saved or time.monotonic() < until:
        revision = await store.save(key, payload.value, [payload.entry], expected=revision)
        saved += 1
    return saved


def _keys(size: Size) -> list[RecordKey]:
    return [RecordKey(RecordKind.SCOPE, f"writer-{number}") for number in range(size.writers)]
