"""What happened to the service whose data are stored: everything that leaves something in its records and its journal.

The data were made by playing this on commit 450409b. Tests play it again: the journal must still be written alike.
"""

import json
import os
import shutil
import signal
import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatch
from pathlib import Path

import msgspec

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.core.access import Role
from forewarn.core.campaign.record import CampaignState
from forewarn.core.event import EventType
from forewarn.core.fault import FaultKind
from forewarn.core.impact import ImpactState
from tests.stored.rendering import key_paths
from tests.stored.service_process import Service, agent, ask_as, wait_for, write_program

FLEET = """
[defaults]
location = "westeurope"
tags = { stage = "test" }

[[scopes]]
name = "web"
kind = "availability-set"
approval = "all"
zone = "2"
resource_group = "shop"
subscription = "11111111-2222-3333-4444-555555555555"
os = "linux"
tags = { team = "web" }

[[scopes.vms]]
name = "web-0"
vm_id = "AAAAAAAA-0000-4000-8000-000000000001"
update_domain = 0
fault_domain = 1
host = "hv-0"
priority = "regular"
zone = "3"
location = "northeurope"
resource_group = "shop-2"
subscription = "66666666-7777-8888-9999-000000000000"
os = "windows"
terminate_notice = "7m"
tags = { role = "front" }
addresses = [{ ip = "10.0.0.4", network = "blue", mac = "00:0d:3a:12:34:56" }, "fd00::4"]

[[scopes.vms]]
name = "web-1"
update_domain = 0
host = "hv-0"

[[scopes.vms]]
name = "web-2"
update_domain = 1
host = "hv-1"

[[scopes]]
name = "roles"
kind = "cloud-service"
auto_approve = ["Reboot", "Redeploy"]
hosts = ["hv-2"]
vms = [{ name = "role-{n}", count = 3 }]

[[scopes]]
name = "batch"
kind = "placement-group"
scale_set = "batch"
placement_group = "BBBBBBBB-0000-4000-8000-000000000002"
priority = "low"
terminate_notice = "10m"
update_domains = 2
hosts = ["hv-3", "hv-4"]
vms = [{ count = 4 }]

[[scopes]]
name = "big"
kind = "availability-set"
vms = [{ name = "big-{n}", count = 6 }]
hosts = ["hv-5"]
"""

ALONE = [
    "db",
    "moved",
    "broken",
    "unsure",
    "quiet",
    "idle",
    "keyed",
    "frozen",
    "due",
    "early",
    "soon",
    "campaign-paused",
    "campaign-halted",
    "campaign-aborted",
    "campaign-aborting",
    "agent-prepare",
    "agent-recover",
]
PAIRS = ("kernel-done", "kernel-failed", "kernel-started", "kernel-held", "kernel-skipped", "kernel-retried")
FLEET += "".join(f'\n[[scopes]]\nname = "{name}"\nkind = "standalone"\n' for name in ALONE)
FLEET += "".join(
    f'\n[[scopes]]\nname = "{name}"\nkind = "availability-set"\nupdate_domains = 2\nhosts = ["hv-6", "hv-7"]\n'
    f'vms = [{{ name = "{name}-{{n}}", count = 2 }}]\n'
    for name in PAIRS
)
FLEET += """
[[scopes]]
name = "agent-approve"
kind = "availability-set"
vms = [{ name = "first" }, { name = "second" }]

[[scopes]]
name = "campaign-completed"
kind = "availability-set"
update_domains = 2
vms = [{ name = "completed-{n}", count = 2 }]

[[scopes]]
name = "pair"
kind = "availability-set"
vms = [{ name = "pair-0" }, { name = "pair-1" }]
"""

CAMPAIGN = v1.CampaignPolicy(
    gap="5m",
    notice="20m",
    expected="2m",
    scopes_at_once=20,
    hosts_at_once=50,
    vms_at_once=100,
    windows=(
        v1.CampaignWindow(start="00:00", end="24:00"),
        v1.CampaignWindow(start="22:00", end="04:00", days=(), zone="Europe/Vienna"),
    ),
    zone="Europe/Berlin",
    gate="health",
    gate_patience="30d",
    halt_after=None,
    advance=False,
)

