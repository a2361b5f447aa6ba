"""Known mistakes of Scheduled Events handlers that a real agent avoids."""

import socket
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest

from tests.end_to_end.agent.single_agent import NAME, event, run_single_agent
from tests.support.canned_server import run_canned_server
from tests.support.processes import wait_until

PEERS = """\
[peers]
secret_file = "{secret}"
agents = {{ web_1 = "{address}" }}
ask_every = "0.1s"
"""


def test_own_events_are_matched_by_resource_name_not_host_name(tmp_path: Path) -> None:
    assert socket.gethostname() != NAME
    with run_single_agent(tmp_path) as alone:
        alone.endpoint.announce(event("BY-HOST-NAME", socket.gethostname()), event("BY-RESOURCE-NAME", NAME))
        alone.endpoint.wait_until_approved("BY-RESOURCE-NAME")
        alone.endpoint.wait_for_polls()
        assert alone.hook_runs == ["prepare BY-RESOURCE-NAME"]
        assert alone.endpoint.approved == ["BY-RESOURCE-NAME"]


def test_events_of_other_vms_are_ignored(tmp_path: Path) -> None:
    with run_single_agent(tmp_path) as alone:
        alone.endpoint.announce(event("OTHERS", "web_1", "web_00", "WEB"))
        alone.endpoint.wait_for_polls(10)
        assert (alone.hook_runs, alone.endpoint.approved) == ([], [])


def test_not_before_is_parsed_in_wire_format(tmp_path: Path) -> None:
    announced = event("E")
    deadline = parsedate_to_datetime(announced["NotBefore"])
    with run_single_agent(tmp_path) as alone:
        alone.endpoint.announce(announced)
        alone.wait_for_hook_runs("prepare E")
        assert alone.hook_lines == [f"prepare E 1 {deadline.timestamp():.0f}"]


def test_approval_sends_the_metadata_header(tmp_path: Path) -> None:
    with run_single_agent(tmp_path) as alone:
        alone.endpoint.announce(event("E"))
        alone.endpoint.wait_until_approved("E")
        (post,) = alone.endpoint.posts
        assert post.headers["Metadata"].lower() == "true"


def test_document_without_events_runs_no_hook(tmp_path: Path) -> None:
    with run_single_agent(tmp_path) as alone:
        alone.endpoint.announce()
        alone.endpoint.wait_for_polls(10)
        assert (alone.hook_runs, alone.endpoint.approved) == ([], [])


def test_agent_survives_an_empty_body(tmp_path: Path) -> None:
    with run_single_agent(tmp_path) as alone:
        alone.endpoint.respond_with(b"")
        alone.endpoint.wait_for_polls()
        alone.endpoint.announce(event("E"))
        alone.endpoint.wait_until_approved("E")


def test_unknown_fields_and_values_are_tolerated(tmp_path: Path) -> None:
    unknown = event("NEW", EventType="Teleport", EventSource="Moon", Mood="good", Colours=[1, {"a": None}])
    with run_single_agent(tmp_path) as alone:
        alone.endpoint.announce(unknown, event("E", NewField={"x": 1}), Advice="stay calm")
        alone.endpoint.wait_until_approved("E")
        alone.wait_for_hook_runs("prepare NEW", "prepare E")


def test_events_after_the_first_are_handled(tmp_path: Path) -> None:
    with run_single_agent(tmp_path) as alone:
        for incarnation, id_ in enumerate(("FIRST", "SECOND", "THIRD"), start=1):
            alone.endpoint.announce(event(id_), incarnation=2 * incarnation)
            alone.endpoint.wait_until_approved(id_)
            alone.endpoint.announce(incarnation=2 * incarnation + 1)
            alone.wait_for_hook_runs(f"recover {id_}")


def test_all_events_of_a_document_are_considered(tmp_path: Path) -> None:
    with run_single_agent(tmp_path) as alone:
        alone.endpoint.announce(event("FIRST"), event("OTHERS", "web_1"), event("SECOND", EventType="Freeze"))
        alone.endpoint.wait_until_approved("FIRST", "SECOND")
        assert sorted(alone.endpoint.approved) == ["FIRST", "SECOND"]
        assert sorted(alone.hook_runs) == ["prepare FIRST", "prepare SECOND"]


def test_event_is_approved_once(tmp_path: Path) -> None:
    """An approved event can stay Scheduled: on Azure it may wait for another update domain."""
    with run_single_agent(tmp_path) as alone:
        alone.endpoint.announce(event("E"))
        alone.endpoint.wait_until_approved("E")
        alone.endpoint.wait_for_polls(20)
        assert alone.endpoint.approved == ["E"]


def test_killed_agent_leaves_no_lock(tmp_path: Path) -> None:
    with run_single_agent(tmp_path) as alone:
        alone.endpoint.announce(event("E"))
        alone.wait_for_hook_runs("prepare E")
        alone.agent.kill()
        alone.agent.start()
        alone.endpoint.wait_until_approved("E")
        alone.endpoint.announce(incarnation=3)
        alone.wait_for_hook_runs("recover E")
        alone.endpoint.announce(event("NEXT"), incarnation=4)
        alone.endpoint.wait_until_approved("NEXT")


