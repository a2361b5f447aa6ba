"""What the service and the agent exchange with others, as they really render it: none of it may change."""

import json
import os
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec

from forewarn import __version__
from forewarn.agent.phases import HandlerCall, Phase
from forewarn.agent.settings import read_settings
from forewarn.agent.settings.types import ApprovalMode
from forewarn.agent.workflow.state import ApprovalState
from forewarn.agent.workflow.state import CallState as HalfState
from forewarn.api.campaign_file import parse_campaign, read_campaign
from forewarn.cli.errors import EXIT_INTERRUPTED, ExitCode
from forewarn.client.changes import Ending
from forewarn.core.access import Role
from forewarn.core.campaign.record import CampaignState, WaveState
from forewarn.core.campaign.spec import WaveKind, Weekday
from forewarn.core.event import Cause, EventType, Source, State
from forewarn.core.fault import FaultKind
from forewarn.core.impact import ImpactState
from forewarn.core.journal import EntryKind
from forewarn.core.policy import AnnouncePolicy
from forewarn.core.schedule import ScheduleRequest
from forewarn.core.scope import ApprovalRule, EventOutcome, ScopeKind
from forewarn.core.vm import Os, Priority
from forewarn.fleet.targets import _digest
from forewarn.settings.types import LogFormat, LogLevel, PlatformName
from forewarn.store.port import RecordKind
from tests.stored.history import agent_directory
from tests.stored.records import STORED
from tests.stored.rendering import key_paths, rendered
from tests.stored.service_process import Service, agent, environment, get, wait_for
from tests.support.program import GUARD, LOOPBACK, PROGRAM

ENUMS = (
    *(
        RecordKind,
        EntryKind,
        EventType,
        Source,
        Cause,
        State,
        ImpactState,
        ScopeKind,
        ApprovalRule,
        EventOutcome,
        Priority,
        Os,
    ),
    *(CampaignState, WaveState, WaveKind, Weekday, Role, FaultKind, AnnouncePolicy, PlatformName, LogFormat, LogLevel),
    *(Phase, HandlerCall, HalfState, ApprovalState, Ending, ApprovalMode, ExitCode),
)

SECRET = "a-secret-of-peers"
DOCUMENTS = (
    "/metadata/scheduledevents?api-version=2017-08-01",
    "/metadata/scheduledevents?api-version=2019-08-01",
    "/metadata/scheduledevents?api-version=2020-07-01",
    "/metadata/instance?api-version=2021-02-01",
)
AGENT_VARIABLES = (
    "ENDPOINT NAME AGENT_STATE AGENT_INTERVAL AGENT_HTTP_LISTEN AGENT_APPROVAL_POLICY AGENT_APPROVAL_DEPUTY_AFTER "
    "AGENT_APPROVAL_USER_EVENTS_AT_ONCE AGENT_APPROVAL_SHORT_FREEZE AGENT_PEERS_SECRET_FILE AGENT_PEERS_AGENTS "
    "AGENT_PEERS_TIME_LIMIT AGENT_PEERS_ASK_EVERY AGENT_LOG_FORMAT AGENT_LOG_LEVEL"
)


def enum_values() -> list[list[str | int]]:
    """Return the values of every enum that is stored or exchanged; at the end how a program ends on Ctrl-C."""
    return [*([member.value for member in enum] for enum in ENUMS), [EXIT_INTERRUPTED]]


def digest() -> str:
    """Return the digest of a request that the fleet computes by itself, with every field set."""
    ask = ScheduleRequest(
        id="AAAAAAAA-0000-4000-8000-000000000001",
        type=EventType.REBOOT,
        vms=("web-0", "web-1"),
        by="somebody",
        source=Source.PLATFORM,
        not_before=datetime(2100, 1, 1, tzinfo=UTC),
        duration=timedelta(seconds=90),
        description="Updates.",
        why="CVE",
        key="event-1",
        campaign="kernel",
        wave=3,
    )
    return _digest(ask)


