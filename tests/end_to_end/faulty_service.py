"""A service on a faulty disk: operations of operators and guests, what it reports about them, and what is saved."""

import asyncio
import http.client
import json
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.api.errors import ApiError, ConnectionClosed, RequestRefused, ServiceUnreachable
from forewarn.api.local_service import read_token
from forewarn.core.event import EventType
from forewarn.core.journal import EntryKind
from forewarn.store.port import JournalQuery
from forewarn.store.sqlite.database import PRAGMAS
from forewarn.store.sqlite.store import SqliteStore
from tests.support.faulty_disk import FaultPlan, FaultyDisk
from tests.support.program import GUARD
from tests.support.serve_process import EVENTS, FLEET, SETTINGS, isolated_environment

FORKER = Path(__file__).with_name("service_forker.py")
IMPORTED = "".join(f'\n[[scopes]]\nname = "new-{n}"\nkind = "standalone"\n' for n in range(5))

SAVED, REFUSED, UNKNOWN = "saved", "refused", "unknown"
FRAME_BYTES = 4096 + 24
BYTES_BEFORE_CHECKPOINT = 4 * FRAME_BYTES
"""How much room the log has before a checkpoint when the service has started."""

OUTCOMES = {"save-failed": REFUSED, "import-failed": REFUSED, "outcome-unknown": UNKNOWN}


