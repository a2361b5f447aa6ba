"""Campaign notifications: delivered in order, at least once, and again after a restart."""

from contextlib import AbstractAsyncContextManager
from datetime import timedelta

import pytest

from forewarn.clock import ManualClock
from forewarn.core.campaign.record import CampaignState
from forewarn.core.policy import EMULATOR
from forewarn.fleet.service import Fleet
from forewarn.platform.port import NotificationFailed, NotificationMessage, Notifier
from forewarn.store.memory import MemoryStore
from tests.core.sample_scopes import TEN
from tests.fleet.campaign.campaigns import (
    CAMPAIGN_ID,
    DurablePlatform,
    FakeNotifier,
    campaign_spec,
    single,
    start_campaign,
)
from tests.fleet.fleets import run_fleet, until

HOUR = timedelta(hours=1)


async def test_start_halt_and_end_are_delivered_with_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forewarn.fleet.campaign.notifications.FIRST_PAUSE", 0.001)
    store, clock = MemoryStore(), ManualClock(TEN)
    platform, post = DurablePlatform(clock), FakeNotifier(failures=2)
    platform.failing["db-1/db-1"] = "no power"
    async with run_fleet(single(1), store=store, clock=clock, platform=platform, messenger=post) as fleet:
        await start_campaign(fleet, campaign_spec())
        await fleet.time.advance(HOUR)
        await fleet.campaigns.retry("kernel", "db-1", by="bob")
        await fleet.campaigns.resume("kernel", by="bob")
        await fleet.time.advance(HOUR)
        await until(lambda: not fleet.campaigns.find("kernel").notifications)
    assert [(message.what, message.why) for message in post.messages] == [
        ("started", ""),
        ("halted", "a wave has failed: db-1, wave 1: db-1: no power"),
        ("ended", "Completed"),
    ]
    assert [message.id for message in post.messages] == [f"{CAMPAIGN_ID}-{n}" for n in (1, 5, 9)]


async def test_undelivered_notification_is_delivered_after_a_restart() -> None:
    store, clock = MemoryStore(), ManualClock(TEN)
    async with run_fleet(single(1), store=store, clock=clock, messenger=FakeNotifier(failures=1_000)) as fleet:
        await start_campaign(fleet, campaign_spec())
        await fleet.time.advance(HOUR)
    post = FakeNotifier()
    async with run_fleet(store=store, clock=clock, messenger=post) as fleet:
        await until(lambda: not fleet.campaigns.find("kernel").notifications)
    assert [(message.what, message.facts["state"]) for message in post.messages] == [
        ("started", "Running"),
        ("ended", "Completed"),
    ]


async def test_notifier_that_raises_is_called_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forewarn.fleet.campaign.notifications.FIRST_PAUSE", 0.001)

    class Broken(FakeNotifier):
        async def notify(self, message: NotificationMessage) -> None:
            if not self._tried:
                self._tried["once"] = 1
                raise RuntimeError("broken")
            await super().notify(message)

    post = Broken()
    async with run_fleet(single(1), messenger=post) as fleet:
        await start_campaign(fleet, campaign_spec())
        await fleet.time.advance(HOUR)
        await until(lambda: not fleet.campaigns.find("kernel").notifications)
    assert [message.what for message in post.messages] == ["started", "ended"]


class SwitchedNotifier(FakeNotifier):
    """Takes no message before it is switched on."""

    is_on = False

    async def notify(self, message: NotificationMessage) -> None:
        """Take a message, or fail."""
        if not self.is_on:
            raise NotificationFailed("no response")
        await super().notify(message)


async def test_no_process_deletes_a_campaign_before_its_notifications_are_delivered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("forewarn.fleet.campaign.service.MAX_FINISHED", 0)
    monkeypatch.setattr("forewarn.fleet.campaign.notifications.FIRST_PAUSE", 0.001)
    monkeypatch.setattr("forewarn.fleet.campaign.notifications.LONGEST_PAUSE", 0.001)
    store, clock, post = MemoryStore(), ManualClock(TEN), SwitchedNotifier()

    def run(notifier: Notifier | None, *, has_duties: bool) -> AbstractAsyncContextManager[Fleet]:
        platform = DurablePlatform(clock)
        return Fleet.run(
            store=store, platform=platform, clock=clock, policy=EMULATOR, notifier=notifier, has_duties=has_duties
        )

    async with run(post, has_duties=True) as runs_it, run(None, has_duties=False) as other:
        await runs_it.inventory.add_scope(single(1), by="test")
        await start_campaign(runs_it, campaign_spec())
        await runs_it.campaigns.abort(CAMPAIGN_ID, by="bob")
        await until(lambda: [campaign.state for campaign in other.campaigns.all()] == [CampaignState.ABORTED])
        await start_campaign(other, campaign_spec(name="next"), id_=CAMPAIGN_ID.replace("0F", "1F"))
        assert [campaign.name for campaign in other.campaigns.all()] == ["kernel", "next"]
        post.is_on = True
        await until(lambda: not other.campaigns.find(CAMPAIGN_ID).notifications)
        await start_campaign(other, campaign_spec(name="last"), id_=CAMPAIGN_ID.replace("0F", "2F"))
        assert [campaign.name for campaign in other.campaigns.all()] == ["next", "last"]
    assert [message.what for message in post.messages if message.name == "kernel"] == ["started", "ended"]


async def test_campaigns_whose_notifications_cannot_be_delivered_are_kept_up_to_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("forewarn.fleet.campaign.service.MAX_FINISHED", 0)
    monkeypatch.setattr("forewarn.fleet.campaign.service.MAX_ENDED", 2)
    async with run_fleet(single(1), messenger=SwitchedNotifier()) as fleet:
        for number in range(4):
            id_ = CAMPAIGN_ID.replace("0F", f"{number}F")
            await start_campaign(fleet, campaign_spec(name=f"c{number}"), id_=id_)
            await fleet.campaigns.abort(id_, by="bob")
            await until(lambda: all(campaign.state.is_over for campaign in fleet.campaigns.all()))
        assert [campaign.name for campaign in fleet.campaigns.all()] == ["c1", "c2", "c3"]


class PickyNotifier(FakeNotifier):
    """Takes only the messages of one campaign."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    async def notify(self, message: NotificationMessage) -> None:
        """Take a message, or fail."""
        if message.name != self.name:
            raise NotificationFailed("no response")
        await super().notify(message)


async def test_undelivered_notifications_are_kept_while_older_campaigns_make_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("forewarn.fleet.campaign.service.MAX_FINISHED", 0)
    monkeypatch.setattr("forewarn.fleet.campaign.service.MAX_ENDED", 1)
    monkeypatch.setattr("forewarn.fleet.campaign.notifications.FIRST_PAUSE", 0.001)
    async with run_fleet(single(1), messenger=PickyNotifier("c1")) as fleet:
        for number in range(3):
            id_ = CAMPAIGN_ID.replace("0F", f"{number}F")
            await start_campaign(fleet, campaign_spec(name=f"c{number}"), id_=id_)
            await fleet.campaigns.abort(id_, by="bob")
            await until(lambda: all(campaign.state.is_over for campaign in fleet.campaigns.all()))
            await until(lambda: number != 1 or not fleet.campaigns.find("c1").notifications)  # noqa: B023 - in the loop
        assert [campaign.name for campaign in fleet.campaigns.all()] == ["c0", "c2"]
