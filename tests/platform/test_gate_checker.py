"""Gates: real programs and a real web server, and what each answer means."""

import asyncio
import json
import os
import ssl
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme

from forewarn.core.campaign.spec import HttpCheck
from forewarn.platform.gate_checker import MAX_CONCURRENT, SettingsGateChecker
from forewarn.platform.port import GateFailed, GatePassed, GateRequest
from forewarn.settings.gates import Gate, GateSettings
from tests.support.recording_server import RecordingServer, run_recording_server

CAMPAIGN = "11111111-2222-4333-8444-555555555555"
QUESTION = GateRequest(gate="health", campaign=CAMPAIGN, name="kernel", scope="web", wave=2)
BRIEF = timedelta(milliseconds=1)
SHORT = timedelta(milliseconds=200)
GUARD = 60

Make = Callable[..., SettingsGateChecker]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Make a gatekeeper whose gate is a shell script; `$HERE` is a directory in which it can leave something."""

    def make(script: str, **settings: Any) -> SettingsGateChecker:
        program = tmp_path / "check"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        gate = GateSettings(command=(str(program), "-q"), pause=BRIEF, **settings)
        environ = {"PATH": os.environ["PATH"], "HERE": str(tmp_path), "FOREWARN_TOKEN": "secret"}
        return SettingsGateChecker([Gate("health", gate)], environ)

    return make


@pytest.fixture
async def web() -> AsyncIterator[RecordingServer]:
    async with run_recording_server() as web:
        yield web


def http_gate(web: RecordingServer, tmp_path: Path, **settings: Any) -> SettingsGateChecker:
    gate = GateSettings(url=web.url, pause=BRIEF, **settings)
    return SettingsGateChecker([Gate("health", gate)], {})


@pytest.mark.process
async def test_exit_code_0_opens_the_gate(make: Make) -> None:
    assert await make("exit 0").check(QUESTION) == GatePassed()


@pytest.mark.process
async def test_other_exit_code_closes_the_gate_with_the_last_line_as_reason(make: Make) -> None:
    gate = make("echo looking; echo 3 alerts are firing >&2; exit 7", retries=0)
    assert await gate.check(QUESTION) == GateFailed("check ended with 7: 3 alerts are firing")


@pytest.mark.process
async def test_program_gets_the_wave_and_no_variables_of_the_service(make: Make, tmp_path: Path) -> None:
    assert await make("env > $HERE/env; cat > $HERE/given; echo $1 > $HERE/argument").check(QUESTION) == GatePassed()
    lines = (tmp_path / "env").read_text().splitlines()
    assert {line for line in lines if line.startswith("FOREWARN_")} == {
        "FOREWARN_PHASE=gate",
        "FOREWARN_GATE=health",
        f"FOREWARN_CAMPAIGN={CAMPAIGN}",
        "FOREWARN_CAMPAIGN_NAME=kernel",
        "FOREWARN_SCOPE=web",
        "FOREWARN_WAVE=2",
    }
    assert json.loads((tmp_path / "given").read_text()) == {
        "phase": "gate",
        "gate": "health",
        "campaign": {"id": CAMPAIGN, "name": "kernel"},
        "scope": "web",
        "wave": 2,
    }
    assert (tmp_path / "argument").read_text() == "-q\n"


@pytest.mark.process
async def test_closed_gate_is_retried_as_configured(make: Make, tmp_path: Path) -> None:
    gate = make('echo . >> $HERE/tries; test $(wc -l < $HERE/tries) -ge 3 || { echo "not yet"; exit 1; }', retries=2)
    assert await gate.check(QUESTION) == GatePassed()
    (tmp_path / "tries").unlink()
    gate = make("echo . >> $HERE/tries; exit 1", retries=2)
    assert await gate.check(QUESTION) == GateFailed("check ended with 1")
    assert (tmp_path / "tries").read_text() == ".\n" * 3


@pytest.mark.process
async def test_program_above_its_time_limit_is_ended_with_its_children(make: Make, tmp_path: Path) -> None:
    gate = make("sleep 1000 & echo $! > $HERE/child; wait", timeout=timedelta(seconds=1), retries=0)
    async with asyncio.timeout(GUARD):
        assert await gate.check(QUESTION) == GateFailed("check took longer than 1s and was ended")
    await until(lambda: not is_running(int((tmp_path / "child").read_text())))


@pytest.mark.process
async def test_program_is_ended_when_the_check_is_cancelled(make: Make, tmp_path: Path) -> None:
    gate = make("echo $$ > $HERE/pid.part; mv $HERE/pid.part $HERE/pid; sleep 1000")
    asking = asyncio.create_task(gate.check(QUESTION))
    await until((tmp_path / "pid").exists)
    asking.cancel()
    await asyncio.wait([asking])
    assert asking.cancelled()
    await until(lambda: not is_running(int((tmp_path / "pid").read_text())))


@pytest.mark.process
async def test_missing_program_keeps_the_gate_closed(tmp_path: Path) -> None:
    gate = SettingsGateChecker([Gate("health", GateSettings(command=("/no/such",), retries=0))], {})
    assert await gate.check(QUESTION) == GateFailed("such cannot be started: No such file or directory (/no/such)")


@pytest.mark.process
async def test_undefined_gate_is_closed_with_advice(tmp_path: Path) -> None:
    gates = SettingsGateChecker([], {})
    assert list(gates.gates) == []
    assert await gates.check(QUESTION) == GateFailed(
        "the settings have no gate health: define [gates.health], and reload"
    )
    gates.reload([Gate("health", GateSettings(command=("/bin/true",)))])
    assert list(gates.gates) == ["health"]
    assert await gates.check(QUESTION) == GatePassed()


async def test_expected_status_opens_the_gate(web: RecordingServer, tmp_path: Path) -> None:
    web.statuses = [204]
    assert await http_gate(web, tmp_path, expect_status=204).check(QUESTION) == GatePassed()
    (received,) = web.received
    assert received.request_line == "GET /hook HTTP/1.1"
    assert received.headers["host"] == f"127.0.0.1:{web.port}"


@pytest.mark.parametrize("status", [500, 204, 302], ids=["error", "another success", "redirect"])
async def test_any_other_status_closes_the_gate(web: RecordingServer, tmp_path: Path, status: int) -> None:
    web.statuses = [status]
    answer = await http_gate(web, tmp_path, retries=0).check(QUESTION)
    assert answer == GateFailed(f"http://127.0.0.1:{web.port} returned {status}, expected 200")
    assert len(web.received) == 1


async def test_http_check_is_retried_as_configured(web: RecordingServer, tmp_path: Path) -> None:
    web.statuses = [500, 503]
    assert await http_gate(web, tmp_path, retries=2).check(QUESTION) == GatePassed()
    assert len(web.received) == 3


async def test_timeout_closes_the_gate(web: RecordingServer, tmp_path: Path) -> None:
    web.statuses = [None]
    async with asyncio.timeout(GUARD):
        answer = await http_gate(web, tmp_path, timeout=SHORT, retries=0).check(QUESTION)
    assert answer == GateFailed(f"no response from http://127.0.0.1:{web.port} within 0.2s")


async def test_refused_connection_closes_the_gate(web: RecordingServer, tmp_path: Path) -> None:
    async with run_recording_server() as gone:
        pass
    answer = await http_gate(gone, tmp_path, retries=0).check(QUESTION)
    assert answer == GateFailed(f"no response from http://127.0.0.1:{gone.port}: Connection refused")


MUMBLED = {
    "it hangs up": (b"", "the connection was closed before its end"),
    "it hangs up in the middle": (b"HTTP/1.1 200 OK\r\nContent-Le", "the connection was closed before its end"),
    "another protocol": (b"220 mail.example ESMTP\r\n\r\n", "it is not HTTP"),
}


@pytest.mark.parametrize("case", MUMBLED)
async def test_invalid_response_closes_the_gate(web: RecordingServer, tmp_path: Path, case: str) -> None:
    said, why = MUMBLED[case]
    web.statuses = [said]
    answer = await http_gate(web, tmp_path, retries=0).check(QUESTION)
    assert answer == GateFailed(f"http://127.0.0.1:{web.port} sent an invalid response: {why}")


async def test_interim_response_is_not_the_result(web: RecordingServer, tmp_path: Path) -> None:
    web.statuses = [b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 No\r\n\r\n"]
    answer = await http_gate(web, tmp_path, retries=0).check(QUESTION)
    assert answer == GateFailed(f"http://127.0.0.1:{web.port} returned 503, expected 200")


async def test_untrusted_certificate_closes_the_gate_and_no_request_is_sent(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    async with run_recording_server(context) as web:
        gate = GateSettings(url=web.url.replace("http:", "https:"), retries=0)
        answer = await SettingsGateChecker([Gate("health", gate)], {}).check(QUESTION)
    place = f"https://127.0.0.1:{web.port}"
    assert answer == GateFailed(f"{place} is not trusted: unable to get local issuer certificate")
    assert web.received == []


async def test_unresponsive_servers_do_not_occupy_threads(web: RecordingServer, tmp_path: Path) -> None:
    threads = ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(threads)
    web.statuses = [None] * MAX_CONCURRENT
    gate = http_gate(web, tmp_path, timeout=timedelta(hours=1))
    asking = [asyncio.create_task(gate.check(QUESTION)) for _ in range(MAX_CONCURRENT)]
    await until(lambda: len(web.received) == MAX_CONCURRENT)
    async with asyncio.timeout(GUARD):
        assert await asyncio.to_thread(lambda: "other work") == "other work"
    for task in asking:
        task.cancel()
    await asyncio.wait(asking)


@pytest.mark.process
async def test_gate_has_no_slot_between_two_attempts(web: RecordingServer, tmp_path: Path) -> None:
    shut = GateSettings(command=("/bin/false",), pause=timedelta(hours=1), retries=1)
    gates = SettingsGateChecker([Gate("health", shut), Gate("web", GateSettings(url=web.url))], {})
    pausing = [asyncio.create_task(gates.check(QUESTION)) for _ in range(MAX_CONCURRENT)]
    async with asyncio.timeout(GUARD):
        assert await gates.check(msgspec.structs.replace(QUESTION, gate="web")) == GatePassed()
    assert not any(task.done() for task in pausing)
    for task in pausing:
        task.cancel()
    await asyncio.wait(pausing)


async def test_campaign_can_define_its_check_and_its_password_is_hidden(web: RecordingServer, tmp_path: Path) -> None:
    web.statuses = [401]
    url = web.url.replace("http://", "http://me:s3cret@")
    check = HttpCheck(url=url, retries=0)
    question = GateRequest(gate=check, campaign=CAMPAIGN, name="kernel")
    answer = await SettingsGateChecker([], {}).check(question)
    assert answer == GateFailed(f"http://127.0.0.1:{web.port} returned 401, expected 200")
    assert web.received[0].headers["authorization"] == "Basic bWU6czNjcmV0"


async def until(fact: Callable[[], bool]) -> None:
    async with asyncio.timeout(GUARD):
        while not fact():  # noqa: ASYNC110 - a file raises no event
            await asyncio.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
