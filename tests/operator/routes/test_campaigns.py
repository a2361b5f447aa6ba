"""Campaigns through the API: plan, start, follow and control, with permissions."""

import asyncio
from datetime import timedelta
from itertools import islice
from typing import Any

import msgspec
import pytest

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.api.errors import RequestRefused
from forewarn.clock import SystemClock
from forewarn.core.access import Role
from forewarn.core.campaign.record import CampaignState
from forewarn.core.event import EventType
from forewarn.core.explain import BlockerCode
from forewarn.core.journal import EntryKind
from forewarn.core.policy import EMULATOR, PRODUCTION
from forewarn.operator import campaign_planner
from tests.operator.running_api import GUARD, TEN, run_api
from tests.operator.sample_campaign import HOUR, asked, shown, start


def planned(api: ApiClient, ask: v1.CampaignRequest) -> v1.CampaignPlan:
    *_, last = api.plan_campaign(ask)
    assert last.result is not None
    return last.result


async def test_plan_has_every_wave_and_changes_nothing() -> None:
    async with run_api() as service:
        before = await service.stored_state()
        plan = await service.client(lambda api: planned(api, asked()))
        assert await service.stored_state() == before
    assert (plan.scope_count, plan.host_count, plan.vm_count, plan.unplaced) == (4, 6, 15, [])
    vms = [f"{wave.scope}/{vm}" for wave in plan.waves for vm in wave.vms]
    assert len(vms) == len(set(vms)) == 15
    web = [wave for wave in plan.waves if wave.scope == "web"]
    assert [(wave.number, wave.update_domain, wave.vms) for wave in web] == [
        (1, 0, ["web-0", "web-3"]),
        (2, 1, ["web-1", "web-4"]),
        (3, 2, ["web-2", "web-5"]),
    ]
    assert [wave.not_before for wave in web] == [
        TEN + timedelta(minutes=15),
        TEN + timedelta(minutes=76),
        TEN + timedelta(minutes=137),
    ]
    assert plan.ends_at == max(wave.ends_at for wave in plan.waves)


async def test_plan_has_unplaced_vms_with_reasons_and_start_refuses_it() -> None:
    async with run_api() as service:
        plan = await service.client(lambda api: planned(api, asked("k", "web", vms_at_once=1)))
        with pytest.raises(RequestRefused) as refused:
            await start(service, asked("k", "web", vms_at_once=1))
        assert await service.client(lambda api: list(api.campaigns())) == []
    assert plan.waves == []
    assert [(each.update_domain, each.policy_key, each.excess) for each in plan.unplaced] == [
        (0, "vms_at_once", "1 VM too many"),
        (1, "vms_at_once", "1 VM too many"),
        (2, "vms_at_once", "1 VM too many"),
    ]
    assert refused.value.status == 409
    assert "vms_at_once" in str(refused.value)


async def test_plan_can_be_a_single_response() -> None:
    async with run_api() as service:
        reply = await service.request("POST", "/v1/campaigns/plan", asked("k", "web"))
        streamed = await service.client(lambda api: planned(api, asked("k", "web")))
    assert reply.status == 200
    assert msgspec.json.decode(reply.body, type=v1.CampaignPlan) == streamed


@pytest.mark.process
async def test_large_plan_runs_in_a_separate_process_with_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    async with run_api() as service:
        small = await service.client(lambda api: planned(api, asked()))
        monkeypatch.setattr(campaign_planner, "SMALL_FLEET_VMS", 0)
        lines = await service.client(lambda api: list(api.plan_campaign(asked())))
        wrong = msgspec.structs.replace(asked(), selection=v1.CampaignSelection(scopes=("no-such-*",)))
        refused = await service.client(lambda api: list(api.plan_campaign(wrong)))
    assert lines[-1].result == small
    assert (lines[-1].done, lines[-1].total) == (15, 15)
    assert all(line.result is None and line.error is None for line in lines[:-1])
    assert refused[-1].error is not None
    assert refused[-1].error.error.code == "invalid-value"