def campaign_file() -> Any:
    """Return what is read from a campaign file with every key."""
    text = (STORED / "samples/campaign.toml").read_text()
    return rendered(read_campaign(parse_campaign(text, file="campaign.toml"), file="campaign.toml"))


def agent_settings(directory: Path) -> Any:
    """Return what is read from settings of an agent with every key, without the names of attributes."""
    file = directory / "agent.toml"
    shutil.copy(STORED / "samples/agent.toml", file)
    settings = read_settings(file, {})
    return json.loads(re.sub(re.escape(str(directory)), "DIRECTORY", json.dumps(_plain(settings), default=str)))


def _plain(settings: Any) -> Any:
    """Render settings as lists; paths, addresses and the like as texts."""
    if isinstance(settings, msgspec.Struct) and "__str__" not in vars(type(settings)):
        return [_plain(getattr(settings, name)) for name in settings.__struct_fields__]
    if isinstance(settings, tuple | list):
        return [_plain(item) for item in settings]
    return settings if settings is None or isinstance(settings, str | int | float) else str(settings)


def service_settings(directory: Path) -> dict[str, Any]:
    """Return `forewarn config` with every key in the file, and with every variable."""
    shutil.copy(STORED / "samples/forewarn.toml", directory / "forewarn.toml")
    by_file = _config(directory)
    (directory / "forewarn.toml").unlink()
    return {"file": by_file, "variables": _config(directory, **{row[1]: _said(row[2]) for row in by_file})}


def _said(value: Any) -> str:
    if isinstance(value, list):
        joined = value if not value or not value[0].startswith("{") else [_merged(value)]
        return (" " if value and value[0].startswith(("/", "http")) else ",").join(joined)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _merged(tables: list[str]) -> str:
    return json.dumps({name: table for text in tables for name, table in json.loads(text).items()})


def _config(directory: Path, **variables: str) -> list[list[Any]]:
    """Return key, variable, value and origin of each setting."""
    ended = run(directory, "config", "-o", "json", **variables)
    assert ended.returncode == 0, ended.stderr
    shown = json.loads(ended.stdout.replace(str(directory), "DIRECTORY"))
    return [[row["key"], row["variable"], row["value"], row["origin"]] for row in shown]


def run(directory: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [PROGRAM, *words],
        cwd=directory,
        env=environment(directory) | variables,
        capture_output=True,
        text=True,
        timeout=GUARD,
        check=False,
    )


def metrics(text: str) -> dict[str, list[str]]:
    """Return the kind of every metric, and each series without its value, by name; statuses may differ."""
    found: dict[str, set[str]] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            name, kind = line.split()[2:]
            found.setdefault(name, set()).add(kind)
        elif not line.startswith("#"):
            series = re.sub(r'(status|version)="[0-9.]+"', r'\1="…"', line.rpartition(" ")[0])
            found.setdefault(series.partition("{")[0], set()).add(series)
    return {name: sorted(series) for name, series in sorted(found.items()) if not name.startswith("process_")}


class Receiver:
    """Keeps what is posted to it."""

    def __init__(self) -> None:
        self.posts: list[dict[str, Any]] = []

    @contextmanager
    def listening(self) -> Iterator[str]:
        """Give the URL to post to."""
        posts = self.posts

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                own = {name: value for name, value in self.headers.items() if name.startswith("Forewarn-")}
                posts.append({"headers": own, "body": body.decode().replace(__version__, "VERSION")})
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://{LOOPBACK}:{server.server_port}/hook"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


