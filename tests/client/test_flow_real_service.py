"""Both clients against the real service in a separate process with a manual clock."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import pytest

from forewarn.api.client import ApiClient
from forewarn.api.v1 import CancelEvent, Fail, ScheduleEvents
from forewarn.client import (
    Appeared,
    AsyncScheduledEvents,
    Document,
    Ending,
    Gone,
    Refused,
    ScheduledEvents,
    Started,
    Unreachable,
    deputy,
    leader,
)
from forewarn.core.event import EventType
from tests.client.faulty_server import GUARD
from tests.client.users import User
from tests.support import emulator as clients
from tests.support.program import LOOPBACK

pytestmark = pytest.mark.process

SCOPES = 24
SCOPE = """
[[scopes]]
name = "set-{}"
kind = "availability-set"
update_domains = 1
vms = [{{ name = "vm-{{n}}", count = 2 }}]
"""


class Vms(msgspec.Struct, frozen=True):
    """Two VMs of one scope, and the operator's API client."""

    scope: str
    urls: tuple[str, str]
    api: ApiClient

    def schedule(self, *names: str, type_: EventType = EventType.REBOOT) -> str:
        vms = tuple(f"{self.scope}/{name}" for name in names)
        (made,) = self.api.schedule(ScheduleEvents(type=type_, vms=vms, notice="1h")).created
        return made.id


@contextmanager
def running(directory: Path, *options: str) -> Iterator[clients.UpOutput]:
    directory.mkdir(exist_ok=True)
    fleet = directory / "fleet.toml"
    fleet.write_text("".join(SCOPE.format(n) for n in range(SCOPES)), encoding="utf-8")
    with clients.forewarn_up(directory, "--fleet", str(fleet), *options) as started:
        yield started


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Iterator[Vms]]:
    """Scopes of a running service, one after the other."""
    with running(tmp_path_factory.mktemp("service")) as started:
        api = started.api()
        yield (
            Vms(scope, (started.guest_urls[f"{scope}/vm-0"], started.guest_urls[f"{scope}/vm-1"]), api)
            for scope in (f"set-{n}" for n in range(SCOPES))
        )


def of_first_scope(service: clients.UpOutput) -> Vms:
    return Vms("set-0", (service.guest_urls["set-0/vm-0"], service.guest_urls["set-0/vm-1"]), service.api())


@pytest.fixture
def vms(pool: Iterator[Vms]) -> Vms:
    """A scope that no other test has touched."""
    return next(pool)


def test_vm_gets_its_name(vms: Vms, user: User) -> None:
    assert [user.name(url) for url in vms.urls] == ["vm-0", "vm-1"]


def test_event_is_reported_from_announcement_to_end(vms: Vms, user: User) -> None:
    with user.background_watch(vms.urls[0], mine=True) as following:
        id_ = vms.schedule("vm-0")
        appeared = following.next()
        user.approve(vms.urls[0], id_)
        started = following.next()
        vms.api.advance("1h")
        gone = following.next()
        assert following.is_silent
    assert [type(change) for change in (appeared, started, gone)] == [Appeared, Started, Gone]
    assert isinstance(gone, Gone)
    assert (gone.how, gone.event.id, gone.event.status) == (Ending.FINISHED, id_, "Started")
    assert set(user.pauses) <= {0.25}, "long polls were used, not polling"
    assert user.troubles == []


def test_cancelled_event_is_withdrawn(vms: Vms, user: User) -> None:
    with user.background_watch(vms.urls[0]) as following:
        id_ = vms.schedule("vm-0")
        assert isinstance(following.next(), Appeared)
        vms.api.cancel(id_, CancelEvent(reason="not needed"))
        gone = following.next()
    assert isinstance(gone, Gone)
    assert (gone.event.id, gone.how) == (id_, Ending.WITHDRAWN)


def test_hardware_failure_appears_as_started(vms: Vms, user: User) -> None:
    with user.background_watch(vms.urls[0], mine=True) as following:
        vms.api.fail(Fail(vms=(f"{vms.scope}/vm-0",)))
        changes = [following.next(), following.next()]
    assert [(type(change), change.event.status) for change in changes] == [(Appeared, "Started"), (Started, "Started")]


