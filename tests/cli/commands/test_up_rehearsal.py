"""`forewarn up --like`: the policy of a production file on a copy of the fleet, and not one call to anything real."""

import http.server
import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from forewarn.api import v1
from forewarn.client import ScheduledEvents
from forewarn.core.campaign.record import CampaignState
from tests.cli.in_process import run
from tests.support.emulator import FOREWARN, GUARD, UpOutput, forewarn_up, plain_environment
from tests.support.processes import wait_until
from tests.support.program import Machine

FLEET = """
[[scopes]]
name = "web"
kind = "availability-set"
update_domains = 2
hosts = ["hv-0", "hv-1"]
vms = [{ name = "web-{n}", count = 4 }]
"""


class Canaries:
    """A production file in which everything that could be called tells of it."""

    def __init__(self, directory: Path, url: str) -> None:
        self.directory = directory
        self.calls: list[str] = []
        program = directory / "program"
        program.write_text(f'#!/bin/sh\necho "$0 $@" >> {directory}/called\n')
        program.chmod(0o755)
        (directory / "secret").write_text("a secret of forty characters, for webhooks")
        (directory / "fleet.toml").write_text(FLEET)
        self.file = directory / "forewarn.toml"
        self.file.write_text(f"""
data = "production"
operator = "127.0.0.1:1"
platform = "command"
command.program = ["{program}", "platform"]
gates.health = {{ url = "{url}/gate" }}
gates.quorum = {{ command = ["{program}", "gate"] }}
campaigns.webhooks = ["{url}/webhook"]
campaigns.webhook_secret_file = "secret"
tls.certificate = "missing.pem"
tls.key = "missing.key"
policy.user_operations = 2
""")

    def called(self) -> list[str]:
        """Return the calls of programs and of the server."""
        log = self.directory / "called"
        return [*self.calls, *(log.read_text().splitlines() if log.exists() else ())]


@contextmanager
def run_canaries(directory: Path) -> Iterator[Canaries]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            canaries.calls.append(self.path)
            self.send_response(200)
            self.end_headers()

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        canaries = Canaries(directory, f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield canaries
        finally:
            server.shutdown()
            thread.join(GUARD)


def roll_out(started: UpOutput, gate: str | dict[str, str]) -> v1.Campaign:
    """Run a campaign to its end, or until its gate halts it."""
    api = started.api()
    request = {"name": "kernel", "type": "Reboot", "selection": {"all": True}, "policy": {"gate": gate, "gap": "1m"}}
    campaign = api.start_campaign(msgspec.convert(request | {"unannounced": True}, v1.StartCampaign))
    for _ in range(20):
        api.advance("30m")
        campaign = api.campaign(campaign.id)
        if campaign.state is not CampaignState.RUNNING:
            break
    return campaign


@pytest.mark.process
def test_rehearsal_calls_nothing_real(tmp_path: Path) -> None:
    with run_canaries(tmp_path) as canaries:
        url = f"http://127.0.0.1:{canaries.file.read_text().split('127.0.0.1:')[2].split('/')[0]}/inline"
        options = ("--like", str(canaries.file), "--fleet", str(tmp_path / "fleet.toml"))
        for gate in ("health", "quorum", {"url": url}):
            with forewarn_up(tmp_path, *options, FOREWARN_PLATFORM="command") as started:
                campaign = roll_out(started, gate)
            assert (campaign.state, list(campaign.failures)) == (CampaignState.COMPLETED, []), gate
        assert canaries.called() == []
        assert not (tmp_path / "production").exists()
    talk = (tmp_path / "up.log").read_text()
    assert "Taken from it: gates, policy.user_operations." in talk
    for left in ("data", "operator", "platform (simulated)", "command.program (never run)", "tls.certificate"):
        assert left in talk
    assert "Gates, simulated: health (open), quorum (open)." in talk


@pytest.mark.process
def test_canaries_tell_of_calls(tmp_path: Path) -> None:
    """Without --like the same file calls its program, so the test above can fail."""
    with run_canaries(tmp_path) as canaries:
        text = "\n".join(line for line in canaries.file.read_text().splitlines() if not line.startswith("tls."))
        canaries.file.write_text(text)
        options = ("--config", str(canaries.file), "--fleet", str(tmp_path / "fleet.toml"))
        with forewarn_up(tmp_path, *options) as started:
            started.api().start_campaign(
                msgspec.convert(
                    {
                        "name": "kernel",
                        "type": "Reboot",
                        "selection": {"all": True},
                        "policy": {"gate": "health", "gap": "1m"},
                    },
                    v1.StartCampaign,
                )
            )

            def is_all_called() -> bool:
                started.api().advance("30m")
                called = canaries.called()
                return {"/gate", "/webhook"} <= set(called) and any("program platform" in call for call in called)

            wait_until(is_all_called, "calls of the gate, the webhook and the program")


@pytest.mark.process
def test_closed_gate_stops_the_campaign(tmp_path: Path) -> None:
    with run_canaries(tmp_path) as canaries:
        options = ("--like", str(canaries.file), "--fleet", str(tmp_path / "fleet.toml"), "--closed-gate", "health")
        with forewarn_up(tmp_path, *options) as started:
            assert roll_out(started, "health").state is CampaignState.HALTED
        assert canaries.called() == []


@pytest.mark.process
def test_minimum_notice_of_production_holds(tmp_path: Path) -> None:
    """The emulator alone accepts any notice."""
    with run_canaries(tmp_path) as canaries:
        options = ("--like", str(canaries.file), "--fleet", str(tmp_path / "fleet.toml"))
        with forewarn_up(tmp_path, *options) as started:
            with ScheduledEvents(started.guest_urls["web/web-0"]) as client:
                client.get()
            command = [*FOREWARN, "event", "schedule", "Reboot", "web-0", "--in", "5m", "-o", "json"]
            environ = plain_environment(FOREWARN_URL=started.operator_url, FOREWARN_TOKEN_FILE=started.token_file)
            ended = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=GUARD)
        assert ended.returncode == 3, json.dumps([ended.stdout, ended.stderr])


def test_options_of_a_rehearsal_belong_together(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    both = run(machine, "up", "--like", "a.toml", "--config", "b.toml")
    alone = run(machine, "up", "--closed-gate", "web")
    assert [(ended.code, "--like" in ended.stderr) for ended in (both, alone)] == [(2, True), (2, True)]


def test_production_file_that_cannot_be_read_is_refused_by_its_option(tmp_path: Path) -> None:
    ended = run(Machine(tmp_path), "up", "--like", "gone.toml", FOREWARN_CONFIG="gone.toml")
    assert ended == (2, "", "forewarn: --like: gone.toml: cannot be read: No such file or directory\n")
