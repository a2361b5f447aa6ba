"""Two VMs and their neighbour behind a balancer, with real agents, on a real service that can reboot them."""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from forewarn.api.client import ApiClient
from forewarn.api.v1 import CancelEvent, ScheduleEvents
from forewarn.core.event import EventType
from forewarn.core.journal import Did
from tests.agent.lab.balancer import BACKEND, Balancer, Standing, balancing
from tests.agent.lab.processes import Program, free_ports, takes_connections, wait_until
from tests.agent.lab.tower import Call, Tower, tower, write_caller
from tests.agent.lab.traffic import Traffic, constant_traffic
from tests.clients.service import forewarn_up
from tests.examples.configured import EXAMPLES, configured

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
    """A VM: what runs on it ends with it, and starts with it."""

    def __init__(self, name: str, web: Program, agent: Program, port: int) -> None:
        self.name = name
        self.agent = agent
        self._web = web
        self._port = port

    def boot(self) -> None:
        """Start everything; the agent need not wait for the web server, one of its hooks does."""
        self.agent.start()
        self._web.start()

    def pull_the_plug(self) -> None:
        """End everything, without a word."""
        self.agent.kill()
        self._web.kill()

    def wait_until_serving(self) -> None:
        """Return when the web server takes requests."""
        wait_until(lambda: takes_connections(self._port), f"the web server of {self.name}")


class Lab:
    """Everything together, and the facts that a test looks at."""

    def __init__(self, vms: dict[str, Vm], balancer: Balancer, api: ApiClient, heard: Tower) -> None:
        self.vms = vms
        self.balancer = balancer
        self.api = api
        self.tower = heard
        self.rebooted: dict[str, Standing] = {}
        """How HAProxy saw each VM when its plug was pulled."""

    def reboot(self, call: Call) -> None:
        """Do what the platform was told to."""
        vm = self.vms[call.vm]
        self.rebooted[call.vm] = self.balancer.standing()[call.vm]
        vm.pull_the_plug()
        vm.boot()

    def kill_agent(self, call: Call) -> None:
        """Let the agent die in the middle of what it is doing, and start it again, as systemd does."""
        agent = self.vms[call.vm].agent
        agent.kill()
        agent.start()

    def announce_reboot(self, *vms: str) -> str:
        """Announce a reboot so far ahead that only an approval lets it start, and return the event's id."""
        asked = ScheduleEvents(type=EventType.REBOOT, vms=tuple(f"web/{vm}" for vm in vms), notice="10h")
        (made,) = self.api.schedule(asked).made
        return made.id

    def cancel(self, event: str) -> None:
        """Take an event back."""
        self.api.cancel(event, CancelEvent(why="not needed any more"))

    def wait_until_over(self, event: str) -> None:
        """Return when an event has ended."""
        wait_until(lambda: event not in {each.id for each in self.api.events()}, f"the end of {event}")

    def wait_until_all_serve(self) -> None:
        """Return when every VM is in rotation, and everything that an agent has done is undone."""
        wait_until(lambda: self.balancer.statuses(*ALL) == ("UP",) * len(ALL), "every VM to be back in rotation")

    def approvals(self, event: str) -> list[str]:
        """Return who has approved an event, in order."""
        return [entry.by for entry in self.api.history(event=event) if entry.did is Did.APPROVED]

    def is_open(self, event: str) -> bool:
        """Tell whether an event still waits or works."""
        return any(each.id == event for each in self.api.events())


@contextmanager
def lab(home: Path) -> Iterator[tuple[Lab, Traffic]]:
    """Build it, with users who never stop asking, and take it down again."""
    with ExitStack() as stack:
        heard, url = stack.enter_context(tower())
        ports = dict(zip(ALL, free_ports(len(ALL)), strict=True))
        balancer = stack.enter_context(balancing(home, free_ports(1)[0], ports))
        reboot = home / "reboot"
        write_caller(reboot, url, "reboot/$FOREWARN_VM", before='if [ "$FOREWARN_PHASE" = probe ]; then exit 75; fi')
        (home / "fleet.toml").write_text(FLEET)
        (home / "forewarn.toml").write_text(SETTINGS.format(program=reboot))
        service = stack.enter_context(forewarn_up(home, "--fleet", "fleet.toml", "--config", "forewarn.toml"))
        vms = _vms(home, url, ports, balancer, service.guest_urls)
        made = Lab(vms, balancer, service.api(), heard)
        heard.always_at("reboot", made.reboot)
        for vm in vms.values():
            stack.callback(vm.pull_the_plug)
            vm.boot()
        made.wait_until_all_serve()
        yield made, stack.enter_context(constant_traffic(balancer.port))
        assert heard.mishaps == []


def _vms(home: Path, url: str, ports: dict[str, int], balancer: Balancer, guest_urls: dict[str, str]) -> dict[str, Vm]:
    agents = dict(zip(ALL, free_ports(len(ALL)), strict=True))
    secret = home / "peers.secret"
    secret.write_text("a secret that the agents of this lab share\n")
    secret.chmod(0o600)
    vms = {}
    for name in ALL:
        directory = home / name
        hooks = directory / "hooks.d"
        shutil.copytree(EXAMPLES / "web/hooks.d", hooks)
        for phase in PHASES:
            write_caller(hooks / phase / "90-lab", url, f"{phase}/$FOREWARN_NAME/$FOREWARN_ATTEMPT")
        file = directory / "agent.toml"
        file.write_text(
            configured(
                "web",
                {
                    'listen = "10.0.1.4:8190"': f'listen = "127.0.0.1:{agents[name]}"',
                    'web-0 = "10.0.1.4:8190"': f'web-0 = "127.0.0.1:{agents["web-0"]}"',
                    'web-1 = "10.0.1.5:8190"': f'web-1 = "127.0.0.1:{agents["web-1"]}"',
                    'web-2 = "10.0.1.6:8190"': f'web-2 = "127.0.0.1:{agents["web-2"]}"',
                    "/etc/forewarn/peers.secret": str(secret),
                    "10.0.1.2:9999": str(balancer.socket),
                    '"web/web-0"': f'"{BACKEND}/{name}"',
                    "/etc/forewarn/hooks.d": str(hooks),
                },
            )
        )
        agent = Program(
            [str(FOREWARN), "agent", "run", "--config", str(file)],
            directory / "agent.log",
            {
                "FOREWARN_ENDPOINT": guest_urls[f"web/{name}"],
                "FOREWARN_AGENT_STATE": str(directory / "state"),
                "WEB_SERVER": f"http://127.0.0.1:{ports[name]}/",
                "PATH": os.environ["PATH"],
            },
        )
        web = Program([sys.executable, str(WEB_SERVER), str(ports[name]), name], directory / "web.log")
        vms[name] = Vm(name, web, agent, ports[name])
    return vms
