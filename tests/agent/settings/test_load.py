"""agent.toml: all keys, error messages, and that every key is documented."""

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from forewarn.agent.phases import Phase
from forewarn.agent.settings import (
    KINDS,
    TEMPLATE_FIELDS,
    Address,
    AgentSettings,
    ApprovalMode,
    ApprovalSettings,
    ExecSettings,
    HandlerSettings,
    HaproxySettings,
    HttpSettings,
    LogHandlerSettings,
    NotifySettings,
    PeersSettings,
    ReadinessSettings,
    RecoverMode,
    Rule,
    SystemdSettings,
    WebhookSettings,
    read_settings,
    settings_file,
    variable,
)
from forewarn.agent.settings.load import load_agent_settings
from forewarn.core.event import EventType, Source
from forewarn.settings.errors import SettingsError
from forewarn.settings.loader import Precedence, SettingSource, setting_types
from forewarn.settings.schema import EMULATOR
from forewarn.settings.types import ListenAddress, LogFormat, LogLevel, LogSettings, format_value

PAGE = Path(__file__).parents[3] / "docs/reference/agent.md"

EVERYTHING = """\
endpoint = "http://127.0.0.1:8180"
name = "web_0"
state = "state"
interval = "0.5s"

[http]
listen = "10.0.0.4:8160"

[approval]
policy = "each"
deputy_after = "20s"
user_events_at_once = false
short_freeze = "none"

[peers]
secret_file = "peers.secret"
time_limit = "2s"
ask_every = "1s"
agents = { web_1 = "10.0.0.5:8160", web_2 = "web-2.internal:8160", web_3 = "[fd00::3]:8160" }

[log]
format = "text"
level = "debug"

[handlers.own]
kind = "exec"
importance = 90
time_limit = "1m"
retries = 5
pause = "3s"
ready_despite_failure = true
prepare = ["/usr/local/bin/drain", "--now"]
recover = ["/usr/local/bin/undrain"]
recovery = "at-most-once"

[handlers.hooks]
kind = "exec"
hooks = "hooks.d"

[handlers.stop]
kind = "systemd"
units = ["nginx.service", "getty@tty1.service"]

[handlers.tell]
kind = "http"
url = "https://chat.example/hook?x=1"
method = "PUT"
phases = ["notice", "Recover"]
content_type = "text/plain"
body = "$type of $name"
secret_file = "/etc/forewarn/hook.secret"
header = "X-Key"
prefix = ""
ca = "ca.pem"

[handlers.drain]
kind = "haproxy"
socket = "10.0.0.9:9999"
servers = ["web/web_0"]
wait = "0s"

[handlers.probe]
kind = "readiness"
listen = "0.0.0.0:8161"
path = "/up"
wait = "10s"

[handlers.people]
kind = "notify"
urls_file = "urls"
phases = ["impact"]
title = "$phase"
body = "$$5"

[handlers.central]
kind = "log"

[[rules]]
types = ["Reboot", "redeploy"]
sources = ["Platform"]
at_least = "10s"
at_most = "1h"
description = "*maintenance*"
handlers = ["own", "drain"]

[[rules]]
handlers = []
"""


def file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "agent.toml"
    path.write_text(text)
    return path


def read(tmp_path: Path, text: str, **environ: str) -> AgentSettings:
    return read_settings(file(tmp_path, text), {"HOME": str(tmp_path), **environ})