class ServiceForker:
    """Starts services, one at a time, in a process with a faulty disk."""

    def __init__(self, disk: FaultyDisk, home: Path) -> None:
        self.disk = disk
        self._lines: Queue[str] = Queue()
        self._process = subprocess.Popen(
            [sys.executable, str(FORKER)],
            env=isolated_environment(home) | disk.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def start(self, directory: Path) -> "FaultyService":
        """Start a service and wait until it is ready."""
        self._ask(str(directory))
        ready = self.wait_for(lambda record: record["message"].startswith("ready"))
        return FaultyService(self, directory, ready["operator_url"])

    def kill(self) -> None:
        """Kill the service with SIGKILL, unless it is dead already."""
        assert self._ask("") == -signal.SIGKILL

    def _ask(self, line: str) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def wait_for(self, matches: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the next line of the log that matches."""
        while True:
            line = self._lines.get(timeout=GUARD)
            assert line, "the forker has ended"
            record: dict[str, Any] = json.loads(line) if line.startswith("{") else {"message": line}
            if matches(record):
                return record

    def close(self) -> None:
        """End the forker."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(GUARD)
        self._process.stdout.close()
        self._reader.join(GUARD)

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put("")


class FaultyService:
    """A running service."""

    def __init__(self, forker: ServiceForker, directory: Path, url: str) -> None:
        self.forker = forker
        self.disk = forker.disk
        self.directory = directory
        self.url = url

    @property
    def api(self) -> ApiClient:
        """A client with the token of the data directory."""
        return ApiClient(self.url, read_token(self.directory / "data/token"), timeout=GUARD)

    def request(self, vm: str, method: str, body: str | None = None) -> tuple[int, bytes]:
        """Send a request as a VM; return status and body."""
        parts = urlsplit(str(self.api.vm(vm).guest_url))
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=GUARD)
        try:
            connection.request(method, EVENTS, body, {"Metadata": "true"})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def problems(self) -> list[str]:
        """Return the problems that /readyz shows."""
        parts = urlsplit(self.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=GUARD)
        try:
            connection.request("GET", "/readyz")
            problems: list[str] = json.loads(connection.getresponse().read())["problems"]
            return problems
        finally:
            connection.close()


class Report(NamedTuple):
    """What the service said about an operation, and how many of its rows it said are in the journal."""

    outcome: str
    rows: int | None = None


class Operation(NamedTuple):
    """Something that is saved, what has to be there before, and which rows it writes into the journal."""

    prepare: Callable[[FaultyService], None]
    perform: Callable[[FaultyService], Report]
    kind: EntryKind
    rows: int
    is_at_checkpoint: bool = False


def _outcome_of(change: Callable[[], object]) -> Report:
    try:
        change()
    except RequestRefused as refusal:
        return Report(OUTCOMES[refusal.code])
    except (ConnectionClosed, ServiceUnreachable):
        return Report(UNKNOWN)
    return Report(SAVED)


def _prepare_nothing(_: FaultyService) -> None:
    """Leave the fleet as it is."""


def _enable(service: FaultyService) -> None:
    for vm in ("db", "web-0"):
        assert service.request(vm, "GET")[0] == 200


def _schedule(service: FaultyService) -> Report:
    return _outcome_of(lambda: service.api.schedule(v1.ScheduleEvents(type=EventType.REBOOT, vms=("db",))))


def _prepare_approval(service: FaultyService) -> None:
    _enable(service)
    assert _schedule(service).outcome == SAVED


def _approve(service: FaultyService) -> Report:
    (event,) = service.api.events()
    body = json.dumps({"StartRequests": [{"EventId": event.id}]})
    try:
        status, answer = service.request("db", "POST", body)
    except (OSError, http.client.HTTPException, ApiError):
        return Report(UNKNOWN)
    if status == 200:
        return Report(SAVED)
    assert status == 503, (status, answer)
    return Report(REFUSED if b"no effect" in answer else UNKNOWN)


def _hold(service: FaultyService) -> Report:
    return _outcome_of(lambda: service.api.hold(v1.CreateHold(reason="disk swap")))


def _import(service: FaultyService) -> Report:
    """Import a file; the last line of the response has the result or the error."""
    try:
        *_, last = service.api.import_fleet((FLEET + IMPORTED).encode())
    except (ApiError, ValueError):
        return Report(UNKNOWN)
    if last.error is None:
        return Report(SAVED if last.result is not None else UNKNOWN)
    return Report(OUTCOMES[last.error.error.code], last.done)


def _step(service: FaultyService) -> Report:
    """Let a campaign announce its first wave. Nobody asks for that, so its report is what operators see."""
    selection = v1.CampaignSelection(scopes=("web",))
    request = v1.StartCampaign(name="kernel", type=v1.CampaignType.REBOOT, selection=selection, duration="1m")
    started = _outcome_of(lambda: service.api.start_campaign(request))
    if started.outcome != SAVED:
        return started
    try:
        while not (seen := len(list(service.api.events()))):
            if service.disk.is_broken:
                service.forker.wait_for(_is_refused_step)
                seen = len(list(service.api.events()))  # the disk may have failed after the announcement was saved
                break
        unknown = any("until the log can be written" in problem for problem in service.problems())
    except (ApiError, OSError):
        return Report(UNKNOWN)
    if seen:
        return Report(SAVED)
    return Report(UNKNOWN if unknown else REFUSED)


def _is_refused_step(record: dict[str, Any]) -> bool:
    """Return whether the line says that a step of a campaign was not saved, so that the outcome is known by now."""
    loggers = ("forewarn.fleet.campaign.", "forewarn.fleet.retry")
    return record.get("level") == "warning" and record["logger"].startswith(loggers)


OPERATIONS = {
    "schedule": Operation(_enable, _schedule, EntryKind.SCHEDULED, 1),
    "approval": Operation(_prepare_approval, _approve, EntryKind.APPROVED, 1),
    "hold": Operation(_prepare_nothing, _hold, EntryKind.HELD, 1),
    "import": Operation(_prepare_nothing, _import, EntryKind.SCOPE_CREATED, 5),
    "campaign step": Operation(_enable, _step, EntryKind.SCHEDULED, 1),
    "schedule at a checkpoint": Operation(_enable, _schedule, EntryKind.SCHEDULED, 1, is_at_checkpoint=True),
}


async def read_rows(data: Path, kind: EntryKind) -> int:
    """Open the store of a service that was killed; return how many rows of a kind its journal has."""
    store = await SqliteStore.open(data)
    try:
        return len(await store.journal(JournalQuery(kinds=(kind,))))
    finally:
        await store.aclose()


class FaultLab:
    """Performs one operation again and again, each time on the same data, with another fault."""

    def __init__(self, forker: ServiceForker, directory: Path, operation: Operation) -> None:
        self._forker = forker
        self._operation = operation
        self._base, self._directory = directory / "base", directory / "run"
        self._base.mkdir(parents=True)
        (self._base / "fleet.toml").write_text(FLEET)
        (self._base / "forewarn.toml").write_text(SETTINGS)
        service = forker.start(self._base)
        operation.prepare(service)
        forker.kill()
        if operation.is_at_checkpoint:
            asyncio.run(self._fill_log(reserve=self._measure_start() + BYTES_BEFORE_CHECKPOINT))
        self._rows_before = asyncio.run(self._count(self._base))

    def _measure_start(self) -> int:
        """Return by how many bytes the log grows when the service starts."""
        log = self._base / "data/forewarn.db-wal"
        before = log.stat().st_size
        self._forker.start(self._base)
        self._forker.kill()
        return log.stat().st_size - before

    async def _fill_log(self, *, reserve: int) -> None:
        """Fill the log until so many bytes are left before a checkpoint, and leave it like that."""
        data, copy = self._base / "data", self._base / "copy"
        store = await SqliteStore.open(data)
        full = int(PRAGMAS["wal_autocheckpoint"]) * FRAME_BYTES
        while (data / "forewarn.db-wal").stat().st_size < full - reserve:
            await store.check()
        shutil.copytree(data, copy)
        await store.aclose()
        shutil.rmtree(data)
        copy.rename(data)

    async def _count(self, directory: Path) -> int:
        """Count the rows in a copy, so that the directory stays as it is."""
        copy = directory.with_name("copy")
        shutil.copytree(directory / "data", copy)
        try:
            return await read_rows(copy, self._operation.kind)
        finally:
            shutil.rmtree(copy)

    def count_calls(self) -> int:
        """Return how many calls the operation makes on a disk without faults."""
        report, rows = self.run(None)
        assert (report.outcome, rows) == (SAVED, self._operation.rows)
        return self._forker.disk.calls

    def run(self, plan: FaultPlan | None) -> tuple[Report, int]:
        """Perform the operation with a fault, kill the service; return the report and how many rows are saved."""
        shutil.rmtree(self._directory, ignore_errors=True)
        shutil.copytree(self._base, self._directory)
        service = self._forker.start(self._directory)
        self._forker.disk.arm(plan)
        try:
            report = self._operation.perform(service)
        finally:
            self._forker.kill()  # first: a campaign repeats its step by itself, on a good disk with success
            self._forker.disk.disarm()
        return report, asyncio.run(self._count(self._directory)) - self._rows_before

    def check(self, plan: FaultPlan) -> None:
        """Check that what the service reported about the operation is what was saved."""
        report, rows = self.run(plan)
        if report.outcome == SAVED:
            allowed = {self._operation.rows}
        elif report.outcome == REFUSED:
            allowed = {report.rows or 0}
        else:
            allowed = set(range(self._operation.rows + 1))
        assert rows in allowed, f"{plan}: reported {report}, but {rows} rows are in the journal"


@contextmanager
def run_forker(directory: Path) -> Iterator[ServiceForker]:
    """Run a forker with a faulty disk."""
    directory.mkdir()
    forker = ServiceForker(FaultyDisk.create(directory), directory)
    try:
        yield forker
    finally:
        forker.close()