AGENT_SETTINGS = """
state = "state"
interval = "0.1s"
[http]
listen = "none"
[approval]
deputy_after = "{deputy_after}"
[log]
level = "debug"
[handlers.units]
kind = "systemd"
units = ["nginx.service", "cron.service"]
importance = 90
[handlers.done]
kind = "exec"
prepare = ["{directory}/half", "done", "prepare"]
recover = ["{directory}/half", "done", "recover"]
importance = 80
[handlers.running]
kind = "exec"
prepare = ["{directory}/half", "running", "prepare"]
recover = ["{directory}/half", "running", "recover"]
importance = 50
time_limit = "1h"
[handlers.waiting]
kind = "exec"
prepare = ["{directory}/half", "waiting", "prepare"]
recover = ["{directory}/half", "waiting", "recover"]
importance = 10
retries = 7
pause = "3s"
ready_despite_failure = true
[[rules]]
types = ["Reboot"]
handlers = ["units", "done", "running", "waiting", "log"]
"""

HALF = """#!/bin/sh
# Notes which half of which handler runs; hangs where a file says so.
cd "$(dirname "$0")"
echo "$*" >> halves
env | grep -E '^(FOREWARN|EVENT)_' | sort > half-variables
cat > half-input
[ ! -e "hang-$2-$1" ] || { echo $$ > hanging; exec sleep 3600; }
"""

SYSTEMCTL = """#!/bin/sh
# Of the two units only nginx runs.
cd "$(dirname "$0")"
echo "$*" >> systemctl-calls
case "$*" in
*ActiveState*nginx*) echo ActiveState=active ;;
*ActiveState*) echo ActiveState=inactive ;;
esac
"""


