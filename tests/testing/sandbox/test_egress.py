"""Tests of `--net`: a program reaches other machines, but neither other VMs' endpoints nor the operator API."""

import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.namespaces.network import NetworkNamespace, create_network, why_not
from tests.support.emulator import FOREWARN, UpOutput, forewarn_up, plain_environment
from tests.testing.sandbox.vm_socket import GUARD

ELSEWHERE = "10.99.0.11"
NAME = "http://169.254.169.254/metadata/instance/compute/name?api-version=2020-07-01&format=text"
HOSTS = ("127.0.0.1", "10.0.2.2", "10.99.0.1")
"""Addresses of the host as seen inside: its loopback, slirp4netns' gateway, its address in the network."""

CURL = ("curl", "--silent", "--show-error", "--max-time", "60", "--header", "Metadata:true")
SERVER = """
import http.server
class Greeting(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"from elsewhere")
server = http.server.ThreadingHTTPServer(("10.99.0.11", 8000), Greeting)
print("ready", flush=True)
server.serve_forever()
"""


@pytest.fixture(params=["slirp4netns", "pasta"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return a PATH with only one of the egress programs."""
    if shutil.which(request.param) is None:
        pytest.skip(f"the program {request.param} is missing: install slirp4netns and passt")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in (request.param, "curl", "sh", "cat", "ip"):
        (programs / name).symlink_to(str(shutil.which(name)))
    return str(programs)


class Lab:
    """A host with the service, and another machine that it can reach."""

    def __init__(self, host: NetworkNamespace, started: UpOutput) -> None:
        self._host = host
        self.started = started

    def run(self, path: str, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a program as a VM with the network."""
        return subprocess.run(
            [*self._host.within, *FOREWARN, "run", "--vm", "web-0", "--net", "--", *command],
            env=plain_environment(FOREWARN_DATA=self.started.data, PATH=path),
            capture_output=True,
            text=True,
            timeout=GUARD,
            check=False,
        )


@contextmanager
def answering(machine: NetworkNamespace) -> Iterator[None]:
    """Run a web server on the machine."""
    with subprocess.Popen([*machine.within, sys.executable, "-c", SERVER], stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n"
            yield
        finally:
            server.kill()


@pytest.fixture(scope="module")
def lab(sandboxes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    with create_network() as made:
        made.add_bridge("guests", "10.99.0.1")
        made.host.ip(f"route add default via {ELSEWHERE}")
        elsewhere = made.add_vm("elsewhere", "guests", ELSEWHERE, "default via 10.99.0.1")
        # The full path of `ip`, because the tests change PATH.
        within = (str(shutil.which("ip")), *made.host.within[1:])
        with answering(elsewhere), forewarn_up(tmp_path_factory.mktemp("lab"), within=within) as started:
            yield Lab(made.host, started)


def test_other_machines_are_reachable_but_the_hosts_loopback_is_not(lab: Lab, path: str) -> None:
    reached = lab.run(
        path, "sh", "-c", f"{shlex.join([*CURL, NAME, f'http://{ELSEWHERE}:8000/'])}; cat /etc/resolv.conf"
    )
    answers, _, resolving = reached.stdout.partition("nameserver ")
    assert (reached.returncode, answers, reached.stderr) == (0, "web-0from elsewhere", "")
    assert resolving.split("\n")[0] in ("10.0.2.3", "169.254.1.1")
    assert "nameserver" not in resolving
    ports = [url.rpartition(":")[2] for url in (lab.started.guest_urls["web/web-1"], lab.started.operator_url)]
    urls = " ".join(f"http://{host}:{port}/healthz" for host in HOSTS for port in ports)
    script = (
        f'for url in {urls}; do (curl --silent --max-time 2 "$url" && echo "$url answers") & done; wait; echo tried'
    )
    assert lab.run(path, "sh", "-c", script).stdout == "tried\n"