def test_events_are_handled_after_the_incarnation_restarts(tmp_path: Path) -> None:
    with run_single_agent(tmp_path) as alone:
        alone.endpoint.announce(event("BEFORE"), incarnation=41)
        alone.endpoint.wait_until_approved("BEFORE")
        alone.endpoint.announce(event("AFTER"), incarnation=1)
        alone.endpoint.wait_until_approved("AFTER")
        alone.endpoint.announce(incarnation=2)
        alone.wait_for_hook_runs("recover BEFORE", "recover AFTER")


def test_nothing_is_approved_before_the_peers_are_ready(tmp_path: Path) -> None:
    asked: list[str] = []

    def is_ready(path: str, _: bytes) -> tuple[int, bytes]:
        asked.append(path)
        return 503, b"{}"

    secret = tmp_path / "secret"
    secret.write_text("between-us\n")
    secret.chmod(0o600)
    with run_canned_server(is_ready) as url:
        peers = PEERS.format(secret=secret, address=url.removeprefix("http://"))
        with run_single_agent(tmp_path, more=peers) as alone:
            alone.endpoint.announce(event("SHARED", NAME, "web_1"), event("OWN", NAME))
            alone.endpoint.wait_until_approved("OWN")
            wait_until(lambda: len(asked) >= 3, "repeated requests to the peer")
            assert alone.endpoint.approved == ["OWN"]
            assert set(asked) == {"/v1/ready/SHARED"}


def test_nothing_is_approved_for_unreachable_peers(tmp_path: Path) -> None:
    with run_single_agent(tmp_path) as alone:
        alone.endpoint.announce(event("SHARED", NAME, "web_1"))
        alone.wait_for_hook_runs("prepare SHARED")
        wait_until(lambda: "peers" in alone.agent.output(), "the agent to report the reason")
        alone.endpoint.wait_for_polls()
        assert alone.endpoint.approved == []


def test_proxy_settings_are_ignored(tmp_path: Path) -> None:
    asked: list[str] = []

    def proxy(path: str, _: bytes) -> tuple[int, bytes]:
        asked.append(path)
        return 502, b""

    with run_canned_server(proxy) as url:
        names = ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY")
        with run_single_agent(tmp_path, environ=dict.fromkeys(names, url)) as alone:
            alone.endpoint.announce(event("E"))
            alone.endpoint.wait_until_approved("E")
        assert asked == []


def test_agent_survives_a_failing_handler(tmp_path: Path) -> None:
    with run_single_agent(tmp_path, environ={"HOOK_FAILS": "yes"}) as alone:
        alone.endpoint.announce(event("FIRST"))
        alone.wait_for_hook_runs("prepare FIRST")
        alone.endpoint.announce(event("FIRST"), event("SECOND"), incarnation=3)
        alone.wait_for_hook_runs("prepare SECOND")
        alone.endpoint.wait_for_polls()
        assert alone.endpoint.approved == []
        assert sorted(alone.hook_runs) == ["prepare FIRST", "prepare SECOND"]


@pytest.mark.parametrize("works", [True, False], ids=["receivers respond", "receivers fail"])
def test_secrets_are_not_logged(tmp_path: Path, works: bool) -> None:
    told: list[str] = []

    def webhook(path: str, _: bytes) -> tuple[int, bytes]:
        told.append(path)
        return (200 if works else 500), b""

    with run_canned_server(webhook) as url:
        address = url.removeprefix("http://")
        secrets = {
            "peers": "hunter2-of-peers",
            "token": "hunter2-of-webhook",
            "url": f"{url}/hunter2-of-url",
            "people": f"json://somebody:hunter2-of-people@{address}/people",
        }
        for name, secret in secrets.items():
            (tmp_path / name).write_text(f"{secret}\n")
            (tmp_path / name).chmod(0o600)
        more = f"""
            {PEERS.format(secret=tmp_path / "peers", address=address)}
            [handlers.webhook]
            kind = "http"
            url_file = "{tmp_path}/url"
            secret_file = "{tmp_path}/token"
            retries = 0
            [handlers.people]
            kind = "notify"
            urls_file = "{tmp_path}/people"
        """
        with run_single_agent(tmp_path, more=more, handlers=("hook", "webhook", "people", "log")) as alone:
            alone.endpoint.announce(event("E", NAME, "web_1"))
            alone.wait_for_hook_runs("prepare E")
            wait_until(
                lambda: {"/v1/ready/E", "/hunter2-of-url", "/people"} <= set(told) or not works, "all notifications"
            )
            wait_until(lambda: "/hunter2-of-url" in told, "the webhook call")
            alone.endpoint.announce(incarnation=3)
            alone.wait_for_hook_runs("recover E")
            alone.endpoint.wait_for_polls()
    written = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    for file in (tmp_path / "agent.log", *written):
        assert "hunter2" not in file.read_text(errors="replace"), file
