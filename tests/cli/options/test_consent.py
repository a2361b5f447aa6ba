"""Consent to maintenance that VMs will not hear of: the option, and the question on a terminal."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from forewarn.api.errors import RequestRefused
from forewarn.cli.options.consent import send_with_consent
from forewarn.client import ScheduledEvents
from tests.cli.in_process import UpService, run, run_json, run_live, run_up
from tests.support.program import Machine

REFUSAL = "scope web will not hear of the Reboot: none of its VMs polls for events; nothing has happened"
SCHEDULE = ("event", "schedule", "Reboot", "web-0")


@contextmanager
def run_enforcing(machine: Machine) -> Iterator[UpService]:
    """Run a service with the policy of `forewarn serve`."""
    with run_up(machine, FOREWARN_POLICY_ANNOUNCE="when-enabled", FOREWARN_POLICY_ENFORCE_NOTICE="true") as up:
        yield up


def test_without_a_terminal_the_option_is_needed(machine: Machine) -> None:
    with run_enforcing(machine):
        refused = run(machine, *SCHEDULE)
        before = run_json(machine, "event", "list")
        accepted = run_json(machine, *SCHEDULE, "--unannounced")
    assert (refused.code, refused.stdout, before) == (3, "", [])
    assert refused.stderr.endswith(f"{REFUSAL}; to go ahead anyway, use --unannounced\n")
    assert [(event["status"], event["announced"]) for event in accepted["events"]] == [("Scheduled", False)]


@pytest.mark.parametrize(("key", "code", "events"), [("y\n", 0, 1), ("n\n", 1, 0), ("\n", 1, 0)], ids=repr)
def test_on_a_terminal_the_scope_is_named_before_the_question(
    machine: Machine, key: str, code: int, events: int
) -> None:
    with run_enforcing(machine):
        asked = run_live(machine, *SCHEDULE, columns=200, stdin=key)
        after = run_json(machine, "event", "list")
    assert asked.stdout.index(REFUSAL) < asked.stdout.index("Go ahead anyway? [y/N]")
    assert (asked.code, len(after)) == (code, events)
    assert ("aborted; nothing has happened" in asked.stdout) is (code == 1)


def test_now_starts_without_notice_and_excludes_other_starts(machine: Machine) -> None:
    with run_enforcing(machine):
        started = run_json(machine, *SCHEDULE, "--now", "--unannounced")
        both = run(machine, *SCHEDULE, "--now", "--in", "1h")
        short = run(machine, "event", "schedule", "Reboot", "web-1", "--in", "0s", "--unannounced")
    assert [event["status"] for event in started["events"]] == ["Started"]
    assert (both.code, "--now and --in are mutually exclusive" in both.stderr) == (2, True)
    assert (short.code, "--in must be at least 15m for Reboot" in short.stderr, "use --now" in short.stderr) == (
        3,
        True,
        True,
    )


def test_polling_scope_keeps_its_notice_and_the_refusal_names_the_option(machine: Machine) -> None:
    with run_enforcing(machine) as up:
        with ScheduledEvents(up.guest_urls["web/web-0"]) as events:
            events.get()
        soon = up.running.fleet.clock.now() + timedelta(minutes=5)
        refused = [
            run(machine, *SCHEDULE, "--now", "--unannounced"),
            run(machine, *SCHEDULE, "--at", f"{soon:%FT%TZ}"),
            run(machine, "vm", "restart", "web-0", "--now"),
        ]
        after = run_json(machine, "event", "list")
    assert [each.code for each in refused] == [3, 3, 3]
    assert [each.stderr.split(" must be")[0] for each in refused] == [
        "forewarn: --now: notice",
        "forewarn: --at: notice",
        "forewarn: --now: notice",
    ]
    assert after == []


@pytest.mark.parametrize(
    "command",
    [
        ("vm", "restart", "web-0"),
        ("vm", "redeploy", "web-0"),
        ("vm", "delete", "batch_1"),
        ("vm", "evict", "batch_1"),
        ("vm", "fail", "web-0", "--predicted", "3d"),
    ],
    ids=" ".join,
)
def test_operation_needs_the_option(machine: Machine, command: tuple[str, ...]) -> None:
    with run_enforcing(machine):
        refused = run(machine, *command)
        accepted = run_json(machine, *command, "--unannounced")
    assert (refused.code, "use --unannounced" in refused.stderr) == (3, True)
    assert [event["status"] for event in accepted["events"]] == ["Scheduled"]


@pytest.mark.parametrize("operation", ["restart", "redeploy", "delete", "evict"])
def test_operation_starts_without_notice_with_now(machine: Machine, operation: str) -> None:
    with run_enforcing(machine):
        started = run_json(machine, "vm", operation, "batch_1", "--now", "--unannounced")
    assert [event["status"] for event in started["events"]] == ["Started"]


def test_campaign_tells_how_many_will_not_hear_of_it(machine: Machine) -> None:
    campaign = ("--name", "kernel", "--type", "Reboot", "--all")
    told = "0 of 4 scopes poll for events: 15 of 15 VMs will not hear of it"
    with run_enforcing(machine):
        plan = run(machine, "campaign", "plan", *campaign)
        refused = run(machine, "campaign", "start", *campaign)
        asked = run_live(machine, "campaign", "start", *campaign, columns=200, stdin="n\n")
        none = run_json(machine, "campaign", "list", "--all")
        started = run(machine, "campaign", "start", *campaign, "--unannounced")
        run(machine, "clock", "advance", "1m")
        shown = run(machine, "campaign", "show", "kernel")
        waves = run_json(machine, "campaign", "show", "kernel", "--waves")
    assert f"{told}; to start it, use --unannounced" in plan.stderr
    assert {line.split()[0] for line in plan.stdout.splitlines()[1:]} == {"no"}
    assert (refused.code, f"{told}; nothing has happened" in refused.stderr, none) == (3, True, [])
    assert asked.stdout.index(told) < asked.stdout.index("Go ahead anyway? [y/N]")
    assert started.code == 0
    assert "Will not hear of it, because they do not poll for events: 15 of 15 VMs in 4 of 4 scopes." in started.stderr
    assert "not announced  15 of 15 VMs in 4 of 4 scopes" in shown.stdout
    assert "unannounced" in shown.stdout
    assert {wave["state"] for wave in waves} == {"unannounced", "planned"}


def test_other_refusals_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The question is about one refusal only, and asked on a terminal only."""
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    sent: list[bool] = []

    def send(consent: bool) -> None:
        sent.append(consent)
        raise RequestRefused(409, "notice-too-short", "too short", {})

    with pytest.raises(RequestRefused, match="too short"):
        send_with_consent(send, unannounced=False)
    assert sent == [False]