def test_event_of_another_vm_is_reported_without_mine(vms: Vms, user: User) -> None:
    with user.background_watch(vms.urls[0]) as all_events, user.background_watch(vms.urls[0], mine=True) as own:
        theirs = vms.schedule("vm-1")
        ours = vms.schedule("vm-0")
        assert [all_events.next().event.id, all_events.next().event.id] == [theirs, ours]
        assert own.next().event.id == ours
        assert own.is_silent


def test_all_affected_vms_see_the_same_leader(vms: Vms, user: User) -> None:
    vms.schedule("vm-1", "vm-0")
    seen = [user.get(url).events[0] for url in vms.urls]
    assert [(leader(event), deputy(event)) for event in seen] == [("vm-1", "vm-0")] * 2


def test_repeated_and_late_approvals_have_no_effect(vms: Vms, user: User) -> None:
    id_ = vms.schedule("vm-0")
    user.approve(vms.urls[1], id_.lower(), id_)
    user.approve(vms.urls[0], id_)
    vms.api.advance("1h")
    user.approve(vms.urls[0], id_)
    assert user.get(vms.urls[0]).events == ()


def test_started_event_is_not_sent_for_approval(vms: Vms, user: User, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "forewarn.client")
    vms.api.fail(Fail(vms=(f"{vms.scope}/vm-0",)))
    failure = user.get(vms.urls[0]).events[0]
    id_ = vms.schedule("vm-0")
    assert user.approve(vms.urls[0], failure) == ()
    assert user.approve(vms.urls[0], failure, id_) == (id_,)
    assert [record.getMessage() for record in caplog.records] == [
        f"event {failure.id} has started: it needs no approval, and none is sent"
    ] * 2


def test_unknown_event_cannot_be_approved(vms: Vms, user: User) -> None:
    id_ = vms.schedule("vm-0")
    with pytest.raises(Refused) as caught:
        user.approve(vms.urls[0], id_, "00000000-0000-0000-0000-000000000000")
    assert (caught.value.status, user.get(vms.urls[0]).events[0].status) == (400, "Scheduled")


def test_interruptible_program_stops(vms: Vms) -> None:
    with ScheduledEvents(vms.urls[0]) as se, se.interruptible() as stop:
        assert not stop.is_set()
        vms.schedule("vm-1")
        id_ = vms.schedule("vm-0")
        assert stop.wait(GUARD)
        assert stop.event is not None
        assert stop.event.id == id_
        se.approve(stop.event)
        assert se.get().affecting(se.name).events[0].is_started


async def test_async_interruptible_program_stops(vms: Vms) -> None:
    async with AsyncScheduledEvents(vms.urls[0]) as se, se.interruptible() as stop:
        id_ = vms.schedule("vm-0")
        assert await stop.wait(GUARD)
        assert stop.event is not None
        assert stop.event.id == id_
        await se.approve(stop.event)
        assert (await se.get()).affecting(await se.name()).events[0].is_started


def test_watch_survives_a_new_service(tmp_path: Path, user: User) -> None:
    """The second service has no data of the first, and its incarnations start at one again."""
    user.pace = 0.05
    with ExitStack() as stack:
        with running(tmp_path / "first", "--listen", f"{LOOPBACK}:0") as service:
            vms = of_first_scope(service)
            following = stack.enter_context(user.background_watch(vms.urls[0]))
            old = vms.schedule("vm-0")
            assert following.next().event.id == old
        with running(tmp_path / "second", "--listen", vms.urls[0].removeprefix("http://")) as service:
            assert of_first_scope(service).urls == vms.urls
            gone = following.next()
            new = of_first_scope(service).schedule("vm-0")
            appeared = following.next()
    assert (type(gone), gone.event.id, type(appeared), appeared.event.id) == (Gone, old, Appeared, new)
    assert {type(trouble) for trouble in user.troubles} == {Unreachable}


def test_document_of_an_idle_scope_is_empty(vms: Vms, user: User) -> None:
    assert user.get(vms.urls[0]) == Document(incarnation=1, events=())
