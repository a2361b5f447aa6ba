"""A power loss takes back nothing that was acknowledged, and leaves nothing by halves."""

import asyncio
import errno
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.store.sqlite.crashing_writer import KEYS
from tests.store.sqlite.data_directories import fill
from tests.store.sqlite.power_loss import Call, Kind, RecordedDisk, read_calls
from tests.store.sqlite.test_store_crash import WRITER, Numbers, check_crashed, naming, note
from tests.support.faulty_disk import Fault, FaultPlan, FaultyDisk

pytestmark = pytest.mark.process

SHARES = (0.0, 0.5, 0.9, 1.0)
"""Which share of the sectors that are not synced gets onto the disk."""


def record_writer(directory: Path, *, acknowledgements: int, failing_sync_every: int = 0) -> list[Call]:
    """Let a writer write in `directory/data`, a copy of `directory/base`; return its calls."""
    asyncio.run(fill(directory / "base", records=0))
    shutil.copytree(directory / "base", directory / "data")
    disk = FaultyDisk.create(directory)
    record = directory / "record"
    environ = disk.environ | {"FAULTY_DISK_RECORD": str(record), "FAULTY_DISK_DIRECTORY": str(directory / "data")}
    with subprocess.Popen(
        [sys.executable, str(WRITER), str(directory / "data")],
        env=os.environ | environ,
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        assert writer.stdout is not None
        for number in range(acknowledgements):
            assert writer.stdout.readline(), "the writer has ended; its error is above"
            if failing_sync_every and number % failing_sync_every == 0:
                call = 1 + number // failing_sync_every % 3
                disk.arm(FaultPlan(Fault.REFUSED, errno.EIO, call, call, only_syncs=True))
        writer.kill()
    return list(read_calls(record))


def lose_power_again_and_again(directory: Path, calls: list[Call], *, losses: int, seed: int) -> int:
    """Check what power losses at random moments leave; return how many saves the last one left."""
    chance = random.Random(seed)
    disk, copy = RecordedDisk(directory / "base"), directory / "copy"
    moments = set(chance.sample(range(len(calls)), losses))
    acknowledged: Numbers = {key.id: 0 for key in KEYS}
    saved: Numbers = {}
    for number, call in enumerate(calls):
        if number in moments:
            with naming(seed, number):
                disk.lose_power(copy, chance, chance.choice(SHARES))
                saved = asyncio.run(check_crashed(copy))
                for record_id, last in acknowledged.items():
                    assert last <= saved[record_id] <= last + 1, record_id
                shutil.rmtree(copy)
        disk.add(call)
        if call.kind is Kind.PRINT:
            note(acknowledged, call.data.decode())
    return sum(saved.values())


def test_power_loss_takes_back_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    calls = record_writer(tmp_path, acknowledgements=450)
    assert any(call.kind is Kind.SYNC and call.file == 1 for call in calls), "no checkpoint was recorded"
    assert lose_power_again_and_again(tmp_path, calls, losses=40, seed=2016) > 40


def test_model_notices_a_missing_sync(tmp_path: Path) -> None:
    calls = [call for call in record_writer(tmp_path, acknowledgements=100) if call.kind is not Kind.SYNC]
    with pytest.raises(AssertionError):
        lose_power_again_and_again(tmp_path, calls, losses=30, seed=1)


def test_power_loss_after_failed_syncs_takes_back_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    calls = record_writer(tmp_path, acknowledgements=250, failing_sync_every=20)
    assert any(call.kind is Kind.FAILED_SYNC for call in calls), "no sync failed"
    assert lose_power_again_and_again(tmp_path, calls, losses=40, seed=2017) > 40


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("failing_sync_every", [0, 10, 50])
def test_power_losses_at_many_moments_take_back_nothing(tmp_path: Path, failing_sync_every: int) -> None:
    calls = record_writer(tmp_path, acknowledgements=3_000, failing_sync_every=failing_sync_every)
    assert lose_power_again_and_again(tmp_path, calls, losses=800, seed=failing_sync_every) > 100
