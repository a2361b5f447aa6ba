"""Python programs: a client of 2017, and today's HTTP libraries."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest
import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool

from forewarn.core.event import EventType
from tests.support.emulator import GUARD, EmulatorProcess, Vm, events_path, plain_environment

HEADERS = {"Metadata": "true"}
LINK_LOCAL = "http://169.254.169.254"


@pytest.fixture
def run_sample(programs: Path) -> Callable[[str, str], Any]:
    """Run the program of 2017 with a URL and a machine's name; return its output."""

    def run(url: str, name: str) -> Any:
        command = [sys.executable, str(programs / "python_of_2017.py"), url, name]
        done = subprocess.run(
            command, env=plain_environment(), check=True, capture_output=True, text=True, timeout=GUARD
        )
        return json.loads(done.stdout)

    return run


@pytest.mark.parametrize(
    ("version", "prefix"), [("2017-03-01", "_"), ("2017-08-01", ""), ("2020-07-01", "")], ids=lambda value: value or "-"
)
def test_machine_finds_its_event_and_approves(
    service: EmulatorProcess, vm: Vm, run_sample: Callable[[str, str], Any], version: str, prefix: str
) -> None:
    (event,) = service.schedule(EventType.REBOOT, vm)
    assert run_sample(vm.events(version), prefix + vm.name) == {"seen": 1, "mine": [event], "answers": [200]}
    assert service.statuses(vm) == {event: "Started"}


def test_role_instance_has_no_underscore_in_any_version(
    service: EmulatorProcess, role_instance: Vm, run_sample: Callable[[str, str], Any]
) -> None:
    (event,) = service.schedule(EventType.FREEZE, role_instance)
    expected = {"seen": 1, "mine": [event], "answers": [200]}
    assert run_sample(role_instance.events("2017-03-01"), role_instance.name) == expected
    assert service.statuses(role_instance) == {event: "Started"}


def test_machine_does_not_approve_an_event_of_its_neighbour(
    service: EmulatorProcess, availability_set: tuple[Vm, ...], run_sample: Callable[[str, str], Any]
) -> None:
    mine, neighbour = availability_set[:2]
    (event,) = service.schedule(EventType.REDEPLOY, neighbour)
    assert run_sample(mine.events(), mine.name) == {"seen": 1, "mine": [], "answers": []}
    assert service.statuses(mine) == {event: "Scheduled"}


def test_machine_approves_each_of_its_events(
    service: EmulatorProcess, vm: Vm, run_sample: Callable[[str, str], Any]
) -> None:
    events = [*service.schedule(EventType.FREEZE, vm), *service.schedule(EventType.REBOOT, vm)]
    assert run_sample(vm.events(), vm.name) == {"seen": 2, "mine": events, "answers": [200, 200]}
    assert service.statuses(vm) == dict.fromkeys(events, "Started")


def approval(*events: str) -> dict[str, Any]:
    return {"StartRequests": [{"EventId": event} for event in events]}


def pool_of(session: requests.Session, url: str) -> HTTPConnectionPool:
    adapter = session.get_adapter(url)
    assert isinstance(adapter, HTTPAdapter)
    pool = adapter.get_connection_with_tls_context(requests.Request("GET", url).prepare(), verify=True)
    assert isinstance(pool, HTTPConnectionPool)
    return pool


class TestRequests:
    def test_endpoint_as_proxy_serves_requests_for_itself(
        self, service: EmulatorProcess, vm: Vm, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (event,) = service.schedule(EventType.REBOOT, vm)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.setenv("http_proxy", vm.url)
        url = LINK_LOCAL + events_path()
        seen = requests.get(url, headers=HEADERS, timeout=GUARD)
        approved = requests.post(url, headers=HEADERS, json=approval(event), timeout=GUARD)
        assert [seen.status_code, approved.status_code] == [200, 200]
        assert [each["EventId"] for each in seen.json()["Events"]] == [event]
        assert service.statuses(vm) == {event: "Started"}

    def test_session_reuses_one_connection(self, service: EmulatorProcess, vm: Vm) -> None:
        (event,) = service.schedule(EventType.REBOOT, vm)
        with requests.Session() as session:
            session.trust_env = False
            answers = [session.get(vm.events(), headers=HEADERS, timeout=GUARD) for _ in range(3)]
            answers.append(session.post(vm.events(), headers=HEADERS, json=approval(event), timeout=GUARD))
            answers.append(session.get(vm.events(), headers=HEADERS, timeout=GUARD))
            pool = pool_of(session, vm.url)
            assert (pool.num_connections, pool.num_requests) == (1, 5)
        assert [answer.status_code for answer in answers] == [200] * 5
        assert answers[-1].json()["Events"][0]["EventStatus"] == "Started"

    def test_conditional_request_gets_304_until_a_change(self, service: EmulatorProcess, vm: Vm) -> None:
        with requests.Session() as session:
            session.trust_env = False
            first = session.get(vm.events(), headers=HEADERS, timeout=GUARD)
            condition = HEADERS | {"If-None-Match": first.headers["ETag"]}
            same = session.get(vm.events(), headers=condition, timeout=GUARD)
            service.schedule(EventType.REBOOT, vm)
            changed = session.get(vm.events(), headers=condition, timeout=GUARD)
        assert (same.status_code, same.content) == (304, b"")
        assert (changed.status_code, len(changed.json()["Events"])) == (200, 1)


def test_httpx_polls_and_approves(service: EmulatorProcess, vm: Vm) -> None:
    (event,) = service.schedule(EventType.REBOOT, vm)
    with httpx.Client(headers=HEADERS, trust_env=False, timeout=GUARD) as client:
        document = client.get(vm.events()).raise_for_status().json()
        approved = client.post(vm.events(), json=approval(document["Events"][0]["EventId"]))
    assert (approved.status_code, approved.content) == (200, b"")
    assert service.statuses(vm) == {event: "Started"}


async def test_aiohttp_polls_and_approves(service: EmulatorProcess, vm: Vm) -> None:
    (event,) = service.schedule(EventType.REBOOT, vm)
    async with aiohttp.ClientSession(headers=HEADERS, raise_for_status=True) as session:
        async with session.get(vm.events()) as answer:
            document = await answer.json()
        async with session.post(vm.events(), json=approval(document["Events"][0]["EventId"])) as answer:
            assert (answer.status, await answer.read()) == (200, b"")
    assert service.statuses(vm) == {event: "Started"}
