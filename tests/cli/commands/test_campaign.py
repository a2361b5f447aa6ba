"""`forewarn campaign`: the commands against a real service with a manual clock.

Processes: for services whose platform and gates are programs, for Ctrl-C, and for SIGHUP.
"""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import IO, Any

import msgspec
import pytest

from forewarn.api import v1
from forewarn.api.errors import NotFound
from forewarn.cli.views.campaign import BAR_WIDTH
from forewarn.platform.webhooks import sign
from tests.cli.in_process import Script, run, run_details, run_json, run_live, run_table, run_up
from tests.cli.options.test_completion import completions
from tests.cli.service_machine import ServiceMachine, run_service_machine
from tests.support.program import GUARD, PROGRAM, Machine
from tests.support.serve_process import SETTINGS as SERVED
from tests.support.serve_process import run_serve

FLEET = """
[[scopes]]
name = "web"
kind = "availability-set"
update_domains = 3
hosts = ["hv-0", "hv-1", "hv-2"]
vms = [{ name = "web-{n}", count = 6 }]

[[scopes]]
name = "db"
kind = "availability-set"
update_domains = 2
hosts = ["hv-3", "hv-4"]
tags = { tier = "back" }
vms = [{ name = "db-{n}", count = 2 }]
"""

KERNEL = """
name = "kernel"
type = "Reboot"
duration = "1m"

[selection]
all = true

[policy]
gap = "1h"
"""


@pytest.fixture
def service_machine(tmp_path: Path) -> Iterator[ServiceMachine]:
    with run_service_machine(tmp_path, FLEET) as service_machine:
        (tmp_path / "kernel.toml").write_text(KERNEL)
        yield service_machine


