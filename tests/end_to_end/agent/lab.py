"""Three VMs behind HAProxy with real agents, on a real service that can reboot them."""

import shutil
import sys
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import RLock

from forewarn.agent.status import WorkflowStatus, read_status
from forewarn.api.client import ApiClient
from forewarn.api.v1 import CancelEvent, ScheduleEvents
from forewarn.core.event import EventType
from forewarn.core.journal import EntryKind
from tests.end_to_end.agent.checkpoints import (
    CheckpointCall,
    CheckpointServer,
    run_checkpoint_server,
    write_checkpoint_script,
)
from tests.end_to_end.agent.traffic import Traffic, constant_traffic
from tests.examples.example_settings import EXAMPLES, example_settings
from tests.support.emulator import forewarn_up
from tests.support.haproxy import BACKEND, Haproxy, ServerStatus, run_haproxy
from tests.support.processes import Program, free_ports, wait_until

FOREWARN = Path(sys.executable).parent / "forewarn"
WEB_SERVER = Path(__file__).with_name("web_server.py")

PAIR = ("web-0", "web-1")
"""The VMs on one host, which share their events; the first is the leader."""

ALL = (*PAIR, "web-2")

PHASES = ("notice", "prepare", "ready", "approve", "impact", "recover")

FLEET = """\
[[scopes]]
name = "web"
kind = "availability-set"
vms = [
    { name = "web-0", update_domain = 0, host = "hv-0" },
    { name = "web-1", update_domain = 0, host = "hv-0" },
    { name = "web-2", update_domain = 1, host = "hv-1" },
]
"""

SETTINGS = """\
platform = "command"

[command]
program = ["{program}"]
"""


class Vm:
    """A VM: its programs start and end with it."""

    def __init__(self, name: str, web: Program, agent: Program, state: Path) -> None:
        self.name = name
        self.agent = agent
        self._web = web
        self._state = state
        # A reboot may happen while the agent is being killed.
        self._switch = RLock()

    def boot(self) -> None:
        """Start all programs; the agent does not wait for the web server, because one of its hooks does."""
        with self._switch:
            self.agent.start()
            self._web.start()

    def power_off(self) -> None:
        """Kill all programs."""
        with self._switch:
            self.agent.kill()
            self._web.kill()

    def reboot(self) -> None:
        """Kill all programs and start them again."""
        with self._switch:
            self.power_off()
            self.boot()

    def restart_agent(self) -> None:
        """Kill the agent and start it again, as systemd does."""
        with self._switch:
            self.agent.kill()
            self.agent.start()

    @property
    def is_idle(self) -> bool:
        """Whether its agent runs and is idle."""
        status = read_status(self._state)
        return status.is_running and status.workflows == ()

    @property
    def workflows(self) -> tuple[WorkflowStatus, ...]:
        """The unfinished workflows of its agent."""
        return read_status(self._state).workflows


class Lab:
    """The service, the VMs and HAProxy, and the state that tests check."""

    def __init__(self, vms: dict[str, Vm], balancer: Haproxy, api: ApiClient, heard: CheckpointServer) -> None:
        self.vms = vms
        self.balancer = balancer
        self.api = api
        self.checkpoints = heard
        self.rebooted: dict[str, ServerStatus] = {}
        """HAProxy's status of each VM at the moment of its reboot."""

    def reboot(self, call: CheckpointCall) -> None:
        """Reboot a VM on behalf of the platform."""
        self.rebooted[call.vm] = self.balancer.server_statuses()[call.vm]
        self.vms[call.vm].reboot()

    def kill_agent(self, call: CheckpointCall) -> None:
        """Kill the agent that is waiting for this call."""
        self.vms[call.vm].restart_agent()

    def announce_reboot(self, *vms: str) -> str:
        """Announce a reboot with a long notice, so that only an approval starts it; return the event's id."""
        asked = ScheduleEvents(type=EventType.REBOOT, vms=tuple(f"web/{vm}" for vm in vms), notice="10h")
        (made,) = self.api.schedule(asked).created
        return made.id

    def cancel(self, event: str) -> None:
        """Cancel an event."""
        self.api.cancel(event, CancelEvent(reason="not needed any more"))

    def wait_until_over(self, event: str) -> None:
        """Wait until an event has ended."""
        wait_until(lambda: event not in {each.id for each in self.api.events()}, f"the end of {event}")

    def wait_until_all_serve(self) -> None:
        """Wait until every VM is in rotation and every agent is idle."""
        wait_until(lambda: self.balancer.statuses(*ALL) == ("UP",) * len(ALL), "every VM to be back in rotation")
        wait_until(lambda: all(vm.is_idle for vm in self.vms.values()), "every agent to be idle")

    def approvals(self, event: str) -> list[str]:
        """Return the VMs that have approved an event, in order."""
        return [entry.actor for entry in self.api.journal(event=event) if entry.action is EntryKind.APPROVED]

    def approval_reason(self, vm: str) -> str:
        """Return why the agent of a VM has not approved yet."""
        return "; ".join(workflow.approval_reason for workflow in self.vms[vm].workflows)


