"""The service goes on from the data of commit 450409b: holds hold, tokens are limited, campaigns go on."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.api.errors import RequestRefused
from forewarn.core.access import Role
from forewarn.core.campaign.record import CampaignState
from forewarn.core.event import EventType
from forewarn.core.impact import ImpactState
from forewarn.core.scope import EventOutcome
from tests.stored.history import impacts
from tests.stored.records import EXPECTED, STORED, copy
from tests.stored.service_process import Service, ask_as, wait_for
from tests.support.program import LOOPBACK

KNOWN: dict[str, str] = json.loads((STORED / "known.json").read_text())
RECORDS = json.loads((EXPECTED / "records.json").read_text())


@pytest.fixture
def service(tmp_path: Path) -> Service:
    copy(tmp_path)
    return Service(tmp_path)


@contextmanager
def settled(service: Service) -> Iterator[ApiClient]:
    """Run the service, and wait until it has found out about the work that had begun."""
    with service.running() as api:
        wait_for(lambda: api.event(KNOWN["begun"]).outcome is not None)
        wait_for(lambda: impacts(api, KNOWN["big"], "big-1") == [ImpactState.DONE])
        yield api


def status(api: ApiClient, event: str) -> str:
    """Return how an event stands: its status while it is open, then its outcome."""
    detail = api.event(event)
    return detail.outcome if detail.outcome is not None else detail.event.status if detail.event is not None else ""


def test_begun_work_is_asked_for_and_other_work_stays_as_it_was(service: Service) -> None:
    with settled(service) as api:
        assert sorted(line for line in service.maintained() if line.startswith("probe ")) == [
            "probe big/big-1 1",
            "probe campaign-aborting/campaign-aborting 1",
        ]
        assert impacts(api, KNOWN["big"]) == [
            ImpactState.DONE,
            ImpactState.DONE,
            ImpactState.FAILED,
            ImpactState.RETRY,
            ImpactState.GIVEN_UP,
            ImpactState.GONE,
        ]
        assert impacts(api, KNOWN["unknown"]) == [ImpactState.UNKNOWN]
        assert status(api, KNOWN["begun"]) == EventOutcome.COMPLETED
        wait_for(lambda: api.campaign(KNOWN["campaign aborting"]).state is CampaignState.ABORTED)
        service.behave("big-2", "succeed")
        api.retry(KNOWN["big"], v1.RetryImpact(vm="big-2"))
        api.advance("10m")
        assert status(api, KNOWN["big"]) == EventOutcome.FAILED  # because of the VM that was given up
    assert not list((service.data / "work").iterdir())


def test_nothing_planned_starts_while_the_fleet_or_the_scope_is_held(service: Service) -> None:
    due, frozen = KNOWN["due"], KNOWN["frozen"]
    with settled(service) as api:
        holds = api.holds()
        assert holds.fleet is not None
        assert (holds.fleet.created_by, holds.fleet.reason) == ("admin", "change freeze")
        assert {hold.scope: hold.reason for hold in holds.holds if hold.scope} == {
            "frozen": "the owner is on leave",
            "kernel-held": "a demonstration",
        }
        api.advance("1h")
        assert [status(api, due), status(api, frozen)] == ["Scheduled", "Scheduled"]
        api.release(v1.ReleaseHold())
        wait_for(lambda: status(api, due) == EventOutcome.COMPLETED)
        assert status(api, frozen) == "Scheduled"
        api.release(v1.ReleaseHold(scope="frozen"))
        wait_for(lambda: status(api, frozen) == EventOutcome.COMPLETED)


def test_approvals_and_announcements_are_kept(service: Service) -> None:
    with settled(service) as api:
        api.release(v1.ReleaseHold())
        event = api.event(KNOWN["approved"]).event
        assert event is not None
        assert [approval.vm for approval in event.approvals] == ["web-0"]
        assert event.status == "Scheduled"
        api.approve(KNOWN["approved"], v1.ApproveEvent(vm="web-1"))
        wait_for(lambda: status(api, KNOWN["approved"]) == EventOutcome.COMPLETED)
        assert not api.scope("quiet").enabled
        assert KNOWN["unannounced"].encode() in ask_as(api.vm("quiet").guest_url)
        announced = api.event(KNOWN["unannounced"]).event
        assert announced is not None
        assert announced.announced


def test_tokens_open_what_they_did(service: Service) -> None:
    with settled(service) as api:
        scoped = service.api(KNOWN["scoped"])
        assert [scope.id for scope in scoped.scopes()] == ["batch", "web"]
        assert {event.scope for event in scoped.events()} == {"batch", "web"}
        with pytest.raises(RequestRefused):
            scoped.hold(v1.CreateHold(reason="not mine", scope="due"))
        unlimited = service.api(KNOWN["unlimited"])
        assert [scope.id for scope in unlimited.scopes()] == [scope.id for scope in api.scopes()]
        with pytest.raises(RequestRefused) as no_operator:
            unlimited.hold(v1.CreateHold(reason="only a viewer", scope="web"))
        assert no_operator.value.code == "forbidden"
        with pytest.raises(RequestRefused) as revoked:
            list(service.api(KNOWN["revoked"]).scopes())
        assert revoked.value.code == "invalid-token"


def renew_token_keys(data: Path) -> None:
    """Date the idempotency keys of tokens to now: they last a day of real time, also under a manual clock."""
    with closing(sqlite3.connect(data / "forewarn.db")) as database, database:
        for id_, value in database.execute("SELECT id, value FROM records WHERE kind = 'token'").fetchall():
            token = json.loads(value)
            for seen in token.get("answered", ()):
                seen["at"] = datetime.now(UTC).isoformat()
            database.execute(
                "UPDATE records SET value = ? WHERE kind = 'token' AND id = ?", (json.dumps(token).encode(), id_)
            )


def test_requests_with_a_known_key_are_not_done_again(service: Service) -> None:
    renew_token_keys(service.data)
    with settled(service) as api:
        events, entries = len(list(api.events())), len(list(api.journal()))
        ask = v1.ScheduleEvents(type=EventType.FREEZE, vms=("keyed",), notice="40d")
        assert [made.id for made in api.schedule(ask, key="event-1").created] == [KNOWN["keyed"]]
        holds = api.hold(v1.CreateHold(reason="change freeze"), key="hold-2")
        assert holds == api.holds()
        api.hold(v1.CreateHold(reason="a demonstration", scope="kernel-held"), key="hold-1")
        api.abort_campaign("aborted", v1.AbortCampaign(reason="wrong kernel"), key="abort-1")
        api.remove_scope("old", reason="too many", key="scope-3")
        api.skip_wave("kernel", v1.SkipWave(scope="kernel-skipped", reason="not these"), key="skip-1")
        with pytest.raises(RequestRefused) as reused:
            api.schedule(v1.ScheduleEvents(type=EventType.FREEZE, vms=("keyed",), notice="41d"), key="event-1")
        assert reused.value.code == "idempotency-key-reused"
        with pytest.raises(RequestRefused) as shown:
            api.create_token(v1.CreateToken(name="web-team", role=Role.OPERATOR, scopes=("web", "ba*")), key="token-1")
        assert shown.value.code == "secret-already-shown"
        assert (len(list(api.events())), len(list(api.journal()))) == (events, entries)


def test_vms_keep_their_ports_and_the_journal_its_entries(service: Service) -> None:
    with settled(service) as api:
        ports = RECORDS["fleet/ledger"]["ports"]
        shown = {f"{vm.scope}/{vm.name}": vm.guest_url for vm in api.vms()}
        assert shown == {vm: f"http://{LOOPBACK}:{ports[vm]}" for vm in shown}
        journal = json.loads((EXPECTED / "journal.json").read_text())
        entries = [(entry.position, entry.record_id, entry.action.value, entry.facts) for entry in api.journal()]
        assert entries[: len(journal)] == [
            (row["position"], row["key"][1], row["entry"]["did"], row["entry"]["facts"]) for row in journal
        ]
        newest = [entry.position for entry in api.journal(newest_first=True)]
        assert newest == [position for position, *_ in reversed(entries)]
        held = [entry.position for entry in api.journal(scope="kernel-held")]
        assert held == [row["position"] for row in journal if row["key"] == ["scope", "kernel-held"]]
        detail = api.event(KNOWN["canceled"])
        assert (detail.outcome, len(detail.journal)) == (EventOutcome.CANCELED, 2)
        assert api.event(KNOWN["failed"]).outcome is EventOutcome.FAILED


def test_campaigns_go_on_behind_the_gate_and_the_failed_wave(service: Service) -> None:
    with settled(service) as api:
        api.release(v1.ReleaseHold())
        api.advance("1h")
        kernel = api.campaign("kernel")
        assert kernel.gate is not None
        assert [(failure.scope, failure.number) for failure in kernel.failures] == [("kernel-failed", 1)]
        assert {wave.scope: wave.state.value for wave in api.waves("kernel") if wave.number == 1} == {
            "kernel-done": "done",
            "kernel-failed": "failed",
            "kernel-held": "announced",
            "kernel-retried": "done",
            "kernel-skipped": "skipped",
            "kernel-started": "done",
        }
        (service.directory / "gate-is-open").touch()
        api.release(v1.ReleaseHold(scope="kernel-held"))
        api.retry_wave("kernel", v1.RetryWave(scope="kernel-failed"))
        api.retry_wave("halted", v1.RetryWave(scope="campaign-halted"))
        api.resume_campaign("halted", v1.ResumeCampaign())
        api.resume_campaign("paused", v1.ResumeCampaign())
        api.advance("6h")
        for name in ("kernel", "halted", "paused"):
            assert api.campaign(KNOWN[f"campaign {name}"]).state is CampaignState.COMPLETED, api.campaign(
                name
            ).explanation
    rebooted = [line.split()[1] for line in service.maintained() if "/kernel-" in line or "/late" in line]
    assert sorted(rebooted) == [
        "kernel-done/kernel-done-1",
        "kernel-done/late",
        "kernel-failed/kernel-failed-0",
        "kernel-failed/kernel-failed-1",
        "kernel-held/kernel-held-0",
        "kernel-held/kernel-held-1",
        "kernel-retried/kernel-retried-1",
        "kernel-skipped/kernel-skipped-1",
        "kernel-started/kernel-started-0",
        "kernel-started/kernel-started-1",
    ]