def test_every_key_is_read(tmp_path: Path) -> None:
    assert read(tmp_path, EVERYTHING) == AgentSettings(
        endpoint="http://127.0.0.1:8180",
        name="web_0",
        state=tmp_path / "state",
        interval=timedelta(seconds=0.5),
        http=HttpSettings(listen=ListenAddress("10.0.0.4", 8160)),
        approval=ApprovalSettings(
            policy=ApprovalMode.EACH, deputy_after=timedelta(seconds=20), user_events_at_once=False, short_freeze=None
        ),
        peers=PeersSettings(
            secret_file=tmp_path / "peers.secret",
            agents=(
                ("web_1", Address("10.0.0.5", 8160)),
                ("web_2", Address("web-2.internal", 8160)),
                ("web_3", Address("fd00::3", 8160)),
            ),
            time_limit=timedelta(seconds=2),
            ask_every=timedelta(seconds=1),
        ),
        log=LogSettings(format=LogFormat.TEXT, level=LogLevel.DEBUG),
        handlers=(
            ExecSettings(
                name="own",
                importance=90,
                time_limit=timedelta(minutes=1),
                retries=5,
                pause=timedelta(seconds=3),
                ready_despite_failure=True,
                prepare=("/usr/local/bin/drain", "--now"),
                recover=("/usr/local/bin/undrain",),
                recovery=RecoverMode.AT_MOST_ONCE,
            ),
            ExecSettings(name="hooks", hooks=tmp_path / "hooks.d"),
            SystemdSettings(name="stop", units=("nginx.service", "getty@tty1.service")),
            WebhookSettings(
                name="tell",
                url="https://chat.example/hook?x=1",
                method="PUT",
                phases=(Phase.NOTICE, Phase.RECOVER),
                content_type="text/plain",
                body="$type of $name",
                secret_file=Path("/etc/forewarn/hook.secret"),
                header="X-Key",
                prefix="",
                ca=tmp_path / "ca.pem",
            ),
            HaproxySettings(name="drain", socket=Address("10.0.0.9", 9999), servers=("web/web_0",), wait=timedelta(0)),
            ReadinessSettings(
                name="probe", listen=ListenAddress("0.0.0.0", 8161), path="/up", wait=timedelta(seconds=10)
            ),
            NotifySettings(
                name="people", urls_file=tmp_path / "urls", phases=(Phase.IMPACT,), title="$phase", body="$$5"
            ),
            LogHandlerSettings(name="central"),
        ),
        rules=(
            Rule(
                types=(EventType.REBOOT, EventType.REDEPLOY),
                sources=(Source.PLATFORM,),
                at_least=timedelta(seconds=10),
                at_most=timedelta(hours=1),
                description="*maintenance*",
                handlers=("own", "drain"),
            ),
            Rule(handlers=()),
        ),
    )


def keys(section: type[msgspec.Struct]) -> Iterator[str]:
    """Yield every key of a section and of its sub-sections."""
    return (key.rpartition(".")[2] for key in setting_types(section))


def test_complete_file_contains_every_key() -> None:
    """A new key must be added to EVERYTHING, so that at least one test reads it."""
    said = set(re.findall(r"^(\w+) =", EVERYTHING, re.MULTILINE))
    sections: tuple[type[msgspec.Struct], ...] = (AgentSettings, Rule, *KINDS.values())
    assert {key for section in sections for key in keys(section)} - said == {"url_file"}


def test_default_settings_log_events(tmp_path: Path) -> None:
    assert read(tmp_path, "", FOREWARN_AGENT_STATE="/s") == AgentSettings(
        state=Path("/s"), handlers=(LogHandlerSettings(name="log"),)
    )
    assert read_settings(None, {"FOREWARN_AGENT_STATE": "/s"}).handlers == (LogHandlerSettings(name="log"),)


def test_variables_override_the_file(tmp_path: Path) -> None:
    said = read(
        tmp_path,
        EVERYTHING,
        FOREWARN_ENDPOINT="10.0.0.1",
        FOREWARN_NAME="web_7",
        FOREWARN_AGENT_STATE="/s",
        FOREWARN_AGENT_HTTP_LISTEN="none",
        FOREWARN_AGENT_INTERVAL="",
        FOREWARN_AGENT_APPROVAL_POLICY="never",
        FOREWARN_AGENT_PEERS_SECRET_FILE="none",
        FOREWARN_AGENT_PEERS_AGENTS="none",
        FOREWARN_AGENT_LOG_LEVEL="warning",
    )
    assert (said.endpoint, said.name, said.state) == ("http://10.0.0.1", "web_7", Path("/s"))
    assert (said.http.listen, said.interval, said.approval.policy) == (None, timedelta(seconds=0.5), ApprovalMode.NEVER)
    assert (said.peers.secret_file, said.peers.agents, said.log.level) == (None, (), LogLevel.WARNING)


def test_peers_can_be_set_in_a_variable(tmp_path: Path) -> None:
    text = '[peers]\nsecret_file = "s"\n'
    said = read(tmp_path, text, FOREWARN_AGENT_PEERS_AGENTS="web_1=10.0.0.5:8160, web_2=b:1")
    assert said.peers.agents == (("web_1", Address("10.0.0.5", 8160)), ("web_2", Address("b", 1)))


def test_default_state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(tmp_path, "", STATE_DIRECTORY="/var/lib/a:/var/lib/b").state == Path("/var/lib/a")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert read(tmp_path, "").state == Path("/var/lib/forewarn-agent")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert read(tmp_path, "").state == tmp_path / ".local/share/forewarn/agent"


def test_settings_file_search_order(tmp_path: Path) -> None:
    environ = {"FOREWARN_AGENT_CONFIG": "/e.toml"}
    assert settings_file("/a.toml", environ, tmp_path) == Path("/a.toml")
    assert settings_file(None, environ, tmp_path) == Path("/e.toml")
    here = file(tmp_path, "")
    assert settings_file(None, {}, tmp_path) == here