@contextmanager
def run_lab(home: Path) -> Iterator[tuple[Lab, Traffic]]:
    """Run the lab under constant traffic while the context is open."""
    with ExitStack() as stack:
        heard, url = stack.enter_context(run_checkpoint_server())
        ports = dict(zip(ALL, free_ports(len(ALL)), strict=True))
        balancer = stack.enter_context(run_haproxy(home, free_ports(1)[0], ports))
        reboot = home / "reboot"
        write_checkpoint_script(
            reboot, url, "reboot/$FOREWARN_VM", before='if [ "$FOREWARN_PHASE" = probe ]; then exit 75; fi'
        )
        (home / "fleet.toml").write_text(FLEET)
        (home / "forewarn.toml").write_text(SETTINGS.format(program=reboot))
        service = stack.enter_context(forewarn_up(home, "--fleet", "fleet.toml", "--config", "forewarn.toml"))
        vms = _vms(home, url, ports, balancer, service.guest_urls)
        made = Lab(vms, balancer, service.api(), heard)
        heard.on_every("reboot", made.reboot)
        for vm in vms.values():
            stack.callback(vm.power_off)
            vm.boot()
        made.wait_until_all_serve()
        yield made, stack.enter_context(constant_traffic(balancer.port))
        assert heard.errors == []


def _vms(home: Path, url: str, ports: dict[str, int], balancer: Haproxy, guest_urls: dict[str, str]) -> dict[str, Vm]:
    (home / "peers.secret").write_text("the-secret-that-agents-of-this-lab-share\n")
    (home / "peers.secret").chmod(0o600)
    places = {"/etc/forewarn/peers.secret": str(home / "peers.secret"), "10.0.1.2:9999": str(balancer.socket)}
    listening = dict(zip(ALL, free_ports(len(ALL)), strict=True))
    for number, port in enumerate(listening.values(), start=4):
        places[f'= "10.0.1.{number}:8160"'] = f'= "127.0.0.1:{port}"'
    return {name: _vm(name, home / name, url, ports[name], places, guest_urls[f"web/{name}"]) for name in ALL}


def _vm(name: str, home: Path, url: str, port: int, places: dict[str, str], endpoint: str) -> Vm:
    shutil.copytree(EXAMPLES / "web/hooks.d", home / "hooks.d")
    for phase in PHASES:
        write_checkpoint_script(home / "hooks.d" / phase / "90-lab", url, f"{phase}/$FOREWARN_NAME/$FOREWARN_ATTEMPT")
    own = {'"web/web-0"': f'"{BACKEND}/{name}"', "/etc/forewarn/hooks.d": str(home / "hooks.d")}
    settings = example_settings("web", own | places)
    (home / "agent.toml").write_text(settings)
    environ = {
        "FOREWARN_ENDPOINT": endpoint,
        "FOREWARN_AGENT_HTTP_LISTEN": _address_of(name, settings),
        "FOREWARN_AGENT_STATE": str(home / "state"),
        "FOREWARN_AGENT_PEERS_ASK_EVERY": "0.2s",
        "WEB_SERVER": f"http://127.0.0.1:{port}/",
    }
    agent = Program([str(FOREWARN), "agent", "run", "--config", str(home / "agent.toml")], home / "agent.log", environ)
    web = Program([sys.executable, str(WEB_SERVER), str(port), name], home / "web.log")
    return Vm(name, web, agent, home / "state")


def _address_of(name: str, settings: str) -> str:
    """Return the address of a VM's agent, as configured in all agents."""
    address: str = tomllib.loads(settings)["peers"]["agents"][name]
    return address
