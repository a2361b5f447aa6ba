"""Ports of the machine's loopback that a sandboxed program may reach, and additional ports of its endpoint."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from forewarn.testing import sandbox
from forewarn.testing.sandbox.errors import SANDBOX_EXIT_CODE, PortRefused
from forewarn.testing.sandbox.ports import MAX_PORTS, check_reach, parse_listener, parse_ports
from tests.support.canned_server import run_canned_server
from tests.support.emulator import FOREWARN, UpOutput, forewarn_up, plain_environment
from tests.testing.sandbox.vm_socket import GUARD, VmSocket

CURL = ("curl", "--silent", "--show-error")


@pytest.mark.parametrize(("text", "ports"), [("6443", (6443,)), ("1, 65535,1", (1, 65535))])
def test_ports_are_parsed(text: str, ports: tuple[int, ...]) -> None:
    assert parse_ports(text) == ports


@pytest.mark.parametrize(
    "text", ["", "0", "65536", "-1", "x", "80,", "1_0", "٣", "9" * 5000, ",".join(map(str, range(1, MAX_PORTS + 2)))]
)
def test_other_texts_are_not_ports(text: str) -> None:
    with pytest.raises(ValueError, match="port"):
        parse_ports(text)


@pytest.mark.parametrize(
    ("text", "listener"),
    [("127.0.0.1:80", ("127.0.0.1", 80)), ("localhost:8080", ("127.0.0.1", 8080)), ("127.9.9.9:1", ("127.9.9.9", 1))],
)
def test_listener_is_parsed(text: str, listener: tuple[str, int]) -> None:
    assert parse_listener(text) == listener


@pytest.mark.parametrize(
    "text", ["80", "127.0.0.1", "127.0.0.1:", "0.0.0.0:80", "10.0.0.1:80", "[::1]:80", ":80", "x:80"]
)
def test_listener_is_a_loopback_address_with_a_port(text: str) -> None:
    with pytest.raises(ValueError, match="loopback address with a port"):
        parse_listener(text)


def test_port_cannot_be_reached_and_served() -> None:
    with pytest.raises(PortRefused, match="80"):
        check_reach([80], [("127.0.0.1", 80)])


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpOutput]:
    with forewarn_up(tmp_path_factory.mktemp("service")) as started:
        yield started


def port_of(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port


@pytest.mark.process
def test_ports_of_a_service_are_refused(started: UpOutput) -> None:
    with pytest.raises(PortRefused, match="operator port"):
        check_reach([port_of(started.operator_url)])
    with pytest.raises(PortRefused, match="guest port"):
        check_reach([port_of(next(iter(started.guest_urls.values())))])


def test_port_of_another_program_and_a_port_without_one_are_allowed() -> None:
    with run_canned_server(lambda _path, _body: (200, b"")) as url, socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        check_reach([port_of(url), unused.getsockname()[1]])


def run_as_vm(started: UpOutput, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*FOREWARN, "run", "--vm", "web-0", *arguments],
        env=plain_environment(FOREWARN_DATA=started.data, HOSTNAME="the-machine"),
        check=False,
        capture_output=True,
        text=True,
        timeout=GUARD,
    )


@pytest.mark.process
def test_program_reaches_named_ports_and_no_others(sandboxes: None, started: UpOutput) -> None:
    with (
        run_canned_server(lambda _path, _body: (200, b"reached")) as url,
        run_canned_server(lambda _path, _body: (200, b"other")) as other,
    ):
        script = f"curl --silent {url}; echo; curl --silent {other} || echo unreachable"
        done = run_as_vm(started, "--reach", f"{port_of(url)}", "--", "sh", "-c", script)
    assert done.stdout == "reached\nunreachable\n", done.stderr


@pytest.mark.process
def test_port_of_the_service_ends_the_command(sandboxes: None, started: UpOutput) -> None:
    done = run_as_vm(started, "--reach", str(port_of(started.operator_url)), "--", "true")
    assert (done.returncode, done.stdout) == (SANDBOX_EXIT_CODE, "")
    assert "it is the operator port of a Forewarn service" in done.stderr


@pytest.mark.process
def test_connection_is_relayed_as_it_is(vm: VmSocket) -> None:
    """Also for protocols in which the server closes without a response, or listens on ::1 only."""
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        port = server.getsockname()[1]
        script = (
            "import socket, sys\n"
            f"with socket.create_connection(('127.0.0.1', {port})) as connection:\n"
            "    connection.sendall(b'note'); print(connection.recv(9))\n"
        )
        program = sandbox.run(
            [sys.executable, "-c", script], socket=vm.path, hostname="web-0", stdout=subprocess.PIPE, reach=[port]
        )
        connection, _ = server.accept()
        with connection:
            assert connection.recv(4, socket.MSG_WAITALL) == b"note"
        assert program.communicate(timeout=GUARD)[0] == b"b''\n"


@pytest.mark.process
def test_endpoint_answers_at_additional_addresses(sandboxes: None, started: UpOutput) -> None:
    asked = "metadata/instance/compute/name?api-version=2021-02-01&format=text"
    urls = [f"http://{place}/{asked}" for place in ("127.0.0.1", "127.0.0.1:8080", "169.254.169.254")]
    listen = ("--listen-also", "127.0.0.1:80", "--listen-also", "localhost:8080")
    done = run_as_vm(started, *listen, "--", *CURL, "--header", "Metadata:true", *urls)
    assert done.stdout == "web-0" * 3, done.stderr


@pytest.mark.process
def test_host_name_is_in_the_environment(sandboxes: None, started: UpOutput) -> None:
    assert run_as_vm(started, "--", "sh", "-c", "echo $HOSTNAME").stdout == "web-0\n"


@pytest.mark.process
def test_processes_have_a_readable_title(vm: VmSocket) -> None:
    program = vm.run("sh", "-c", "echo started; read line")
    assert program.stdout is not None
    assert program.stdout.readline() == b"started\n"
    keeper = Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split()[0]
    for process in (str(program.pid), keeper):
        title = Path(f"/proc/{process}/cmdline").read_bytes().rstrip(b"\0")
        assert os.fsdecode(title) == "forewarn run --vm web-0 -- sh -c 'echo started; read line'"
        assert Path(f"/proc/{process}/comm").read_text() == "forewarn run\n"
    program.communicate(b"\n", timeout=GUARD)
    assert program.returncode == 0