class History:
    """Plays everything, and keeps what the tests must know: ids, and the secrets of tokens."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.known: dict[str, str] = {}
        self.keys_at_gate: set[str] = set()
        """The keys of the stored campaigns while the gate is closed: what is stored of that is removed by a hold."""

    def play(self) -> None:
        """Play from an empty data directory to the service's last end."""
        try:
            self._play()
        except BaseException:
            self.service.kill()
            raise

    def _play(self) -> None:
        (self.service.directory / "fleet.toml").write_text(FLEET)
        self.service.start(manual_time=False)
        self.service.stop()
        time.sleep(1.5)  # an outage: it is one from a second on
        self.service.start()
        self.api = self.service.api()
        self._begin()
        self._tokens()
        self._inventory()
        self._faults()
        self._ended_events()
        self._restart_with_unknown_work()
        self._over_campaigns()
        self._kernel_campaign()
        self._open_events()
        self._agents()
        self._hang()
        self._holds()
        shutil.copy(self.service.data / "service.json", self.service.directory / "service.json")
        self.service.stop()
        self.service.end_programs()

    def _begin(self) -> None:
        """Go to a year in which no wall clock of a test is: agents compare what they are told with theirs."""
        self._ask("idle", "db")
        self.api.advance("27000d")
        self._ask(
            *ALONE,
            *(f"{pair}-0" for pair in PAIRS),
            "web-0",
            "role-0",
            "batch_0",
            "big-0",
            "first",
            "pair-0",
            but="quiet",
        )

    def _tokens(self) -> None:
        scoped = v1.CreateToken(name="web-team", role=Role.OPERATOR, scopes=("web", "ba*"))
        self.known["scoped"] = self.api.create_token(scoped, key="token-1").secret
        unlimited = v1.CreateToken(name="monitor", role=Role.VIEWER, expires_at=datetime(2100, 1, 1, tzinfo=UTC))
        self.known["unlimited"] = self.api.create_token(unlimited).secret
        gone = self.api.create_token(v1.CreateToken(name="former", role=Role.ADMIN))
        self.known["revoked"] = gone.secret
        self.api.revoke_token(gone.token.id, reason="left the company", key="token-2")

    def _inventory(self) -> None:
        api = self.api
        api.add_scope(v1.AddScope(id="new", kind=api.scope("web").kind, zone="1"), key="scope-1")
        api.add_vm(v1.AddVm(name="new-0", scope="new", host="hv-1", tags={"a": "b"}), key="vm-1")
        api.add_vm(v1.AddVm(name="new-1", scope="new"))
        api.change_vm("new-0", v1.ChangeVm(host="hv-2", zone="2", os=None, tags={"a": "c"}), key="vm-2")
        api.change_scope("new", v1.ChangeScope(approval=api.scope("web").approval, zone=None), key="scope-2")
        api.remove_vm("new-1", reason="not needed", key="vm-3")
        api.add_scope(v1.AddScope(id="old", kind=api.scope("web").kind))
        api.remove_scope("old", reason="too many", key="scope-3")
        content = b"".join(api.export_fleet()).replace(b'name = "big-5"', b'name = "big-5"\nfault_domain = 3')
        list(api.import_fleet(content))

    def _faults(self) -> None:
        api = self.api
        api.set_fault(v1.SetFault(kind=FaultKind.EXTRA_FIELD, vm="db", times=1, reason="a test"))
        self._ask("db")
        fault = api.set_fault(v1.SetFault(kind=FaultKind.WRONG_DATE, vm="db", duration="1h", amount="-1h"))
        api.clear_fault(fault.id, reason="enough")
        api.set_fault(v1.SetFault(kind=FaultKind.SLOW, amount="1s"))
        api.clear_faults(reason="all of them")

    def _ended_events(self) -> None:
        """Complete, cancel and give up events; move a VM and lose some."""
        api, service = self.api, self.service
        canceled = self._schedule(EventType.FREEZE, "db", notice="20m", duration="9s")
        api.cancel(canceled, v1.CancelEvent(reason="not needed"), key="cancel-1")
        self.known["canceled"] = canceled
        self.known["completed"] = self._schedule(EventType.REDEPLOY, "moved", notice="20m", reason="new disks")
        service.behave("broken", "fail")
        broken = self._schedule(EventType.REBOOT, "broken", notice="20m")
        api.advance("21m")
        self._await(broken, ImpactState.FAILED)
        api.retry(broken, v1.RetryImpact(reason="once more"), key="retry-1")
        self._await(broken, ImpactState.FAILED)
        api.resolve(broken, v1.ResolveImpact(done=False, reason="scrapped"), key="resolve-1")
        service.behave("broken", "succeed")
        self.known["failed"] = broken
        api.hold(v1.CreateHold(reason="audit", scope="db"))
        api.release(v1.ReleaseHold(scope="db", reason="audit is over"), key="release-1")
        api.restart(v1.Operate(vm="role-1", reason="memory leak"), key="restart-1")
        api.fail(v1.Fail(vms=("role-2",), reason="smoke"))
        wait_for(lambda: not list(api.events(scope="roles")))
        early = self._schedule(EventType.REBOOT, "early", notice="20m")
        ask_as(api.vm("early").guest_url, _approval(early))
        api.evict(v1.Evict(vm="batch_3", notice="1m"))
        api.delete(v1.Operate(vm="batch_2", reason="scale in"))
        api.advance("4h")  # every scope falls silent
        self._ask(
            *ALONE, *(f"{pair}-0" for pair in PAIRS), "web-0", "batch_0", "big-0", "first", "pair-0", but="quiet idle"
        )

    def _restart_with_unknown_work(self) -> None:
        """End the service while work goes on of which nothing can be known afterwards."""
        self.service.behave("unsure", "hang")
        self.service.behave("unsure", "fail", phase="probe")
        (made,) = self.api.fail(v1.Fail(vms=("unsure",), type=EventType.REBOOT, reason="fire")).created
        self._await(made.id, ImpactState.BEGUN)
        wait_for(lambda: list((self.service.data / "work").glob("*.note")))
        self.service.stop()
        self.service.end_programs()
        self.service.start()
        self.api = self.service.api()
        self._await(made.id, ImpactState.UNKNOWN)
        self.known["unknown"] = made.id

    def _over_campaigns(self) -> None:
        """Have a campaign in each state but Running."""
        api = self.api
        self.service.behave("campaign-halted", "fail")
        for state in ("completed", "halted", "paused", "aborted"):
            self._start_campaign(state)
            if state in ("completed", "halted"):
                api.advance("35m")
                (self.service.directory / "gate-is-open").touch()
                api.advance("20m")
        wait_for(lambda: api.campaign("halted").state is CampaignState.HALTED)
        wait_for(lambda: api.campaign(self.known["campaign completed"]).state is CampaignState.COMPLETED)
        api.pause_campaign("paused", v1.PauseCampaign(reason="lunch"))
        api.resume_campaign("paused", v1.ResumeCampaign(reason="lunch is over"), key="resume-1")
        api.pause_campaign("paused", v1.PauseCampaign(reason="dinner"), key="pause-1")
        api.abort_campaign("aborted", v1.AbortCampaign(reason="wrong kernel"), key="abort-1")
        wait_for(lambda: api.campaign(self.known["campaign aborted"]).state is CampaignState.ABORTED)

    def _start_campaign(self, name: str) -> None:
        ask = v1.StartCampaign(
            name=name,
            type=v1.CampaignType.FREEZE,
            selection=v1.CampaignSelection(scopes=(f"campaign-{name}",)),
            policy=v1.CampaignPolicy(notice="15m", gap="1m", gate="health"),
            reason=f"to be {name}",
        )
        self._poll(f"campaign-{name}")
        self.known[f"campaign {name}"] = self.api.start_campaign(ask, key=f"campaign-{name}").id

    def _kernel_campaign(self) -> None:
        """Roll a campaign to a shut gate, with waves done, failed, skipped, retried, under way and held."""
        api, service = self.api, self.service
        now = api.clock().now
        selection = v1.CampaignSelection(
            scopes=("kernel-*",),
            hosts=("hv-none",),
            tags={"no": "such"},
            exclude_scopes=("x-*",),
            exclude_hosts=("y-*",),
            exclude_vms=("kernel-held/nobody",),
            exclude_tags={"critical": "yes"},
        )
        blackout = v1.CampaignBlackout(start=now + timedelta(days=300), end=now + timedelta(days=301), why="holidays")
        ask = v1.StartCampaign(
            name="kernel",
            type=v1.CampaignType.REBOOT,
            selection=selection,
            duration="90s",
            description="A new kernel.",
            policy=msgspec.structs.replace(CAMPAIGN, blackouts=(blackout,), must_end_inside=True),
            start_at=now,
            reason="CVE",
        )
        self._poll("kernel-*")
        service.behave("kernel-started-0", "later")
        service.behave("kernel-failed-0", "fail")
        service.behave("kernel-retried-0", "fail")
        self.known["campaign kernel"] = api.start_campaign(ask, key="campaign-kernel").id
        wait_for(lambda: sum(event.campaign == self.known["campaign kernel"] for event in api.events()) == 6)
        api.hold(v1.CreateHold(reason="a demonstration", scope="kernel-held"), key="hold-1")
        api.add_vm(v1.AddVm(name="late", scope="kernel-done", update_domain=1, host="hv-7"))
        api.skip_wave("kernel", v1.SkipWave(scope="kernel-skipped", reason="not these"), key="skip-1")
        api.advance("21m")
        wait_for(lambda: len(api.campaign("kernel").failures) == 2)
        service.behave("kernel-retried-0", "succeed")
        api.retry_wave("kernel", v1.RetryWave(scope="kernel-retried", reason="new cable"), key="wave-1")
        api.advance("6m")
        (service.directory / "gate-is-open").unlink()
        api.advance("20m")
        wait_for(lambda: api.campaign("kernel").gate is not None)
        self.keys_at_gate = self._stored_keys("campaign")

    def _stored_keys(self, kind: str) -> set[str]:
        with closing(sqlite3.connect(f"file:{self.service.data / 'forewarn.db'}?mode=ro", uri=True)) as database:
            rows = database.execute("SELECT value FROM records WHERE kind = ?", (kind,)).fetchall()
        return {path for (content,) in rows for path in key_paths(json.loads(content))}

    def _open_events(self) -> None:
        """Leave events open: announced and not, approved and not, of every type."""
        api = self.api
        web = self._schedule(EventType.REBOOT, "web-0", "web-1", notice="30d", duration="1m30s", description="Updates.")
        ask_as(api.vm("web-0").guest_url, _approval(web))
        self.known["approved"] = web
        self.known["unannounced"] = self._schedule(EventType.REBOOT, "quiet", notice="60d")
        self.known["keyed"] = self._schedule(EventType.FREEZE, "keyed", notice="40d", key="event-1")
        self._schedule(EventType.REBOOT, "idle", notice="60d")
        self._ask("idle")
        api.predict_failure(v1.PredictFailure(vms=("web-2",), notice="5d", reason="SMART"))
        api.evict(v1.Evict(vm="batch_1", notice="10d"))
        api.delete(v1.Operate(vm="batch_0"))
        shrunk = self._schedule(EventType.FREEZE, "pair-0", "pair-1", notice="50d", source="Platform")
        self.known["shrunk"] = shrunk
        api.remove_vm("pair-1", force=True, reason="sold")
        api.remove_vm("new-0", force=True)
        self.service.behave("soon", "later")
        self._start_now(EventType.REBOOT, "soon")
        api.hold(v1.CreateHold(reason="the owner is on leave", scope="frozen"))
        self.known["frozen"] = self._schedule(EventType.REBOOT, "frozen", notice="15m")
        api.advance("16m")
        self.known["due"] = self._schedule(EventType.REBOOT, "due", notice="15m30s")
        self.known["agent-prepare"] = self._schedule(EventType.REBOOT, "agent-prepare", notice="300d")
        self.known["agent-approve"] = self._schedule(EventType.REBOOT, "first", "second", notice="300d")
        self.known["agent-recover"] = self._schedule(EventType.REBOOT, "agent-recover", notice="300d")

    def _agents(self) -> None:
        """Have agents leave their state: while they prepare, while they wait with the approval, while they recover."""
        self._agent("prepare", "agent-prepare", b'"phase":"prepare"', hanging="prepare-running")
        self._agent("approve", "second", b'"phase":"ready"')
        self._agent("recover", "agent-recover", b'"phase":"recover"', hanging="recover-running")

    def _agent(self, name: str, vm: str, phase: bytes, *, hanging: str = "") -> None:
        """Run an agent until it is in a phase and, if something is to hang there, until that does; then kill it."""
        directory = agent_directory(self.service.directory / "agents" / name)
        endpoint = self.api.vm(vm).guest_url
        assert endpoint is not None
        if hanging:
            (directory / f"hang-{hanging}").touch()
        with agent(directory, endpoint):
            journal = directory / "state/journal"
            wait_for(lambda: any(phase in path.read_bytes() for path in journal.glob("*.json")))
            wait_for(lambda: not hanging or (directory / "hanging").exists())
            time.sleep(0.5)  # what runs at the same time ends
        if hanging:
            os.kill(int((directory / "hanging").read_text()), signal.SIGKILL)

    def _hang(self) -> None:
        """Start work that does not end before the service does: nothing may move the clock from here on."""
        api, service = self.api, self.service
        for vm, behaviour in (("big-0", "succeed"), ("big-1", "hang"), ("big-2", "fail"), ("big-3", "later")):
            service.behave(vm, behaviour)
        service.behave("big-4", "fail")
        service.behave("big-5", "later")
        big = self._start_now(EventType.REBOOT, *(f"big-{n}" for n in range(6)))
        self._await(big, ImpactState.FAILED, vm="big-4")
        api.resolve(big, v1.ResolveImpact(done=False, reason="replaced", vm="big-4"))
        self._await(big, ImpactState.RETRY, vm="big-5")
        api.remove_vm("big-5", force=True, reason="stolen")
        self._await(big, ImpactState.DONE, vm="big-0")
        self._await(big, ImpactState.BEGUN, vm="big-1")
        self._await(big, ImpactState.FAILED, vm="big-2")
        self._await(big, ImpactState.RETRY, vm="big-3")
        self.known["big"] = big
        service.behave("campaign-aborting", "hang")
        self._start_campaign("aborting")
        wait_for(lambda: list(api.events(scope="campaign-aborting")))
        (event,) = api.events(scope="campaign-aborting")
        api.approve(event.id, v1.ApproveEvent(vm="campaign-aborting", reason="by phone"), key="approve-1")
        self._await(event.id, ImpactState.BEGUN)
        self.known["begun"] = event.id
        api.abort_campaign("aborting", v1.AbortCampaign(reason="changed plans"))
        wait_for(lambda: len(list((service.data / "work").glob("*.carry-out.note"))) == 2)

    def _holds(self) -> None:
        self.api.hold(v1.CreateHold(reason="change freeze"), key="hold-2")

    def _ask(self, *vms: str, but: str = "") -> None:
        """Let VMs ask for events."""
        for vm in vms:
            if vm not in but.split():
                ask_as(self.api.vm(vm).guest_url)

    def _schedule(self, type_: EventType, *vms: str, notice: str, key: str | None = None, **more: str) -> str:
        body = {"type": type_, "vms": vms, "notice": notice, "unannounced": True, **more}
        ask = msgspec.convert(body, v1.ScheduleEvents)
        (made,) = self.api.schedule(ask, key=key).created
        return made.id

    def _poll(self, scopes: str) -> None:
        """Poll as every VM of the scopes, so that they hear of a campaign."""
        for vm in list(self.api.vms()):
            if fnmatch(vm.scope, scopes):
                ask_as(vm.guest_url)

    def _start_now(self, type_: EventType, *vms: str) -> str:
        (made,) = self.api.fail(v1.Fail(vms=vms, type=type_)).created
        return made.id

    def _await(self, event: str, state: ImpactState, vm: str | None = None) -> None:
        wait_for(lambda: state in impacts(self.api, event, vm))


def impacts(api: ApiClient, event: str, vm: str | None = None) -> list[ImpactState]:
    """Return how far the work of an event is, on all VMs or on one."""
    found = api.event(event).event
    return [impact.state for impact in (found.impacts if found is not None else ()) if vm in (None, impact.vm)]


def agent_directory(directory: Path) -> Path:
    """Make a directory with all that an agent needs."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "agent.toml").write_text(AGENT_SETTINGS.format(directory=directory, deputy_after="1d"))
    write_program(directory / "half", HALF)
    write_program(directory / "systemctl", SYSTEMCTL)
    return directory


def _approval(event: str) -> bytes:
    return b'{"StartRequests":[{"EventId":"%s"}]}' % event.encode()