HANDLER = "[handlers.h]\nkind = "
WRONG = {
    "no toml": ("a = ", "invalid TOML"),
    "unknown key": ("speed = 1", "speed: unknown key; valid keys: approval, endpoint, handlers, http, interval"),
    "unknown key of a section": ("[http]\nport = 1", "http.port: unknown key; valid keys: listen"),
    "section that is no table": ("http = 1", "http takes a table, not 1"),
    "endpoint with a path": ('endpoint = "http://h/metadata"', "endpoint takes a host, HOST:PORT or an http URL"),
    "interval too short": (
        'interval = "1ms"',
        'interval takes a duration from "0.1s" to "5m"; \'1ms\' is not a duration: ',
    ),
    "policy": ('[approval]\npolicy = "all"', 'approval.policy takes "never", "leader", "each", not "all"'),
    "flag": ("[approval]\nuser_events_at_once = 1", "approval.user_events_at_once takes true or false, not 1"),
    "peer without a port": (
        '[peers]\nsecret_file = "s"\nagents = { a = "10.0.0.5" }',
        "peers.agents takes a table such as",
    ),
    "peers without a secret": (
        '[peers]\nagents = { a = "h:1" }',
        "peers.agents needs peers.secret_file: agents answer each other only with a shared secret",
    ),
    "peers without a listener": (
        'http.listen = "none"\n[peers]\nsecret_file = "s"',
        'http.listen is "none", but peers need it to reach this agent',
    ),
    "handlers that are no tables": ("handlers = 1", "handlers takes a table, not 1"),
    "handler's name": ('[handlers."a b"]\nkind = "log"', "handlers.a b: handler name 'a b': use 1 to"),
    "no kind": ("[handlers.h]\n", 'handlers.h.kind is missing; use one of "exec", "systemd", "http"'),
    "unknown kind": (f'{HANDLER}"email"', 'handlers.h.kind takes "exec", "systemd", "http", "haproxy"'),
    "key of another kind": (
        f'{HANDLER}"log"\nunits = []',
        "handlers.h.units: unknown key; valid keys: importance, ",
    ),
    "name is no key": (f'{HANDLER}"log"\nname = "x"', "handlers.h.name: unknown key; valid keys: "),
    "importance": (f'{HANDLER}"log"\nimportance = 101', "handlers.h.importance takes an integer from 0 to 100"),
    "no time at all": (f'{HANDLER}"log"\ntime_limit = "0s"', "handlers.h.time_limit takes a duration above 0s"),
    "program that is not absolute": (f'{HANDLER}"exec"\nprepare = ["drain"]', "handlers.h.prepare takes the absolute"),
    "exec without a program": (f'{HANDLER}"exec"', "handlers.h.prepare is missing: set prepare or recover"),
    "exec with hooks and a program": (
        f'{HANDLER}"exec"\nhooks = "d"\nprepare = ["/x"]',
        "handlers.h.hooks cannot be combined with prepare or recover",
    ),
    "no units": (f'{HANDLER}"systemd"', "handlers.h.units is missing"),
    "unit without a suffix": (f'{HANDLER}"systemd"\nunits = ["nginx"]', "handlers.h.units takes a list of units with"),
    "unit that is an option": (f'{HANDLER}"systemd"\nunits = ["--now x.service"]', "handlers.h.units takes"),
    "no servers": (f'{HANDLER}"haproxy"', "handlers.h.servers is missing"),
    "server with a command": (f'{HANDLER}"haproxy"\nservers = ["web/a; x"]', "handlers.h.servers takes a list of"),
    "no url": (f'{HANDLER}"http"', "handlers.h.url is missing: set url, or url_file"),
    "two urls": (
        f'{HANDLER}"http"\nurl = "http://a"\nurl_file = "f"',
        "handlers.h.url and url_file are mutually exclusive",
    ),
    "other scheme": (f'{HANDLER}"http"\nurl = "file:///x"', "handlers.h.url takes an http or https URL"),
    "header with a break": (
        f'{HANDLER}"http"\nurl = "http://a"\nheader = "A\\r\\nB"',
        "handlers.h.header takes the name",
    ),
    "template with an unknown field": (
        f'{HANDLER}"http"\nurl = "http://a"\nbody = "$color"',
        "handlers.h.body takes a text that may contain $id, $type, $status",
    ),
    "template with a lone dollar": (f'{HANDLER}"http"\nurl = "http://a"\nbody = "5 $"', "handlers.h.body takes a text"),
    "unknown phase": (f'{HANDLER}"http"\nurl = "http://a"\nphases = ["late"]', "handlers.h.phases takes a list of"),
    "no urls_file": (f'{HANDLER}"notify"', "handlers.h.urls_file is missing"),
    "probe on the agent's address": (
        f'{HANDLER}"readiness"\nlisten = "127.0.0.1:8160"',
        "handlers.h.listen has the same address as http.listen",
    ),
    "readiness wait over the time limit": (
        f'{HANDLER}"readiness"\nwait = "30s"',
        "handlers.h.wait must be shorter than time_limit",
    ),
    "drain wait over the time limit": (
        f'{HANDLER}"haproxy"\nservers = ["a/b"]\ntime_limit = "5s"',
        "handlers.h.wait must be shorter than time_limit",
    ),
    "rules that are no list": ("[rules]\nx = 1", "rules takes a list of tables"),
    "rule without handlers": ("[[rules]]\n", "rules[0].handlers is missing"),
    "rule with an unknown handler": (
        '[[rules]]\nhandlers = ["log"]\n[[rules]]\nhandlers = ["drain"]',
        "rules[1].handlers contains unknown handler drain; configured: log",
    ),
    "rule with an unknown type": (
        '[[rules]]\ntypes = ["Reboots"]\nhandlers = []',
        'rules[0].types takes a list of "Freeze"',
    ),
    "rule with an unknown source": (
        '[[rules]]\nsources = ["Me"]\nhandlers = []',
        'rules[0].sources takes a list of "Platform", "User", not ["Me"]',
    ),
    "rule that no event can match": (
        '[[rules]]\nat_least = "2m"\nat_most = "1m"\nhandlers = []',
        "rules[0].at_least is longer than at_most",
    ),
}


