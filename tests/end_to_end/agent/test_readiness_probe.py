"""A load balancer without an API: its probe of the agent takes the VM out of rotation in time."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forewarn.core.event import EventType
from forewarn.core.journal import EntryKind
from tests.end_to_end.agent.checkpoints import run_checkpoint_server, write_checkpoint_script
from tests.end_to_end.agent.lab import WEB_SERVER
from tests.end_to_end.agent.traffic import constant_traffic
from tests.examples.service_with_agents import run_service_with_agents
from tests.support.haproxy import PROBE, ServerStatus, is_listening, run_haproxy
from tests.support.processes import Program, free_ports, wait_until

FLEET = """\
[[scopes]]
name = "web"
kind = "availability-set"
update_domains = 2
vms = [{ name = "web-{n}", count = 2 }]
"""

SETTINGS = """\
[handlers.probe]
kind = "readiness"
listen = "127.0.0.1:{port}"
path = "{path}"
wait = "0s"
importance = 80

[handlers.gate]
kind = "exec"
prepare = ["{gate}"]
time_limit = "5m"

[[rules]]
handlers = ["probe", "gate"]
"""


@contextmanager
def web_server(home: Path, name: str, port: int) -> Iterator[Program]:
    """Run a web server while the context is open."""
    program = Program([sys.executable, str(WEB_SERVER), str(port), name], home / f"{name}.log")
    program.start()
    try:
        yield program
    finally:
        program.kill()


def test_probe_takes_the_vm_out_of_rotation_and_back_without_a_failed_request(tmp_path: Path) -> None:
    front, probe, *ports = free_ports(4)
    servers = {"web-0": ports[0], "web-1": ports[1]}
    with (
        run_checkpoint_server() as (heard, url),
        web_server(tmp_path, "web-0", ports[0]) as web,
        web_server(tmp_path, "web-1", ports[1]),
        run_haproxy(tmp_path, front, servers, probes={"web-0": probe, "web-1": ports[1]}) as balancer,
        run_service_with_agents(tmp_path, FLEET) as service,
    ):
        gate = tmp_path / "gate"
        write_checkpoint_script(gate, url, "prepare/$FOREWARN_NAME")
        gone = ServerStatus("DOWN", 0)
        heard.on_next(
            "prepare",
            "web-0",
            lambda _: wait_until(lambda: balancer.server_statuses()["web-0"] == gone, "the VM to be out of rotation"),
        )
        settings = SETTINGS.format(port=probe, path=PROBE, gate=gate)
        with service.agent("web/web-0", settings):
            wait_until(lambda: balancer.statuses("web-0", "web-1") == ("UP", "UP"), "both VMs to be UP")
            with constant_traffic(front) as traffic:
                traffic.wait_for_answers_of("web-0", "web-1")
                event = service.schedule(EventType.REBOOT, "web/web-0")
                service.wait_for(EntryKind.APPROVED, event)
                web.kill()
                traffic.wait_for_answers_of("web-1")
                web.start()
                wait_until(lambda: is_listening(ports[0]), "the web server")
                service.advance("10m")
                traffic.wait_for_answers_of("web-0", "web-1")
        assert traffic.failures == []
        assert heard.errors == []