async def test_disconnect_cancels_planning(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan is not needed after a disconnect."""
    begun, ended = asyncio.Event(), asyncio.Event()

    async def endless(*_: object) -> campaign_planner.EncodedPlan:
        begun.set()
        try:
            return await asyncio.Future()
        finally:
            ended.set()

    monkeypatch.setattr(campaign_planner, "SMALL_FLEET_VMS", 0)
    monkeypatch.setattr(campaign_planner, "run_in_process", endless)
    async with run_api() as service, asyncio.timeout(GUARD):
        _, writer = await asyncio.open_connection("127.0.0.1", service.port)
        body = msgspec.json.encode(asked())
        head = (
            "POST /v1/campaigns/plan HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer a-token-for-tests\r\n"
            f"Accept: application/x-ndjson\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await begun.wait()
        writer.transport.abort()
        await ended.wait()


async def test_death_of_the_planning_process_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def dies(*_: object) -> campaign_planner.EncodedPlan:
        raise EOFError

    monkeypatch.setattr(campaign_planner, "SMALL_FLEET_VMS", 0)
    monkeypatch.setattr(campaign_planner, "run_in_process", dies)
    async with run_api() as service:
        reply = await service.request("POST", "/v1/campaigns", asked())
        lines = await service.client(lambda api: list(api.plan_campaign(asked())))
    assert (reply.status, reply.code) == (503, "plan-failed")
    assert lines[-1].error is not None
    assert lines[-1].error.error.code == "plan-failed"


async def test_campaign_runs_all_waves_to_its_end() -> None:
    async with run_api() as service:
        started = await start(service, msgspec.structs.replace(asked("kernel", "web"), reason="ticket 4711"))
        assert (started.state, started.created_by, started.state_reason) == (
            CampaignState.RUNNING,
            "admin",
            "ticket 4711",
        )
        assert (
            started.scope_count,
            started.host_count,
            started.vm_count,
            started.wave_count,
            started.finished_wave_count,
        ) == (1, 3, 6, 3, 0)
        await service.fleet.time.advance(timedelta(minutes=20))
        after_first = await shown(service)
        waves = await service.client(lambda api: list(api.waves("kernel")))
        await service.fleet.time.advance(3 * HOUR)
        ended = await shown(service)
        lines = await service.client(lambda api: list(api.journal(campaign="kernel")))
        (event,) = {
            row.event for row in await service.client(lambda api: list(api.journal(vm="web/web-0"))) if row.event
        }
    assert after_first.progress[0] == v1.WaveProgress(number=1, wave_count=1, vm_count=2, done=1)
    assert after_first.progress[1] == v1.WaveProgress(number=2, wave_count=1, vm_count=2, planned=1)
    assert after_first.expected_end_at == started.planned_end_at
    assert any("gap" in sentence for sentence in after_first.explanation)
    assert [(wave.scope, wave.number, wave.state, wave.vm_count) for wave in waves] == [
        ("web", 1, v1.WaveState.DONE, 2),
        ("web", 2, v1.WaveState.PLANNED, 2),
        ("web", 3, v1.WaveState.PLANNED, 2),
    ]
    assert [wave.planned_at for wave in waves] == [
        TEN + timedelta(minutes=15),
        TEN + timedelta(minutes=76),
        TEN + timedelta(minutes=137),
    ]
    assert (ended.state, ended.finished_wave_count, ended.finished_vm_count, ended.explanation) == (
        CampaignState.COMPLETED,
        3,
        6,
        [],
    )
    assert [line.action for line in lines] == [
        EntryKind.CAMPAIGN_STARTED,
        *(EntryKind.WAVE_ANNOUNCED, EntryKind.WAVE_CLEARED, EntryKind.WAVE_SETTLED) * 3,
        EntryKind.CAMPAIGN_ENDED,
    ]
    assert {(line.record_kind, line.record_id) for line in lines} == {("campaign", ended.id)}
    assert event is not None


async def test_campaign_completes_in_real_time() -> None:
    """Unlike a manual clock, a real clock is almost never at a whole second."""
    fast = msgspec.structs.replace(EMULATOR, speed=1_000.0)
    async with run_api(clock=SystemClock(), policy=fast) as service:
        ask = asked("kernel", "web", "db-0", gap="1m")
        ask = msgspec.structs.replace(ask, type=v1.CampaignType.FREEZE, duration="1s")
        await start(service, ask)

        def follow(api: ApiClient) -> v1.JournalEntry:
            lines = (line for line in api.watch(after=0, campaign="kernel") if line is not None)
            return next(line for line in lines if line.action is EntryKind.CAMPAIGN_ENDED)

        async with asyncio.timeout(GUARD):
            await service.client(follow)
        ended = await shown(service)
    assert (ended.state, ended.finished_wave_count, ended.wave_count) == (CampaignState.COMPLETED, 4, 4)


async def test_repeated_start_with_the_same_key_starts_once() -> None:
    async with run_api() as service:
        first = await start(service, asked(), key="once")
        again = await start(service, asked(), key="once")
        with pytest.raises(RequestRefused) as reused:
            await start(service, asked("another"), key="once")
        with pytest.raises(RequestRefused) as twice:
            await start(service, asked())
        assert await service.client(lambda api: len(list(api.campaigns()))) == 1
    assert first.id == again.id
    assert reused.value.code == "idempotency-key-reused"
    assert (twice.value.status, "kernel" in str(twice.value)) == (409, True)


async def test_campaign_is_paused_resumed_and_aborted() -> None:
    async with run_api() as service:
        await start(service, asked("kernel", "web"))
        paused = await service.client(
            lambda api: api.pause_campaign("kernel", v1.PauseCampaign(reason="look"), key="p")
        )
        again = await service.client(lambda api: api.pause_campaign("kernel", v1.PauseCampaign(reason="look"), key="p"))
        await service.fleet.time.advance(HOUR)
        still = await shown(service)
        resumed = await service.client(lambda api: api.resume_campaign("kernel", v1.ResumeCampaign()))
        await service.client(lambda api: api.abort_campaign(resumed.id, v1.AbortCampaign(reason="withdrawn")))
        await service.fleet.time.advance(HOUR)
        aborted = await shown(service)
        left = await service.client(lambda api: list(api.waves(resumed.id, state=v1.WaveState.ABANDONED)))
        with pytest.raises(RequestRefused) as over:
            await service.client(lambda api: api.pause_campaign(resumed.id, v1.PauseCampaign()))
        events = await service.client(lambda api: list(api.events()))
    assert paused.state is again.state is still.state is CampaignState.PAUSED
    assert (paused.state_changed_by, paused.state_reason) == ("admin", "look")
    assert still.finished_wave_count == 0
    assert resumed.state is CampaignState.RUNNING
    assert (aborted.state, aborted.state_reason, aborted.ended_at is None) == (
        CampaignState.ABORTED,
        "withdrawn",
        False,
    )
    assert (over.value.status, events) == (409, [])
    assert [(wave.number, wave.state, wave.state_changed_at) for wave in left] == [
        (n, v1.WaveState.ABANDONED, None) for n in (2, 3)
    ]
    assert aborted.progress[1] == v1.WaveProgress(number=2, wave_count=1, vm_count=2, abandoned=1)
    assert (aborted.wave_count, aborted.finished_wave_count, aborted.finished_vm_count) == (3, 1, 2)


async def test_campaigns_are_listed_newest_first_by_state_and_page() -> None:
    async with run_api() as service:
        await start(service, asked("first", "web"))
        await service.client(lambda api: api.abort_campaign("first", v1.AbortCampaign(reason="no")))
        await service.fleet.time.advance(timedelta(minutes=1))
        await start(service, asked("second", "web"))
        await service.fleet.time.advance(timedelta(minutes=1))
        await start(service, asked("third", "db-0"))
        everything = await service.client(lambda api: [each.name for each in api.campaigns()])
        not_over = await service.client(lambda api: [each.name for each in api.campaigns(only_open=True)])
        aborted = await service.client(lambda api: [each.name for each in api.campaigns(state=CampaignState.ABORTED)])
        page = await service.request("GET", "/v1/campaigns?limit=2")
        rest = await service.request("GET", f"/v1/campaigns?after={page.json['next']}")
    assert everything == ["third", "second", "first"]
    assert (not_over, aborted) == (["third", "second"], ["first"])
    assert [each["name"] for each in page.json["campaigns"] + rest.json["campaigns"]] == everything


async def test_journal_stream_of_one_campaign() -> None:
    async with run_api() as service:
        started = await start(service, asked("kernel", "web"))

        def follow(api: ApiClient) -> list[v1.JournalEntry]:
            lines = (line for line in api.watch(after=0, campaign="kernel") if line is not None)
            return list(islice(lines, 3))

        async with asyncio.timeout(GUARD):
            following = asyncio.create_task(service.client(follow))
            await service.fleet.time.advance(timedelta(minutes=20))
            lines = await following
    assert [line.action for line in lines] == [
        EntryKind.CAMPAIGN_STARTED,
        EntryKind.WAVE_ANNOUNCED,
        EntryKind.WAVE_CLEARED,
    ]
    assert {line.record_id for line in lines} == {started.id}


MAY = {
    "viewer": (Role.VIEWER, {"plan": 200, "start": 403, "list": 200, "show": 200, "pause": 403, "abort": 403}),
    "operator": (Role.OPERATOR, {"plan": 200, "start": 201, "list": 200, "show": 200, "pause": 200, "abort": 200}),
}


@pytest.mark.parametrize("case", MAY)
async def test_viewers_read_and_operators_change(case: str) -> None:
    role, expected = MAY[case]
    async with run_api() as service:
        await start(service, asked("there", "web"))
        secret = await service.token("t", role)
        new = asked("new", "db-0")
        asks: dict[str, tuple[str, str, object]] = {
            "plan": ("POST", "/v1/campaigns/plan", new),
            "start": ("POST", "/v1/campaigns", new),
            "list": ("GET", "/v1/campaigns", None),
            "show": ("GET", "/v1/campaigns/there", None),
            "pause": ("POST", "/v1/campaigns/there/pause", {}),
            "abort": ("POST", "/v1/campaigns/there/abort", {"reason": "no"}),
        }
        statuses = {
            name: (await service.request(method, path, body, token=secret)).status
            for name, (method, path, body) in asks.items()
        }
    assert statuses == expected


async def test_token_for_scopes_sees_and_starts_only_campaigns_within_them() -> None:
    async with run_api() as service:
        await start(service, asked("wide", "web", "db-0"))
        await start(service, asked("narrow", "shop"))
        secret = await service.token("shopkeeper", Role.OPERATOR, "shop", "web")

        async def ask(method: str, path: str, body: object = None) -> tuple[int, Any]:
            reply = await service.request(method, path, body, token=secret)
            return reply.status, reply.json

        listed = await ask("GET", "/v1/campaigns")
        hidden = await ask("GET", "/v1/campaigns/wide")
        unknown = await ask("GET", "/v1/campaigns/no-such")
        steered = await ask("POST", "/v1/campaigns/wide/abort", {"reason": "mine"})
        beyond = await ask("POST", "/v1/campaigns", asked("too-far"))
        beyond_plan = await ask("POST", "/v1/campaigns/plan", asked("too-far"))
        within = await ask("POST", "/v1/campaigns", asked("mine", "web"))
        _, history = await ask("GET", "/v1/journal?limit=1000")
        of_hidden = await ask("GET", "/v1/journal?campaign=wide")
        watched = await ask("GET", "/v1/watch?campaign=wide")
        names = {each.id: each.name for each in service.fleet.campaigns.all()}
    assert [each["name"] for each in listed[1]["campaigns"]] == ["narrow"]
    assert hidden[0] == unknown[0] == steered[0] == of_hidden[0] == watched[0] == 404
    assert hidden[1]["error"]["code"] == "campaign-not-found"
    assert (beyond[0], beyond[1]["error"]["code"], beyond_plan[0]) == (403, "scope-forbidden", 403)
    assert within[0] == 201
    told = {names[line["record_id"]] for line in history["entries"] if line["record_kind"] == "campaign"}
    assert told == {"narrow", "mine"}


@pytest.mark.process
async def test_planning_reveals_nothing_about_other_scopes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Existing and missing scopes are refused with the same message, without counts."""
    monkeypatch.setattr(campaign_planner, "SMALL_FLEET_VMS", 0)
    async with run_api() as service:
        secret = await service.token("shopkeeper", Role.VIEWER, "shop", "web-*")

        async def refused(*scopes: str) -> tuple[int, str]:
            ask = asked("probe", *scopes)
            reply = await service.request("POST", "/v1/campaigns/plan", ask, token=secret)
            return reply.status, str(reply.json["error"]["message"]).replace(scopes[-1], "SCOPE")

        assert await refused("db-0") == await refused("db-9")
        assert await refused("shop", "db-*") == await refused("shop", "dc-*")
        assert (await refused("shop", "db-0"))[0] == 403
        for selection in ({"all": True}, {"hosts": ["hv-0"]}, {"hosts": ["no-such"]}, {"tags": {"no": "such"}}):
            ask = msgspec.to_builtins(asked("probe")) | {"selection": {**selection, "exclude_scopes": ["db-*"]}}
            reply = await service.request("POST", "/v1/campaigns/plan", ask, token=secret)
            assert (reply.status, reply.code) == (403, "scope-forbidden")
        mine = asked("mine", "shop")
        assert (await service.request("POST", "/v1/campaigns/plan", mine, token=secret)).status == 200


async def test_name_of_an_invisible_campaign_is_free_and_ambiguous_for_those_who_see_both() -> None:
    """Otherwise guessing names would reveal campaigns of others."""
    async with run_api() as service:
        hidden = await start(service, asked("kernel", "web", "db-0"))
        secret = await service.token("shopkeeper", Role.OPERATOR, "shop", "web")
        planned = await service.request("POST", "/v1/campaigns/plan", asked("kernel", "web"), token=secret)
        started = await service.request("POST", "/v1/campaigns", asked("Kernel", "shop"), token=secret)
        again = await service.request("POST", "/v1/campaigns", asked("kernel", "shop"), token=secret)
        await service.client(lambda api: api.abort_campaign(hidden.id, v1.AbortCampaign(reason="x")))
        second = await service.request("POST", "/v1/campaigns", asked("one", "shop"), token=secret)
        third = await start(service, asked("other", "db-0"))
        twin = await service.request("POST", "/v1/campaigns", asked("other", "shop"), token=secret)
        mine = await service.request("GET", "/v1/campaigns/other", token=secret)
        both = await service.request("GET", "/v1/campaigns/other")
    assert planned.json["warnings"] == [
        "a campaign that you cannot see also still has to maintain 6 VMs of these: both will do so in turn"
    ]
    assert (started.status, again.status, again.code, second.status) == (201, 409, "resource-exists", 201)
    assert (twin.status, mine.json["id"]) == (201, twin.json["id"])
    assert (both.status, both.code) == (409, "ambiguous-campaign")
    assert sorted(both.json["error"]["details"]["candidates"]) == sorted([third.id, twin.json["id"]])


@pytest.mark.process
async def test_pattern_beyond_the_tokens_scopes_is_refused_without_details(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(campaign_planner, "SMALL_FLEET_VMS", 0)
    async with run_api() as service:
        secret = await service.token("t", Role.VIEWER, "sho?", "we?")
        ask = msgspec.structs.replace(asked("probe"), selection=v1.CampaignSelection(scopes=("we*", "sho*")))
        within = await service.request("POST", "/v1/campaigns/plan", ask, token=secret)
        wide = await service.token("v", Role.VIEWER, "*-0?")
        ask = msgspec.structs.replace(asked("probe"), selection=v1.CampaignSelection(scopes=("*-0*",)))
        beyond = await service.request("POST", "/v1/campaigns/plan", ask, token=wide, Accept="application/x-ndjson")
        lines = [msgspec.json.decode(line, type=v1.PlanProgress) for line in beyond.body.splitlines()]
    assert within.status == 200
    assert {(line.done, line.total) for line in lines} == {(0, 0)}
    assert lines[-1].error is not None
    assert lines[-1].error.error.code == "scope-forbidden"


async def test_gate_url_with_a_password_is_refused() -> None:
    async with run_api() as service:
        own = asked("k", "web", gate=v1.HttpGate(url="http://me:s3cret@127.0.0.1:9/"))
        reply = await service.request("POST", "/v1/campaigns", own)
        assert service.fleet.campaigns.all() == ()
    assert (reply.status, reply.code) == (422, "invalid-value")
    assert "s3cret" not in reply.body.decode()
    assert "settings" in reply.json["error"]["message"]


async def test_gate_url_requires_admin_and_gate_name_must_exist() -> None:
    async with run_api() as service:
        operator = await service.token("o", Role.OPERATOR)
        own = asked("k", "web", gate=v1.HttpGate(url="http://127.0.0.1:9/"))
        refused = await service.request("POST", "/v1/campaigns", own, token=operator)
        planned_too = await service.request("POST", "/v1/campaigns/plan", own, token=operator)
        started = await service.request("POST", "/v1/campaigns", own)
        unknown = await service.request("POST", "/v1/campaigns", asked("l", "web", gate="no-such"))
    assert (refused.status, refused.code, planned_too.status) == (403, "forbidden", 403)
    assert started.status == 201
    assert (unknown.status, unknown.code) == (404, "gate-not-found")


WRONG = {
    "no VMs": ({"selection": {}}, 422, "select VMs by scopes"),
    "unknown zone": ({"policy": {"zone": "Mars/Olympus"}}, 422, "there is no time zone"),
    "unknown key": ({"policy": {"gaps": "1h"}}, 400, "gaps"),
    "limit": ({"policy": {"vms_at_once": "0%"}}, 422, "a limit in percent must be above 0"),
    "name": ({"name": "a b"}, 422, "name: 'a b'"),
    "reserved name": ({"name": "plan"}, 422, "name: must not be plan"),
    "type": ({"type": "Preempt"}, 400, "type"),
    "nothing selected": ({"selection": {"scopes": ["no-such"]}}, 422, ""),
    "time outside of UTC": ({"start_at": "9999-12-31T23:59:59-12:00"}, 422, "start_at"),
}


@pytest.mark.parametrize(("change", "status", "sentence"), WRONG.values(), ids=WRONG)
async def test_invalid_request_is_refused_and_starts_nothing(
    change: dict[str, Any], status: int, sentence: str
) -> None:
    async with run_api() as service:
        reply = await service.request("POST", "/v1/campaigns", msgspec.to_builtins(asked()) | change)
        assert service.fleet.campaigns.all() == ()
    assert reply.status == status, reply.body
    assert sentence in reply.json["error"]["message"]


async def test_event_of_a_campaign_waits_for_its_clearance() -> None:
    async with run_api() as service:
        campaign = await start(service, asked("kernel", "web"))
        await service.client(lambda api: api.pause_campaign("kernel", v1.PauseCampaign()))
        await service.fleet.time.advance(HOUR)
        (event,) = await service.client(lambda api: list(api.events(scope="web", type_=EventType.REBOOT)))
    assert (event.status, event.campaign) == ("Scheduled", campaign.id)
    text = "campaign kernel has not cleared it, as it is Paused"
    assert (event.explanation, event.blockers, event.is_stuck) == (
        [text],
        [v1.Blocker(code=BlockerCode.CAMPAIGN, text=text, vms=[])],
        True,
    )


async def test_campaign_that_vms_will_not_hear_of_needs_unannounced() -> None:
    async with run_api(policy=PRODUCTION) as service:
        noted = service.fleet.last_seen.record_request(service.fleet.replica.view("web"))
        assert noted is not None
        await noted
        plan = await service.client(lambda api: planned(api, asked()))
        with pytest.raises(
            RequestRefused, match=r"1 of 4 scopes polls for events: 9 of 15 VMs will not hear"
        ) as refused:
            await start(service, asked())
        assert await service.client(lambda api: list(api.campaigns())) == []
        begun = await start(service, msgspec.structs.replace(asked(), unannounced=True))
    assert (plan.unannounced_scope_count, plan.unannounced_vm_count) == (3, 9)
    assert plan.warnings == [
        "1 of 4 scopes polls for events: 9 of 15 VMs will not hear of it; to start it, consent with unannounced"
    ]
    assert {wave.scope for wave in plan.waves if wave.announced} == {"web"}
    assert (refused.value.status, refused.value.code) == (409, "not-announced")
    assert (refused.value.details["scope_count"], refused.value.details["vm_count"]) == ("3", "9")
    assert (begun.unannounced_scope_count, begun.unannounced_vm_count) == (3, 9)


async def test_wave_whose_vms_got_no_notice_is_unannounced_until_they_poll() -> None:
    async with run_api(policy=PRODUCTION) as service:
        begun = await start(service, msgspec.structs.replace(asked("kernel", "web", "db-0"), unannounced=True))
        await service.client(lambda api: api.advance("1m"))

        def look(api: ApiClient) -> tuple[dict[str, v1.WaveState], v1.WaveProgress, list[str]]:
            waves = {wave.scope: wave.state for wave in api.waves(begun.id) if wave.number == 1}
            found = api.campaign(begun.id)
            return waves, found.progress[0], list(found.explanation)

        hidden = await service.client(look)
        only = await service.client(
            lambda api: [wave.scope for wave in api.waves(begun.id, state=v1.WaveState.ANNOUNCED)]
        )
        noted = service.fleet.last_seen.record_request(service.fleet.replica.view("web"))
        assert noted is not None
        await noted
        shown_now = await service.client(look)
        kinds = await service.client(lambda api: [entry.action for entry in api.journal(campaign=begun.id)])
    assert hidden[0] == {"web": v1.WaveState.UNANNOUNCED, "db-0": v1.WaveState.UNANNOUNCED}
    assert (hidden[1].unannounced, hidden[1].announced, only) == (2, 0, [])
    assert not any(" announced, " in line for line in hidden[2])
    assert shown_now[0] == {"web": v1.WaveState.ANNOUNCED, "db-0": v1.WaveState.UNANNOUNCED}
    assert (shown_now[1].unannounced, shown_now[1].announced) == (1, 1)
    assert kinds.count(EntryKind.WAVE_UNANNOUNCED) == 2
    assert EntryKind.WAVE_ANNOUNCED not in kinds