@pytest.mark.parametrize(("text", "said"), WRONG.values(), ids=WRONG)
def test_error_names_file_key_and_allowed_values(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, text)
    message = re.sub(r"agent\.toml:\d+: ", "agent.toml: ", str(caught.value))
    assert message.startswith(f"{tmp_path / 'agent.toml'}: {said}")


LINES = {
    "value": ('endpoint = "h"\n\n[approval]\npolicy = "perhaps"', "4: approval.policy takes "),
    "unknown key": ('[http]\nlisten = "none"\nport = 1', "3: http.port: unknown key; valid keys: listen"),
    "no section": ("\npeers = 1", "2: peers takes a table, not 1"),
    "unknown table": ("[peer]", "1: peer: unknown key; did you mean peers? Valid keys: approval, "),
    "key of a handler": ('[handlers.h]\nkind = "log"\nimportance = -1', "3: handlers.h.importance takes "),
    "missing key of a handler": ('\n[handlers.h]\nkind = "systemd"', "2: handlers.h.units is missing"),
    "rule": ("[[rules]]\nhandlers = []\n[[rules]]\ntypes = []", "3: rules[1].handlers is missing"),
    "conflict": ('[peers]\ntime_limit = "1s"\nagents = { a = "h:1" }', "3: peers.agents needs peers.secret_file"),
    "name in a rule": ('[[rules]]\n\nhandlers = ["x"]', "3: rules[0].handlers contains unknown handler x"),
}


@pytest.mark.parametrize(("text", "said"), LINES.values(), ids=LINES)
def test_error_names_the_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'agent.toml'}:{said}")


