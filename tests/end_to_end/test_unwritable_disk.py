"""A service that starts on a full or read-only disk serves its guests, says that it cannot save, and recovers."""

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.api.errors import RequestRefused
from forewarn.api.local_service import read_token
from forewarn.core.event import EventType
from tests.support.disks import make_full, make_read_only, mount_disk
from tests.support.processes import wait_until
from tests.support.serve_process import EVENTS, SETTINGS, ServeProcess, get, run_serve

pytestmark = pytest.mark.process

REBOOT = v1.ScheduleEvents(type=EventType.REBOOT, vms=("db",))


class Disk:
    """A small disk with the data directory of a service."""

    def __init__(self, path: Path, home: Path) -> None:
        self.path, self._home = path, home

    @contextmanager
    def serve(self) -> Iterator[ServeProcess]:
        settings = SETTINGS.replace('data = "data"', f'data = "{self.path}/data"')
        with run_serve(self._home, settings) as service:
            yield service

    def api(self, service: ServeProcess) -> ApiClient:
        return ApiClient(service.operator_url, read_token(self.path / "data/token"))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with mount_disk(tmp_path / "disk", "8m"):
        yield Disk(tmp_path / "disk", tmp_path)


def problems(service: ServeProcess) -> list[str]:
    shown: list[str] = json.loads(get(service.operator_url, "/readyz")[2])["problems"]
    return shown


def events_of(url: str) -> list[str]:
    status, _, body = get(url, EVENTS)
    assert status == 200, body
    return [event["EventId"] for event in json.loads(body)["Events"]]


def schedule_often(api: ApiClient) -> None:
    """Schedule again and again: the log may have room for some saves."""
    for _ in range(1_000):
        api.schedule(REBOOT)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("make_unwritable", [make_full, make_read_only])
def test_service_that_cannot_write_at_its_start_serves_guests_and_recovers(
    disk: Disk, end: signal.Signals, make_unwritable: Callable[[Path], Callable[[], None]]
) -> None:
    """After SIGKILL the newest changes are only in the log."""
    with disk.serve() as service:
        url = str(disk.api(service).vm("db").guest_url)
        assert events_of(url) == []
        event = disk.api(service).schedule(REBOOT).created[0].id
        assert service.stop(end) == (-end if end is signal.SIGKILL else 0)
    assert (disk.path / "data/forewarn.db-wal").exists() == (end is signal.SIGKILL)

    make_writable = make_unwritable(disk.path)
    with disk.serve() as service:
        api = disk.api(service)
        assert events_of(url) == [event]
        with pytest.raises(RequestRefused) as refusal:
            schedule_often(api)
        assert refusal.value.code == "save-failed"
        assert any("the store cannot write" in problem for problem in problems(service))
        answers = {check.question: check.passed for check in api.diagnosis("db").checks}
        assert answers["Can the service save its approval?"] is False
        make_writable()
        wait_until(lambda: not problems(service), "a ready service")
        assert api.schedule(REBOOT).created[0].id in events_of(url)
        assert service.stop() == 0
    assert any("could not" in message or "refused" in message for message in service.messages())
