"""Shell completion with names from the service; without a service there is no output."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from unittest.mock import patch

import pytest

from forewarn.cli.options import completion
from tests.cli.in_process import run, run_json
from tests.cli.service_machine import run_service_machine
from tests.support.program import GUARD, Machine

FLEET = """
[[scopes]]
name = "web"
kind = "availability-set"
hosts = ["hv-0", "hv-1"]
vms = [{ name = "web-{n}", count = 2 }]

[[scopes]]
name = "batch"
kind = "placement-group"
scale_set = "batch"
vms = [{ count = 12 }]
"""

SHORT = completion.TIMEOUT


@pytest.fixture(scope="module")
def service_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with run_service_machine(tmp_path_factory.mktemp("completing"), FLEET) as machine:
        yield machine


def completions(
    machine: Machine, *words: str, shell: str = "bash", patience: float = GUARD, **environment: str
) -> list[str]:
    """Return what a shell would offer. By default it waits longer than a user would: a busy machine is slow."""
    typed = ("forewarn", *words)
    asked = {"COMP_WORDS": " ".join(typed), "COMP_CWORD": words[-1] if shell == "fish" else str(len(words))}
    with patch.object(completion, "TIMEOUT", patience):
        ended = run(machine, _FOREWARN_COMPLETE=f"{shell}_complete", **asked, **environment)
    assert ended.stderr == ""
    lines = ended.stdout.splitlines()
    return lines if shell != "bash" else sorted(line.removeprefix("plain,") for line in lines if line)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (("event", "schedule", "Freeze", "web-"), ["web-0", "web-1"]),
        (("event", "schedule", "Freeze", "web/"), ["web/web-0", "web/web-1"]),
        (("event", "schedule", "Freeze", "web-0", "batch_1"), ["batch_1", "batch_10", "batch_11"]),
        (("event", "schedule", "Freeze", "nothing"), []),
        (("event", "schedule", "Re"), ["Reboot", "Redeploy"]),
        (("vm", "list", "--host", "h"), ["hv-0", "hv-1"]),
        (("vm", "restart", "web-"), ["web-0", "web-1"]),
        (("scope", "show", ""), ["batch", "web"]),
        (("host", "show", ""), ["hv-0", "hv-1"]),
        (("hold", "--scope", "w"), ["web"]),
        (("journal", "--action", "impact-f"), ["impact-failed"]),
        (("campaign", "plan", "--scope", "w"), ["web"]),
        (("campaign", "plan", "--type", "Re"), ["Reboot", "Redeploy"]),
        (("campaign", "list", "--state", "Pa"), ["Paused"]),
        (("token", "create", "x", "--role", ""), ["admin", "operator", "viewer"]),
        (("hos",), ["host"]),
    ],
    ids=" ".join,
)
def test_names_complete(service_machine: Machine, typed: tuple[str, ...], expected: list[str]) -> None:
    assert completions(service_machine, *typed) == expected


def test_campaigns_complete_by_name_with_descriptions(service_machine: Machine) -> None:
    run_json(
        service_machine,
        "campaign",
        "start",
        "--name",
        "kernel",
        "--type",
        "Freeze",
        "--scope",
        "batch",
        "--notice",
        "1h",
    )
    assert completions(service_machine, "campaign", "show", "k", shell="zsh") == ["plain", "kernel", "Running Freeze"]
    assert completions(service_machine, "campaign", "show", "k", shell="fish") == ["plain,kernel\tRunning Freeze"]
    assert completions(service_machine, "journal", "--campaign", "") == ["kernel"]
    assert completions(service_machine, "campaign", "skip", "kernel", "") == ["batch", "web"]
    assert completions(service_machine, "campaign", "retry", "kernel", "") == [], "no wave has failed"


def test_events_and_tokens_complete_by_id_with_descriptions(service_machine: Machine) -> None:
    (event,) = run_json(service_machine, "event", "schedule", "Reboot", "web-0")["created"]
    (token,) = run_json(service_machine, "token", "list")
    assert completions(service_machine, "event", "show", event["id"][:3]) == [event["id"]]
    assert completions(service_machine, "token", "revoke", "") == [token["id"]]
    described = "\n".join(completions(service_machine, "event", "cancel", "", shell="zsh"))
    assert "Scheduled Reboot of web-0" in described


def test_completion_without_a_service_is_empty(machine: Machine) -> None:
    assert completions(machine, "event", "list", "--vm", "w") == []


def test_completion_times_out_if_the_service_does_not_answer(machine: Machine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert completions(machine, "vm", "show", "w", patience=SHORT, FOREWARN_URL=url, FOREWARN_TOKEN="x") == []


def test_completion_times_out_if_the_service_answers_slowly(machine: Machine) -> None:
    """Each chunk arrives in time, but the last one never."""
    with socket.create_server(("127.0.0.1", 0)) as dripping:

        def drip() -> None:
            connection, _ = dripping.accept()
            with connection, suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
                while not is_over.wait(0.2):
                    connection.sendall(b" ")

        is_over = threading.Event()
        service = threading.Thread(target=drip)
        service.start()
        url = f"http://127.0.0.1:{dripping.getsockname()[1]}"
        try:
            assert completions(machine, "vm", "show", "w", patience=SHORT, FOREWARN_URL=url, FOREWARN_TOKEN="x") == []
        finally:
            is_over.set()
            service.join()


def test_completion_with_an_invalid_token_is_empty(service_machine: Machine) -> None:
    assert completions(service_machine, "vm", "show", "w", FOREWARN_TOKEN="wrong") == []