def test_source_of_each_value_is_known(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('interval = "2s"\n\n[http]\nlisten = "none"\n')
    sources = load_agent_settings(file, {"FOREWARN_AGENT_HTTP_LISTEN": "127.0.0.1:1", "FOREWARN_NAME": "web_0"}).sources
    assert {key: source for key, source in sources.items() if source.precedence is not Precedence.PRESET} == {
        "interval": SettingSource(Precedence.FILE, str(file), 1),
        "http.listen": SettingSource(Precedence.ENVIRONMENT, "FOREWARN_AGENT_HTTP_LISTEN"),
        "name": SettingSource(Precedence.ENVIRONMENT, "FOREWARN_NAME"),
    }
    assert set(sources) == set(setting_types(AgentSettings))


def test_state_directory_of_systemd_is_a_source(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "STATE_DIRECTORY": "/var/lib/a"}
    made = load_agent_settings(None, environ).sources["state"]
    given = load_agent_settings(None, environ, flags={"state": "/s"})
    assert made == SettingSource(Precedence.ENVIRONMENT, "STATE_DIRECTORY")
    assert (given.sources["state"], given.settings.state) == (SettingSource(Precedence.FLAG, "--state"), Path("/s"))
    assert str(load_agent_settings(None, {"HOME": str(tmp_path)}).sources["state"]) == "default preset"


def test_flags_override_variables_and_file(tmp_path: Path) -> None:
    environ = {"FOREWARN_ENDPOINT": "10.0.0.1", "FOREWARN_AGENT_STATE": "/v"}
    settings = read_settings(file(tmp_path, EVERYTHING), environ, flags={"endpoint": "10.0.0.2", "state": "/s"})
    assert (settings.endpoint, settings.state, settings.name) == ("http://10.0.0.2", Path("/s"), "web_0")


@pytest.mark.parametrize(
    ("environ", "flags", "message"),
    [
        ({"FOREWARN_AGENT_APPROVAL_POLICY": "perhaps"}, {}, "FOREWARN_AGENT_APPROVAL_POLICY: approval.policy takes "),
        ({"FOREWARN_ENDPOINT": "h"}, {"endpoint": "http://h/x"}, "--endpoint: endpoint takes "),
        (
            {"FOREWARN_AGENT_PEERS_AGENTS": "a=b:1"},
            {},
            "FOREWARN_AGENT_PEERS_AGENTS: peers.agents needs peers.secret_file: ",
        ),
        (
            {"FOREWARN_AGENT_HTTP_LISTEN": "none", "FOREWARN_AGENT_PEERS_SECRET_FILE": "/secret"},
            {},
            'FOREWARN_AGENT_HTTP_LISTEN: http.listen is "none", ',
        ),
    ],
)
def test_error_names_the_flag_or_variable(
    tmp_path: Path, environ: dict[str, str], flags: dict[str, str], message: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        read_settings(file(tmp_path, '[log]\nlevel = "info"\n'), environ, flags=flags)
    assert str(caught.value).startswith(message)


def test_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file or directory"):
        read_settings(tmp_path / "none.toml", {})


def rows(heading: str) -> dict[str, list[str]]:
    """Return the table under a heading of the reference, by the key in its first column."""
    section = PAGE.read_text().partition(f"\n{heading}\n")[2].partition("\n##")[0]
    lines = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("| `")
    ]
    return {cells[0].strip("`"): cells[1:] for cells in lines}


def default_text(value: object) -> str:
    match format_value(value):
        case bool() as flag:
            return str(flag).lower()
        case list() as words:
            return ", ".join(words)
        case "none" | "":
            return "none"
        case text:
            return str(text)


def defaults(section: msgspec.Struct) -> dict[str, str]:
    found: dict[str, str] = {}
    for field in section.__struct_fields__:
        value = getattr(section, field)
        if isinstance(value, msgspec.Struct) and not isinstance(value, ListenAddress):
            found |= {f"{field}.{key}": text for key, text in defaults(value).items()}
        elif field not in ("handlers", "rules"):
            found[field] = default_text(value)
    return found


def test_reference_has_every_key_with_variable_and_default() -> None:
    documented = rows("## Keys")
    expected = defaults(AgentSettings())
    assert set(documented) == set(expected)
    assert {key: documented[key][0] for key in documented} == {key: f"`{variable(key)}`" for key in expected}
    assert {key: documented[key][-1] for key in documented} == expected


def test_reference_has_every_common_key_of_handlers() -> None:
    documented = rows("## Handlers")
    expected = {key: text for key, text in defaults(LogHandlerSettings(name="x")).items() if key != "name"}
    assert {key: cells[-1] for key, cells in documented.items()} == {"kind": "required", **expected}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_reference_has_every_key_of_a_kind(kind: type[HandlerSettings]) -> None:
    common = set(HandlerSettings.__struct_fields__)
    expected = {key: text for key, text in defaults(kind(name="x")).items() if key not in common}
    documented = {key: cells[-1] for key, cells in rows(f"### {kind.kind}").items()}
    if kind is NotifySettings:
        assert documented.pop("body") == "the event in three lines"
        assert expected.pop("body").count("\n") == 2
    assert documented == {key: text.strip() for key, text in expected.items()}


def test_reference_has_every_key_of_a_rule() -> None:
    assert set(rows("## Rules")) == set(Rule.__struct_fields__)


def test_reference_has_every_template_field() -> None:
    assert [key.removeprefix("$") for key in rows("## Templates")] == list(TEMPLATE_FIELDS)


def test_default_port_of_the_agent_is_no_port_of_the_emulator() -> None:
    """Agent and emulator may run on one machine; the emulator's VMs use the ports from its first port on."""
    agent, probe, first = AgentSettings().http.listen, ReadinessSettings(name="probe").listen, EMULATOR.settings.listen
    assert agent is not None
    assert first is not None
    assert max(agent.port, probe.port) < first.port
