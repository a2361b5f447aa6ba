"""Seen from the kernel: no save is acknowledged before the log that holds it is on the disk."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.store.sqlite.acknowledging_writer import acknowledgement_of, value_of

pytestmark = pytest.mark.process

WRITER = Path(__file__).with_name("acknowledging_writer.py")
WRITES = {"write", "pwrite64", "writev", "pwritev"}
SYNCS = {"fsync", "fdatasync"}

LINE = re.compile(r"^(?P<thread>\d+) +(?:<\.\.\. )?(?P<name>\w+)(?: resumed>|\()(?P<rest>.*)$")


class Call(msgspec.Struct, frozen=True):
    """A system call: on which lines of the trace it began and ended, and what is printed of it."""

    name: str
    began: int
    ended: int
    text: str

    def is_about(self, suffix: str) -> bool:
        return re.search(rf"^\d+<[^>]*{re.escape(suffix)}>", self.text) is not None

    def succeeded(self) -> bool:
        return re.search(r"\) += \d+$", self.text) is not None


def read_trace(lines: list[str]) -> Iterator[Call]:
    """Put calls together that another thread interrupted in the trace."""
    unfinished: dict[str, tuple[int, str]] = {}
    for number, line in enumerate(lines):
        if (match := LINE.match(line)) is None:
            continue
        thread, name, rest = match["thread"], match["name"], match["rest"]
        if rest.endswith("<unfinished ...>"):
            unfinished[thread] = number, rest.removesuffix("<unfinished ...>")
        else:
            began, first = unfinished.pop(thread, (number, ""))
            yield Call(name, began, number, first + rest)


class Trace:
    """What a writer did to its log, and what it acknowledged."""

    def __init__(self, lines: list[str]) -> None:
        calls = list(read_trace(lines))
        self.log_writes = [call for call in calls if call.name in WRITES and call.is_about("forewarn.db-wal")]
        self.log_syncs = [
            call for call in calls if call.name in SYNCS and call.is_about("forewarn.db-wal") and call.succeeded()
        ]
        self.acknowledgements = [call for call in calls if call.name in WRITES and "<acknowledged " in call.text]

    def check(self, saves: int) -> None:
        """Check that each acknowledgement follows a sync that followed the writing of its save."""
        for number in range(saves):
            [said] = [call for call in self.acknowledgements if acknowledgement_of(number) in call.text]
            written = next(call for call in self.log_writes if value_of(number) in call.text)
            assert written.ended < said.began, f"save {number} was acknowledged before it was written"
            assert any(written.ended < sync.began and sync.ended < said.began for sync in self.log_syncs), (
                f"save {number} was acknowledged before it was on the disk"
            )

    def check_nothing_unsynced(self) -> None:
        """Check that at each acknowledgement all of the log was on the disk: right for saves one by one only."""
        for said in self.acknowledgements:
            last = max(call.ended for call in self.log_writes if call.began < said.began)
            assert any(last < sync.began and sync.ended < said.began for sync in self.log_syncs), said.text


@pytest.fixture(scope="module")
def strace() -> str:
    found = shutil.which("strace")
    if found is None:
        pytest.skip("strace is not installed: apt-get install strace")
    tried = subprocess.run([found, "-o", "/dev/null", "true"], check=False, capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"strace may not trace here: {tried.stderr.strip()}")
    return found


def trace_writer(strace: str, directory: Path, *, saves: int, order: str, synchronous: str = "FULL") -> Trace:
    trace = directory / "trace.txt"
    done = subprocess.run(
        [
            *(strace, "-f", "-y", "-s", "10000", "-o", str(trace)),
            *("-e", f"trace={','.join(sorted(WRITES | SYNCS))}"),
            *(sys.executable, str(WRITER), str(directory / "data"), str(saves), order, synchronous),
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [acknowledgement_of(number) for number in range(saves)]
    return Trace(trace.read_text(encoding="utf-8", errors="replace").splitlines())


def test_each_acknowledgement_follows_its_sync(strace: str, tmp_path: Path) -> None:
    trace = trace_writer(strace, tmp_path, saves=25, order="one-by-one")
    trace.check(25)
    trace.check_nothing_unsynced()


def test_saves_at_once_share_their_sync_and_are_acknowledged_after_it(strace: str, tmp_path: Path) -> None:
    trace = trace_writer(strace, tmp_path, saves=64, order="at-once")
    trace.check(64)
    last = trace.acknowledgements[-1].began
    first = next(call for call in trace.log_writes if value_of(0) in call.text).began
    assert len([sync for sync in trace.log_syncs if first < sync.began and sync.ended < last]) == 1


@pytest.mark.parametrize("synchronous", ["OFF", "NORMAL"])
def test_missing_sync_is_detected(strace: str, tmp_path: Path, synchronous: str) -> None:
    trace = trace_writer(strace, tmp_path, saves=5, order="one-by-one", synchronous=synchronous)
    with pytest.raises(AssertionError, match="acknowledged before it was on the disk"):
        trace.check(5)
    with pytest.raises(AssertionError, match="acknowledged"):
        trace.check_nothing_unsynced()
