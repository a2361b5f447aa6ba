"""A process that is killed while it writes loses nothing that it acknowledged, and does nothing by halves."""

import asyncio
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest

from forewarn.store.port import JournalQuery, Store
from forewarn.store.sqlite.store import SqliteStore
from tests.store.contract import whole_journal
from tests.store.sqlite.crashing_writer import GUARD, GUARDED, KEYS, entries_of, value_of

pytestmark = pytest.mark.process

WRITER = Path(__file__).with_name("crashing_writer.py")

Numbers = dict[str, int]
"""The number of the last save of each record, by its id."""


@contextmanager
def naming(seed: int, kill: int) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note(f"seed {seed}, kill {kill}")
        raise


def write_until_killed(directory: Path, chance: random.Random) -> Numbers:
    """Return the last acknowledged number of each record that was written to."""
    acknowledged: Numbers = {}
    with subprocess.Popen(
        [sys.executable, str(WRITER), str(directory)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        assert writer.stderr is not None
        if chance.random() < 0.2:
            time.sleep(chance.uniform(0, 0.5))  # anywhere, most likely while it starts or opens the store
        else:
            for _ in range(chance.randint(1, 120)):
                line = writer.stdout.readline()
                assert line, writer.stderr.read()
                note(acknowledged, line)
            time.sleep(chance.uniform(0, 0.02))  # somewhere between two acknowledgements
        writer.kill()
        for line in writer.stdout:
            note(acknowledged, line)
        assert writer.wait() == -signal.SIGKILL, writer.stderr.read()
    return acknowledged


def note(acknowledged: Numbers, line: str) -> None:
    record_id, number = line.split()
    acknowledged[record_id] = int(number)


async def read_numbers(store: Store) -> Numbers:
    """Return the last saved number of each record, after checking that each save is there as a whole."""
    numbers: Numbers = {}
    for key in KEYS:
        journal = [row.entry for row in await whole_journal(store, JournalQuery(key=key))]
        last = len(journal) // 2
        expected = [entry for number in range(1, last + 1) for entry in entries_of(number)]
        assert [msgspec.structs.replace(entry, why="") for entry in journal] == expected
        record = await store.load(key)
        assert (record.value if record else None) == (value_of(key, last) if last else None)
        numbers[key.id] = last
    await check_guards(store)
    return numbers


async def check_guards(store: Store) -> None:
    """Check that each guarded save rests on what the guard was when it was saved: the journal has their order."""
    current = 0
    for row in await whole_journal(store):
        if row.key == GUARD:
            current = (row.entry.n + 1) // 2
        elif row.key in GUARDED:
            assert row.entry.why == (str(current) if current else "")


async def check_crashed(directory: Path) -> Numbers:
    """Return the last saved numbers of a crashed store, after checking that it opens and is sound."""
    store = await SqliteStore.open(directory)
    numbers = await read_numbers(store)
    await store.aclose()
    with closing(sqlite3.connect(directory / "forewarn.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    return numbers


def crash_again_and_again(directory: Path, copy: Path, *, kills: int, seed: int) -> int:
    """Kill writers in one directory; check what each leaves in a copy, so that the next one finds it as it was left."""
    chance = random.Random(seed)
    saved: Numbers = {key.id: 0 for key in KEYS}
    for kill in range(kills):
        with naming(seed, kill):
            acknowledged = saved | write_until_killed(directory, chance)
            if not directory.exists():
                assert not any(acknowledged.values())
                continue
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(directory, copy)
            saved = asyncio.run(check_crashed(copy))
            for record_id, number in acknowledged.items():
                # The one that was on its way may have been saved without an acknowledgement.
                assert number <= saved[record_id] <= number + 1, record_id
    return sum(saved.values())


def test_killed_writer_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    assert crash_again_and_again(tmp_path / "data", tmp_path / "copy", kills=25, seed=2016) > 25


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(10))
def test_writer_killed_many_times_loses_nothing_it_acknowledged(tmp_path: Path, seed: int) -> None:
    assert crash_again_and_again(tmp_path / "data", tmp_path / "copy", kills=100, seed=seed) > 100