def service_side(service: Service, known: dict[str, str]) -> dict[str, Any]:
    """Return what a service on the stored data tells VMs, Prometheus, webhooks and other programs on its machine."""
    receiver = Receiver()
    with receiver.listening() as url, service.running(webhook=url) as api:
        wait_for(lambda: api.event(known["begun"]).outcome is not None)
        wait_for(lambda: len(receiver.posts) >= WEBHOOKS)
        token = (service.data / "token").read_text().strip()
        text = get(f"{service.url}/metrics", {"Authorization": f"Bearer {token}"}).decode()
        vms = ("web-0", "role-0", "batch_1", "pair-0")
        documents = {
            f"{vm} {target}": get(f"{api.vm(vm).guest_url}{target}", {"Metadata": "true"}).decode()
            for vm in vms
            for target in DOCUMENTS
        }
        fleet_file = b"".join(api.export_fleet()).decode()
        local = sorted(json.loads((service.data / "service.json").read_text()))
    return {
        "webhooks": sorted(receiver.posts, key=lambda post: post["body"]),
        "metrics": metrics(text),
        "documents": documents,
        "fleet.toml": [line for line in fleet_file.splitlines() if not line.startswith("#")],
        "service.json": local,
        "preset": (service.data / "preset").read_text(),
        "probe variables": variable_names(service.directory / "big-1.variables"),
        "probe input": sorted(key_paths(json.loads((service.directory / "big-1.input").read_text()))),
    }


WEBHOOKS = 10
"""How many messages of campaigns wait in the stored data, or come when the service starts."""


def agent_side(directory: Path, service: Service, known: dict[str, str]) -> dict[str, Any]:
    """Return what an agent that prepares tells its peers, Prometheus and programs."""
    target = agent_directory(directory / "agent")
    settings = (target / "agent.toml").read_text().replace('listen = "none"', f'listen = "{LOOPBACK}:8160"')
    (target / "agent.toml").write_text(f'{settings}\n[peers]\nsecret_file = "secret"\n')
    (target / "secret").write_text(SECRET)
    (target / "secret").chmod(0o600)
    (target / "hang-prepare-waiting").touch()
    bearer = {"Authorization": f"Bearer {SECRET}"}
    with service.running() as api, agent(target, str(api.vm("agent-prepare").guest_url)):
        wait_for((target / "hanging").exists)
        word = json.loads(get(f"http://{LOOPBACK}:8160/v1/ready/{known['agent-prepare']}", bearer))
        text = get(f"http://{LOOPBACK}:8160/metrics", {}).decode()
        status = socket_status(target / "state/agent.sock")
    os.kill(int((target / "hanging").read_text()), 9)
    return {
        "peers' answer": word | {"why": ""},
        "metrics": metrics(text),
        "status": sorted(key_paths(status)),
        "variables": variable_names(target / "half-variables"),
        "input": json.loads((target / "half-input").read_text()),
        "state": sorted(path.name for path in (target / "state").iterdir()),
    }


def socket_status(path: Path) -> Any:
    """Ask a running agent for its status, as a command line of another version would."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(10)
        connection.connect(str(path))
        connection.sendall(b"GET /v1/status HTTP/1.1\r\nHost: agent\r\n\r\n")
        with connection.makefile("rb") as answer:
            return json.loads(answer.read().partition(b"\r\n\r\n")[2])


def variable_names(path: Path) -> list[str]:
    """Return the names of the variables that a program has written down."""
    return [line.partition("=")[0] for line in path.read_text().splitlines()]


def known_agent_variables(directory: Path) -> list[str]:
    """Return the variables of the agent that are read: each has a value here that is refused, or has an effect."""
    usual = _plain(read_settings(None, {"HOME": str(directory)}))
    found = []
    for name in AGENT_VARIABLES.split():
        try:
            settings = _plain(read_settings(None, {"HOME": str(directory), f"FOREWARN_{name}": "bogus value"}))
        except Exception:  # noqa: BLE001 - whatever refuses it has read it
            found.append(name)
        else:
            found += [name] if settings != usual else []
    return found


def exit_codes(service: Service) -> dict[str, int]:
    """Return how commands end."""
    commands = {
        "done": ("scope", "list"),
        "usage": ("scope", "list", "--bogus"),
        "not found": ("scope", "show", "nowhere"),
        "refused": ("hold", "change", "--key", "event-1", "--scope", "keyed"),
        "unreachable": ("scope", "list", "--url", f"http://{LOOPBACK}:9", "--token", "none-at-all-but-long"),
    }
    with service.running():
        return {name: run(service.directory, *words).returncode for name, words in commands.items()}