@contextmanager
def watching(machine: Machine, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    process = subprocess.Popen(
        [PROGRAM, *arguments],
        cwd=machine.home,
        env=machine.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        yield process, process.stdout
        process.kill()


def test_plan_shows_every_wave_and_announces_nothing(service_machine: ServiceMachine) -> None:
    table = run_table(service_machine, "campaign", "plan", "kernel.toml")
    assert table[0] == ["ANNOUNCED", "NOT BEFORE", "ENDS", "SCOPE", "WAVE", "UPDATE DOMAIN", "HOSTS", "VMS"]
    announced, not_before = (datetime.fromisoformat(cell) for cell in table[1][:2])
    assert not_before - announced == timedelta(minutes=15)
    assert [row[3:] for row in table[1:] if row[3] == "web"] == [
        ["web", "1", "0", "hv-0", "web-0, web-3"],
        ["web", "2", "1", "hv-1", "web-1, web-4"],
        ["web", "3", "2", "hv-2", "web-2, web-5"],
    ]
    ended = run(service_machine, "campaign", "plan", "kernel.toml")
    assert ended.stderr.startswith("5 waves in 2 scopes: 8 VMs, 5 hosts; first announced at ")
    assert run_json(service_machine, "event", "list") == run_json(service_machine, "campaign", "list", "--all") == []


def test_plan_with_unplaced_vms_exits_with_3_and_start_refuses_it(service_machine: ServiceMachine) -> None:
    planned = run(service_machine, "campaign", "plan", "kernel.toml", "--vms-at-once", "1")
    assert planned.code == 3
    assert "\nUNPLACED" in planned.stdout
    assert "vms_at_once" in planned.stdout
    nothing = run(service_machine, "campaign", "plan", "kernel.toml", "--scope", "web", "--vms-at-once", "1")
    assert nothing.stdout.startswith("UNPLACED"), "no empty line without waves"
    assert "6 VMs unplaced" in planned.stderr
    started = run(service_machine, "campaign", "start", "kernel.toml", "--vms-at-once", "1")
    assert (started.code, started.stdout) == (3, "")
    assert "cannot be placed because of --vms-at-once" in started.stderr


def test_name_in_use_is_a_warning_of_plan_and_refused_by_start(service_machine: ServiceMachine) -> None:
    run_json(service_machine, "campaign", "start", "kernel.toml")
    planned = run(service_machine, "campaign", "plan", "kernel.toml")
    assert planned.code == 0
    assert "a campaign kernel is still open: until it ends, a campaign needs another name" in planned.stderr
    started = run(service_machine, "campaign", "start", "kernel.toml")
    assert (started.code, "an open campaign kernel already exists" in started.stderr) == (3, True)


def test_options_override_the_file_and_can_replace_it(service_machine: ServiceMachine) -> None:
    laid_over = run_json(
        service_machine, "campaign", "plan", "kernel.toml", "--scope", "db", "--gap", "2h", "--notice", "30m"
    )
    alone = run_json(
        service_machine, "campaign", "plan", "--name", "k", "--type", "reboot", "--duration", "1m",
        "--tag", "tier=back",
        "--gap", "2h", "--notice", "30m",
    )  # fmt: skip
    assert laid_over == alone
    assert [wave["vms"] for wave in alone["waves"]] == [["db-0"], ["db-1"]]


def test_every_option_has_the_effect_of_its_key(service_machine: ServiceMachine) -> None:
    tomorrow = (datetime.fromisoformat(run_json(service_machine, "clock", "show")["now"]) + timedelta(days=1)).replace(
        microsecond=0
    )
    start_at = tomorrow.isoformat().replace("+00:00", "Z")
    options = (
        "--name", "k", "--type", "Redeploy", "--duration", "9s", "--description", "new hosts",
        "--start-at", start_at, "--scope", "web", "--host", "hv-*", "--tag", "tier=back",
        "--exclude-scope", "no-*", "--exclude-host", "hv-9", "--exclude-vm", "web-5", "--exclude-tag", "a=b",
        "--gap", "2h", "--notice", "20m", "--expected", "3m", "--scopes-at-once", "50%", "--hosts-at-once", "2",
        "--vms-at-once", "7", "--window", "mon-fri 01:00-05:00 Europe/Vienna", "--window", "sat 00:00-24:00",
        "--blackout", "2029-12-24T12:00Z/2029-12-27T06:00Z holidays", "--zone", "Europe/Paris", "--must-end-inside",
        "--gate-patience", "1h", "--halt-after", "none", "--no-advance",
    )  # fmt: skip
    run_json(service_machine, "campaign", "start", *options)
    spec = run_json(service_machine, "campaign", "show", "k")["spec"]
    policy = spec.pop("policy")
    assert spec == {
        "name": "k",
        "type": "Redeploy",
        "duration": "9s",
        "description": "new hosts",
        "start_at": start_at,
        "selection": {
            "scopes": ["web"],
            "hosts": ["hv-*"],
            "tags": {"tier": "back"},
            "all": False,
            "exclude_scopes": ["no-*"],
            "exclude_hosts": ["hv-9"],
            "exclude_vms": ["web-5"],
            "exclude_tags": {"a": "b"},
        },
    }
    assert policy == {
        "waves": "update-domain",
        "gap": "2h",
        "notice": "20m",
        "expected": "3m",
        "scopes_at_once": "50%",
        "hosts_at_once": 2,
        "vms_at_once": 7,
        "windows": [
            {"days": ["mon", "tue", "wed", "thu", "fri"], "start": "01:00", "end": "05:00", "zone": "Europe/Vienna"},
            {"days": ["sat"], "start": "00:00", "end": "24:00", "zone": None},
        ],
        "blackouts": [{"start": "2029-12-24T12:00:00Z", "end": "2029-12-27T06:00:00Z", "why": "holidays"}],
        "zone": "Europe/Paris",
        "must_end_inside": True,
        "gate": None,
        "gate_patience": "1h",
        "halt_after": None,
        "advance": False,
    }


FULL = """
start_at = 2029-01-01T00:00:00Z
duration = "9s"
name = "k"
type = "Reboot"
[selection]
all = true
exclude_scopes = ["no-*"]
exclude_hosts = ["hv-9"]
exclude_vms = ["web-5"]
exclude_tags = { a = "b" }
[policy]
notice = "20m"
expected = "3m"
scopes_at_once = "50%"
hosts_at_once = 2
vms_at_once = 7
windows = ["22:00-23:00"]
blackouts = ["2029-12-24T12:00Z/2029-12-27T06:00Z"]
must_end_inside = true
gate = "health"
halt_after = 3
advance = false
"""
SWITCHES = [
    *("--start-at", "--duration", "--exclude-scope", "--exclude-host", "--exclude-vm", "--exclude-tag", "--notice"),
    *("--expected", "--scopes-at-once", "--hosts-at-once", "--vms-at-once", "--window", "--blackout", "--gate"),
]


def test_none_removes_a_value_of_the_file(service_machine: ServiceMachine) -> None:
    (service_machine.home / "full.toml").write_text(FULL)
    off = [word for switch in SWITCHES for word in (switch, "none")]
    run_json(
        service_machine,
        "campaign",
        "start",
        "full.toml",
        *off,
        "--no-must-end-inside",
        "--advance",
        "--halt-after",
        "none",
    )
    spec = run_json(service_machine, "campaign", "show", "k")["spec"]
    plain = v1.CampaignSpec(
        name="k",
        type=v1.CampaignType.REBOOT,
        selection=v1.SelectionView(all=True),
        policy=v1.PolicyView(halt_after=None),
    )
    assert spec == json.loads(msgspec.json.encode(plain))


WRONG = {
    "several with none": (
        ("kernel.toml", "--window", "none", "--window", "22:00-23:00"),
        "--window: 'none' is not a window",
    ),
    "nothing": ((), "missing: --name; --type; one of --scope, --host, --tag and --all; or use a FILE"),
    "missing file": (("no.toml",), "cannot read no.toml: No such file or directory"),
    "window": (("kernel.toml", "--window", "at night"), "--window: 'at night' is not a window"),
    "black-out": (("kernel.toml", "--blackout", "christmas"), "--blackout: 'christmas' is not a blackout"),
    "limit": (("kernel.toml", "--vms-at-once", "few"), "--vms-at-once: 'few' is not a limit"),
    "duration": (("kernel.toml", "--gap", "long"), "--gap: 'long' is not a duration"),
    "too long": (("kernel.toml", "--gap", "31d"), "forewarn: --gap: must be 0s to 30d, got 31d\n"),
    "pattern": (("kernel.toml", "--exclude-vm", "a b"), "--exclude-vm: 'a b' is neither a name nor a pattern"),
    "moment": (("kernel.toml", "--start-at", "2030-01-07T10:00"), "--start-at: must have a time zone: write it like"),
    "gate": (("kernel.toml", "--gate", "ftp://host/"), "--gate: 'ftp://host/' is not a valid gate URL"),
    "time of day": (("kernel.toml", "--window", "22-04:00"), "--window: start: '22' is not a time of day"),
    "reversed blackout": (
        ("kernel.toml", "--blackout", "2027-12-24T12:00Z/2026-12-24T12:00Z"),
        "--blackout: a black-out must end after it starts, not 2027-12-24T12:00:00Z to 2026-12-24T12:00:00Z",
    ),
    "tag": (("kernel.toml", "--tag", "tier"), "--tag: 'tier' is not a tag; write NAME=VALUE, such as team=web"),
    "all and some": (("kernel.toml", "--all", "--scope", "web"), "--all and --scope are mutually exclusive"),
    "halt after": (("kernel.toml", "--halt-after", "0"), "--halt-after: 0 is not allowed: use an integer from 1"),
}


@pytest.mark.parametrize(("arguments", "complaint"), WRONG.values(), ids=WRONG)
def test_error_names_the_invalid_option(
    service_machine: ServiceMachine, arguments: tuple[str, ...], complaint: str
) -> None:
    ended = run(service_machine, "campaign", "plan", *arguments)
    assert (ended.code, complaint in ended.stderr) == (2, True), ended.stderr


def test_error_names_the_option_or_line_of_an_unknown_time_zone(service_machine: ServiceMachine) -> None:
    ended = run(service_machine, "campaign", "plan", "kernel.toml", "--zone", "Mars/Base")
    assert ended.stderr.startswith("forewarn: --zone: there is no time zone 'Mars/Base'")
    (service_machine.home / "zones.toml").write_text(KERNEL + "windows = ['01:00-02:00', '03:00-04:00 Mars/Base']\n")
    ended = run(service_machine, "campaign", "plan", "zones.toml")
    assert ended.stderr.startswith("forewarn: zones.toml:11: policy.windows[1].zone: there is no time zone 'Mars/Base'")


def test_error_names_the_file_and_the_key(service_machine: ServiceMachine) -> None:
    (service_machine.home / "wrong.toml").write_text(KERNEL + "gaps = '1h'\n")
    ended = run(service_machine, "campaign", "start", "wrong.toml")
    assert ended.code == 2
    assert "wrong.toml:11: policy.gaps: unknown key; did you mean gap?" in ended.stderr


def test_campaign_is_started_shown_and_listed(service_machine: ServiceMachine) -> None:
    started = run(service_machine, "campaign", "start", "kernel.toml", "--reason", "ticket 4711", "--key", "k")
    again = run(service_machine, "campaign", "start", "kernel.toml", "--reason", "ticket 4711", "--key", "k")
    assert (started.code, again.code) == (0, 0)
    assert "To follow it: forewarn campaign watch kernel\n" in started.stderr
    run_json(service_machine, "clock", "advance", "20m")
    shown = run(service_machine, "campaign", "show", "kernel")
    assert f"wave 1  {'█' * BAR_WIDTH}  2/2 scopes, 3 VMs: 2 done" in shown.stdout
    assert f"wave 3  {'░' * BAR_WIDTH}  0/1 scopes, 2 VMs: 1 planned" in shown.stdout
    assert "until the gap after a wave is over" in shown.stdout
    known = run_details(service_machine, "campaign", "show", "kernel")
    assert (known["state"], known["selected"]) == ("Running", "8 VMs on 5 hosts in 2 scopes")
    assert run_details(service_machine, "campaign", "show", known["id"][:6].lower())["campaign"] == "kernel"
    assert [row[:4] for row in run_table(service_machine, "campaign", "list")[1:]] == [
        ["kernel", "Running", "Reboot", "2/5"]
    ]
    run_json(service_machine, "clock", "advance", "3h")
    assert run_json(service_machine, "campaign", "list") == []
    assert [each["state"] for each in run_json(service_machine, "campaign", "list", "--all")] == ["Completed"]
    short = run(service_machine, "campaign", "show", known["id"][:3])
    assert (short.code, "needs at least 4 characters" in short.stderr) == (4, True)
    (last,) = [
        row
        for row in run_table(service_machine, "journal", "--campaign", "kernel")
        if row[1:3] == ["wave-settled", "web, wave 3"]
    ]
    assert last[-1] == "update domain: 2; vms: 2"
    lines = [line["action"] for line in run_json(service_machine, "journal", "--campaign", "kernel")]
    assert (lines[0], lines[-1], lines.count("wave-settled")) == ("campaign-started", "campaign-ended", 5)


@pytest.mark.process
def test_clock_advance_shows_changes_of_campaigns(failing_service: ServiceMachine) -> None:
    (failing_service.home / "broken").touch()
    run_json(failing_service, "campaign", "start", "kernel.toml", "--scope", "web")
    said = run(failing_service, "clock", "advance", "20m").stderr
    # The wave may be announced before the clock is advanced, or during the advance.
    lines = [line for line in said.splitlines() if " campaign " in line and " wave-announced " not in line]
    told_of = [line.split()[2:5] for line in lines]
    assert told_of == [["campaign", "kernel", did] for did in ("wave-cleared", "wave-failed", "campaign-halted")], said
    assert "campaign kernel wave-cleared web, wave 1 (update domain: 0)" in said


def test_clock_advance_counts_changes_that_it_does_not_show(service_machine: ServiceMachine) -> None:
    run_json(service_machine, "campaign", "start", "kernel.toml")
    said = run(service_machine, "clock", "advance", "6h").stderr.splitlines()
    shown, (rest,) = said[:20], said[20:]
    assert all(line.startswith("2") for line in shown)
    number = int(rest.split()[2])
    assert rest.startswith(f"… and {number} more: forewarn journal --since ")
    since = rest.split()[-1]
    changes = run_json(service_machine, "journal", "--since", since)
    assert 0 < number <= len(changes)


def test_campaign_is_paused_resumed_and_aborted(service_machine: ServiceMachine) -> None:
    run_json(service_machine, "campaign", "start", "kernel.toml")
    paused = run(service_machine, "campaign", "pause", "kernel", "--reason", "look")
    assert tuple(paused.stdout.splitlines()[1].split()[:2]) == ("kernel", "Paused")
    assert "paused, by admin since" in run(service_machine, "campaign", "show", "kernel").stdout
    assert (
        "`forewarn campaign resume kernel` resumes it, `forewarn campaign abort kernel --reason …` aborts it."
        in paused.stderr
    )
    assert run_json(service_machine, "campaign", "resume", "kernel")["state"] == "Running"
    without = run(service_machine, "campaign", "abort", "kernel")
    assert (without.code, without.stderr) == (2, "forewarn: specify a reason for the journal: --reason TEXT\n")
    run_json(service_machine, "campaign", "abort", "kernel", "--reason", "withdrawn")
    run_json(service_machine, "clock", "advance", "1h")
    assert run_json(service_machine, "campaign", "show", "kernel")["state"] == "Aborted"
    assert run_json(service_machine, "event", "list") == []
    assert (
        f"wave 1  {'·' * BAR_WIDTH}  0/2 scopes, 3 VMs: 2 abandoned"
        in run(service_machine, "campaign", "show", "kernel").stdout
    )
    assert [row[:4] for row in run_table(service_machine, "campaign", "list", "--all")[1:]] == [
        ["kernel", "Aborted", "Reboot", "0/5"]
    ]
    assert "kernel Aborted, 0/5 waves, 5 left" in run(service_machine, "campaign", "watch", "kernel").stdout
    over = run(service_machine, "campaign", "resume", "kernel")
    unknown = run(service_machine, "campaign", "show", "nothing")
    assert (over.code, unknown.code) == (3, 4)
    assert "`forewarn campaign list --all` shows them" in unknown.stderr


def test_campaign_watch_writes_lines_until_the_end(service_machine: ServiceMachine) -> None:
    def script() -> Script:
        yield "\n"
        run_json(service_machine, "clock", "advance", "6h")

    watched = run_live(service_machine, "campaign", "start", "kernel.toml", "--wait", script=script())
    first, *rest = watched.stdout.splitlines()
    assert "kernel Running, 0/5 waves" in first
    assert any("wave-settled" in line for line in rest)
    assert "kernel Completed, 5/5 waves" in rest[-1]
    assert watched.code == 0


@pytest.mark.process
def test_campaign_watch_writes_json_lines_and_ctrl_c_does_not_stop_the_campaign(
    service_machine: ServiceMachine,
) -> None:
    run_json(service_machine, "campaign", "start", "kernel.toml")
    with watching(service_machine, "campaign", "watch", "kernel", "-o", "json") as (process, lines):
        first = json.loads(lines.readline())
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=GUARD)
    assert (first["name"], first["state"], process.returncode) == ("kernel", "Running", 130)
    assert "To watch again: forewarn campaign watch kernel" in said
    assert run_json(service_machine, "campaign", "show", "kernel")["state"] == "Running"


def test_campaign_watch_on_a_terminal_shows_progress_bars(service_machine: ServiceMachine) -> None:
    run_json(service_machine, "campaign", "start", "kernel.toml")

    def script() -> Script:
        yield "0/5 waves"
        yield "▒" * 3
        yield "The clock is manual"
        run_json(service_machine, "clock", "advance", "20m")
        yield "2/5 waves"
        yield "expected end"
        run_json(service_machine, "clock", "advance", "6h")
        yield "5/5 waves"

    watched = run_live(service_machine, "campaign", "watch", "kernel", columns=140, script=script())
    assert (watched.code, "█" * BAR_WIDTH in watched.stdout) == (0, True)


MAINTAIN = """#!/bin/sh
test "$FOREWARN_PHASE" = probe && exit 75
test ! -e broken || { echo "host does not answer" >&2; exit 1; }
"""

SETTINGS = """
platform = "command"
[command]
program = ["{home}/maintain"]
[gates.health]
command = ["/bin/sh", "-c", "test ! -e {home}/shut || {{ echo '3 alerts are firing'; exit 1; }}"]
retries = 0
"""


@pytest.fixture
def failing_service(tmp_path: Path) -> Iterator[ServiceMachine]:
    """Run a service with a gate whose platform program fails while a file exists."""
    service_machine = ServiceMachine(tmp_path)
    (tmp_path / "fleet.toml").write_text(FLEET)
    (tmp_path / "kernel.toml").write_text(KERNEL)
    (tmp_path / "maintain").write_text(MAINTAIN.replace("broken", f"{tmp_path}/broken"))
    (tmp_path / "maintain").chmod(0o755)
    (tmp_path / "forewarn.toml").write_text(SETTINGS.format(home=tmp_path))
    with service_machine.up("--ephemeral", "--manual-time", "--fleet", "fleet.toml"):
        yield service_machine


@pytest.mark.process
def test_halted_campaign_shows_the_next_steps_and_continues_after_them(
    failing_service: ServiceMachine,
) -> None:
    (failing_service.home / "broken").touch()
    run_json(failing_service, "campaign", "start", "kernel.toml", "--halt-after", "2")
    run_json(failing_service, "clock", "advance", "20m")
    watched = run(failing_service, "campaign", "watch", "kernel")
    assert watched.code == 1
    assert "`forewarn campaign retry kernel web` retries wave 1 of web" in watched.stderr
    assert "`forewarn campaign skip kernel db --reason …` skips it." in watched.stderr
    shown = run(failing_service, "campaign", "show", "kernel")
    assert "wave 1 of web has failed" in shown.stdout
    assert "host does not answer" in shown.stdout
    assert f"wave 1  {'▚' * BAR_WIDTH}  0/2 scopes, 3 VMs: 2 failed" in shown.stdout
    (failing_service.home / "broken").unlink()
    run_json(failing_service, "campaign", "retry", "kernel", "web", "--reason", "the host is back")
    run_json(failing_service, "campaign", "skip", "kernel", "db", "--reason", "rebooted by hand")
    run_json(failing_service, "campaign", "resume", "kernel")
    run_json(failing_service, "clock", "advance", "6h")
    ended = run_json(failing_service, "campaign", "show", "kernel")
    assert (ended["state"], ended["failures"]) == ("Completed", [])
    assert ended["progress"][0] == {
        "number": 1, "wave_count": 2, "vm_count": 3, "planned": 0, "announced": 0, "cleared": 0, "done": 1, "failed": 0,
        "retrying": 0, "skipped": 1, "abandoned": 0, "unannounced": 0,
    }  # fmt: skip


@pytest.mark.process
def test_failed_option_retries_or_skips_all_failed_waves(failing_service: ServiceMachine) -> None:
    (failing_service.home / "broken").touch()
    run_json(failing_service, "campaign", "start", "kernel.toml", "--halt-after", "none")
    run_json(failing_service, "clock", "advance", "20m")
    assert completions(failing_service, "campaign", "retry", "kernel", "w") == ["web"]
    retried = run(failing_service, "campaign", "retry", "kernel", "--failed", "--key", "k")
    assert (retried.code, retried.stderr.splitlines()[-1]) == (0, "Done in 2 scopes.")
    run_json(failing_service, "clock", "advance", "20m")
    skipped = run(failing_service, "campaign", "skip", "kernel", "web", "nothing", "db", "--reason", "by hand")
    assert skipped.code == 4
    assert "nothing: " in skipped.stderr
    assert skipped.stderr.splitlines()[-1] == "Done in 2 scopes, refused in 1."
    run_json(failing_service, "clock", "advance", "1m")
    assert [
        wave["state"]
        for wave in run_json(failing_service, "campaign", "show", "kernel", "--waves")
        if wave["number"] == 1
    ] == [
        "skipped",
        "skipped",
    ]
    again = run(failing_service, "campaign", "skip", "kernel", "--failed", "--reason", "by hand")
    assert (again.code, again.stderr) == (0, "No wave has failed; nothing to do.\n")


@pytest.mark.process
@pytest.mark.parametrize("limit", [None, "1"], ids=["all waves have failed", "one has failed and uses up the limit"])
def test_watch_ends_if_all_open_waves_have_failed_without_a_halt(
    failing_service: ServiceMachine, limit: str | None
) -> None:
    (failing_service.home / "broken").touch()
    limits = () if limit is None else ("--scopes-at-once", limit)
    run_json(failing_service, "campaign", "start", "kernel.toml", "--halt-after", "none", *limits)
    with watching(failing_service, "campaign", "watch", "kernel") as (process, lines):
        lines.readline()
        run_json(failing_service, "clock", "advance", "20m")
        _, said = process.communicate(timeout=GUARD)
    assert process.returncode == 1
    assert "`forewarn campaign retry kernel web` retries wave 1 of web" in said
    assert run_json(failing_service, "campaign", "show", "kernel")["state"] == "Running"


@pytest.mark.process
def test_watch_of_an_abort_ends_if_it_needs_an_operator(failing_service: ServiceMachine) -> None:
    (failing_service.home / "broken").touch()
    run_json(failing_service, "campaign", "start", "kernel.toml", "--scope", "web")
    run_json(failing_service, "clock", "advance", "20m")
    run_json(failing_service, "campaign", "abort", "kernel", "--reason", "withdrawn")
    watched = run(failing_service, "campaign", "watch", "kernel")
    assert watched.code == 1
    assert "kernel Aborting" in watched.stdout
    assert "`forewarn campaign skip kernel web --reason …` skips it." in watched.stderr
    assert "campaign resume" not in watched.stderr
    run_json(failing_service, "campaign", "skip", "kernel", "web", "--reason", "by hand")
    run_json(failing_service, "clock", "advance", "1m")
    ended = run(failing_service, "campaign", "watch", run_json(failing_service, "campaign", "list", "--all")[0]["id"])
    assert (ended.code, "kernel Aborted" in ended.stdout, ended.stderr) == (1, True, "")


@pytest.mark.parametrize("arguments", [(), ("web", "--failed")], ids=["neither", "both"])
def test_scopes_and_failed_are_mutually_exclusive(service_machine: ServiceMachine, arguments: tuple[str, ...]) -> None:
    run_json(service_machine, "campaign", "start", "kernel.toml")
    ended = run(service_machine, "campaign", "retry", "kernel", *arguments)
    assert (ended.code, ended.stdout) == (2, "")
    assert "specify SCOPE, or --failed" in ended.stderr


def test_list_has_the_expected_end_of_open_campaigns_and_the_end_of_ended_ones(
    service_machine: ServiceMachine,
) -> None:
    run_json(service_machine, "campaign", "start", "kernel.toml")
    assert run_table(service_machine, "campaign", "list")[0][6:] == ["EXPECTED END", "ID"]
    run_json(service_machine, "clock", "advance", "6h")
    head, over = run_table(service_machine, "campaign", "list", "--all")
    ended = datetime.fromisoformat(run_json(service_machine, "campaign", "show", over[-1])["ended_at"])
    assert (head[6:], over[6]) == (["ENDED", "ID"], f"{ended:%Y-%m-%d %H:%M:%SZ}")
    run_json(service_machine, "campaign", "start", "kernel.toml", "--name", "next")
    head, going, over = run_table(service_machine, "campaign", "list", "--all")
    assert head[6:] == ["EXPECTED END", "ENDED", "ID"]
    assert (bool(going[6]), going[7], over[6], bool(over[7])) == (True, "", "", True)


def test_waves_are_listed_with_their_state(service_machine: ServiceMachine) -> None:
    run_json(service_machine, "campaign", "start", "kernel.toml")
    run_json(service_machine, "clock", "advance", "0s")  # returns when everything due has happened
    announced = run_table(service_machine, "campaign", "show", "kernel", "--scope", "web")
    assert announced[0] == [
        "SCOPE", "WAVE", "STATE", "NOT BEFORE", "SINCE", "PLANNED FOR", "UPDATE DOMAIN", "VMS",
    ]  # fmt: skip
    first, second, third = announced[1:]
    assert first[:3] == ["web", "1", "announced"]
    assert (first[3], first[4], first[6:]) == (first[5], "", ["0", "2"])
    assert (second[2:5], third[2:5]) == (["planned", "", ""], ["planned", "", ""])
    run_json(service_machine, "clock", "advance", "20m")
    waves = run_json(service_machine, "campaign", "show", "kernel", "--waves")
    assert sorted((wave["scope"], wave["number"], wave["state"]) for wave in waves) == [
        ("db", 1, "done"), ("db", 2, "planned"), ("web", 1, "done"), ("web", 2, "planned"), ("web", 3, "planned"),
    ]  # fmt: skip
    unknown = run(service_machine, "campaign", "show", "kernel", "--waves", "--scope", "wbe")
    assert (unknown.code, "campaign kernel has no scope wbe" in unknown.stderr) == (4, True)


@pytest.mark.process
def test_closed_gate_halts_the_campaign_and_an_open_gate_lets_it_continue(failing_service: ServiceMachine) -> None:
    (failing_service.home / "shut").touch()
    run_json(failing_service, "campaign", "start", "kernel.toml", "--gate", "health", "--gate-patience", "10m")
    run_json(failing_service, "clock", "advance", "80m")
    waits = run(failing_service, "campaign", "show", "kernel")
    assert "gate health has been closed since" in waits.stdout
    assert "3 alerts are firing; web, db wait for it; next check at " in waits.stdout
    waiting = run(failing_service, "event", "list", "--scope", "db").stdout
    assert (
        "campaign kernel has not cleared it, as its gate is closed (`forewarn campaign show kernel` shows why)"
        in waiting
    )
    (shut,) = [row for row in run_table(failing_service, "journal", "--campaign", "kernel") if row[1] == "gate-shut"]
    assert (shut[2], shut[-1]) == ("web, wave 2", "sh ended with 1: 3 alerts are firing; gate: health")
    run_json(failing_service, "clock", "advance", "10m")
    assert run_json(failing_service, "campaign", "show", "kernel")["state"] == "Halted"
    (failing_service.home / "shut").unlink()
    run_json(failing_service, "campaign", "resume", "kernel")
    run_json(failing_service, "clock", "advance", "6h")
    assert run_json(failing_service, "campaign", "show", "kernel")["state"] == "Completed"
    unknown = run(failing_service, "campaign", "plan", "kernel.toml", "--gate", "no-such")
    assert unknown.code == 4
    assert "there is no gate no-such: the settings have health; gates are set in forewarn.toml" in unknown.stderr


class Listener(ThreadingHTTPServer):
    """A webhook receiver that refuses the first message."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), WebhookHandler)
        self.told: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self.has_refused = False


class WebhookHandler(BaseHTTPRequestHandler):
    """Handler of one request."""

    server: Listener

    def do_POST(self) -> None:
        """Receive a message."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204 if self.server.has_refused else 503)
        self.end_headers()
        if self.server.has_refused:
            assert self.headers["Forewarn-Signature"] == sign("of the hook", body)
            self.server.told.put(json.loads(body))
        self.server.has_refused = True

    def log_message(self, *_: object) -> None:
        """Do not log."""


def test_webhook_gets_signed_start_and_end_with_retries(tmp_path: Path) -> None:
    service_machine = ServiceMachine(tmp_path)
    (tmp_path / "fleet.toml").write_text(FLEET)
    (tmp_path / "kernel.toml").write_text(KERNEL)
    (tmp_path / "secret").write_text("of the hook\n")
    with Listener() as listener:
        Thread(target=listener.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{listener.server_port}/hook"
        (tmp_path / "forewarn.toml").write_text(f'[campaigns]\nwebhooks = ["{url}"]\nwebhook_secret_file = "secret"\n')
        with run_up(service_machine, fleet=tmp_path / "fleet.toml", file=tmp_path / "forewarn.toml"):
            started = run_json(service_machine, "campaign", "start", "kernel.toml", "--reason", "ticket 4711")
            first = listener.told.get(timeout=GUARD)
            run_json(service_machine, "clock", "advance", "6h")
            second = listener.told.get(timeout=GUARD)
        listener.shutdown()
    assert [(each["what"], each["campaign"], each["name"], each["why"]) for each in (first, second)] == [
        ("started", started["id"], "kernel", "ticket 4711"),
        ("ended", started["id"], "kernel", "Completed"),
    ]


@pytest.mark.process
def test_reload_applies_gates(tmp_path: Path) -> None:
    ask = v1.StartCampaign(
        name="kernel",
        type=v1.CampaignType.REBOOT,
        selection=v1.CampaignSelection(scopes=("web",)),
        policy=v1.CampaignPolicy(gate="health"),
        unannounced=True,
    )
    with run_serve(tmp_path) as service:
        with pytest.raises(NotFound, match="health") as unknown:
            service.api.start_campaign(ask)
        (tmp_path / "forewarn.toml").write_text(f'{SERVED}\n[gates.health]\ncommand = ["/bin/true"]\n')
        service.process.send_signal(signal.SIGHUP)
        assert service.wait_for("settings reloaded")["changed"] == ["gates"]
        assert service.api.start_campaign(ask).spec.policy.gate == "health"
    assert unknown.value.code == "gate-not-found"
