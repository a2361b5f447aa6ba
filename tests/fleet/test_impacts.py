"""Impact execution: begun is saved before the platform is called, the outcome after; a crash loses nothing."""

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from forewarn.clock import ManualClock
from forewarn.core.event import EventType, State
from forewarn.core.event_type import EVENT_TYPES
from forewarn.core.impact import Done, Failed, ImpactState, NotStarted, Retry, Unknown
from forewarn.core.impact_lifecycle import resolve, retry
from forewarn.core.journal import EntryKind
from forewarn.core.scope import Scope, ScopeKind
from forewarn.fleet import impacts, scheduler
from forewarn.platform.port import Work
from forewarn.platform.simulated import SimulatedPlatform
from forewarn.store.memory import MemoryStore
from forewarn.store.port import JournalQuery, RecordKey, RecordKind
from tests.core.sample_scopes import TEN, schedule_request, scope, vm, web_scope
from tests.fleet.fleets import FailingStore, InterceptedStore, Save, read_journal, run_fleet, until

MINUTE = timedelta(minutes=1)
WEB = RecordKey(RecordKind.SCOPE, "web")


def batch() -> Scope:
    """Low-priority VMs."""
    return scope("batch", *(vm(f"batch_{n}", host=f"hv-{n}") for n in range(3)), low_priority=True)


EXPECTED_JOURNAL = [
    pytest.param(EventType.FREEZE, 15 * MINUTE, timedelta(seconds=5), id="Freeze"),
    pytest.param(EventType.REBOOT, 15 * MINUTE, timedelta(seconds=60), id="Reboot"),
    pytest.param(EventType.REDEPLOY, 10 * MINUTE, timedelta(seconds=120), id="Redeploy"),
    pytest.param(EventType.PREEMPT, timedelta(seconds=30), timedelta(seconds=10), id="Preempt"),
    pytest.param(EventType.TERMINATE, 5 * MINUTE, timedelta(seconds=10), id="Terminate"),
]


@pytest.mark.parametrize(("type_", "notice", "duration"), EXPECTED_JOURNAL)
async def test_event_from_notice_to_end(type_: EventType, notice: timedelta, duration: timedelta) -> None:
    """It is Scheduled for its notice, Started as long as the work takes, and then ends."""
    clock = ManualClock(TEN)
    async with run_fleet(batch(), clock=clock) as fleet:
        ((_, id_),) = await fleet.events.schedule(schedule_request(type_, "batch_0"))
        await fleet.time.advance(notice - timedelta(seconds=1))
        assert fleet.events.find(id_)[1].state is State.SCHEDULED
        await fleet.time.advance(timedelta(seconds=1))
        assert fleet.events.find(id_)[1].state is State.STARTED
        await fleet.time.advance(duration - timedelta(seconds=1))
        assert fleet.events.find(id_)[1].state is State.STARTED
        await fleet.time.advance(timedelta(seconds=1))
        assert fleet.replica.scope("batch").events == ()
        left = [vm.name for vm in fleet.replica.scope("batch").roster]
        assert left == (["batch_1", "batch_2"] if EVENT_TYPES[type_].removes_vm else ["batch_0", "batch_1", "batch_2"])


async def test_freeze_lasts_as_long_as_the_duration_of_its_event() -> None:
    """The duration that the guests were told is the one that happens."""
    async with run_fleet(web_scope()) as fleet:
        ((_, id_),) = await fleet.events.schedule(
            schedule_request(EventType.FREEZE, "web-0", duration=timedelta(seconds=3))
        )
        await fleet.events.approve("web", "web-0", [id_])
        await fleet.time.advance(timedelta(seconds=2))
        assert fleet.events.find(id_)[1].state is State.STARTED
        await fleet.time.advance(timedelta(seconds=1))
        assert fleet.replica.scope("web").events == ()


async def test_redeployed_vm_is_on_another_host_of_the_fleet() -> None:
    """Redeploy moves, as the platform's outcome says."""
    clock = ManualClock(TEN)
    platform = SimulatedPlatform(clock, hosts=lambda: ("hv-0", "hv-1", "hv-2"))
    async with run_fleet(web_scope(), clock=clock, platform=platform) as fleet:
        ((_, id_),) = await fleet.events.schedule(schedule_request(EventType.REDEPLOY, "web-2"))
        await fleet.events.approve("web", "web-5", [id_])
        await fleet.time.advance(2 * MINUTE)
        assert fleet.replica.scope("web").vm("web-2").host == "hv-0"


async def test_standalone_scope_is_removed_with_its_vm_after_eviction() -> None:
    """Nothing is left of an evicted standalone VM."""
    alone = scope("alone", vm("alone"), kind=ScopeKind.STANDALONE)
    store = MemoryStore()
    async with run_fleet(alone, store=store) as fleet:
        await fleet.events.schedule(schedule_request(EventType.TERMINATE, "alone"))
        await fleet.time.advance(6 * MINUTE)
        assert list(fleet.replica.views()) == []
        assert [row.entry.kind for row in await read_journal(store, RecordKey(RecordKind.SCOPE, "alone"))][-4:] == [
            EntryKind.IMPACT_DONE,
            EntryKind.VM_REMOVED,
            EntryKind.COMPLETED,
            EntryKind.SCOPE_REMOVED,
        ]


async def test_platform_is_called_only_after_begun_is_saved() -> None:
    """When the platform gets the work, the store already has it as begun."""
    store, seen = MemoryStore(), []

    class Watching(SimulatedPlatform):
        async def carry_out(self, work: Work) -> Done | Failed | Retry:
            rows = await store.journal(JournalQuery(key=WEB, limit=10_000))
            seen.append((work.vm, [row.entry.kind for row in rows if work.vm in row.entry.vms][-1]))
            return Done()

    async with run_fleet(web_scope(), store=store, platform=Watching(ManualClock(TEN))) as fleet:
        ((_, id_),) = await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0", "web-3"))
        await fleet.events.approve("web", "web-0", [id_])
        await until(lambda: fleet.replica.scope("web").events == ())
    assert seen == [("web-0", EntryKind.IMPACT_BEGUN), ("web-3", EntryKind.IMPACT_BEGUN)]


async def test_postponed_work_is_retried_at_its_time() -> None:
    """Retry says when; each attempt is counted."""
    clock = ManualClock(TEN)
    platform = SimulatedPlatform(clock)
    platform.set_outcomes("web/web-0", Retry(after=5 * MINUTE, why="host is busy"))
    async with run_fleet(web_scope(), clock=clock, platform=platform) as fleet:
        ((_, id_),) = await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0"))
        await fleet.events.approve("web", "web-0", [id_])
        await fleet.time.advance(MINUTE)
        assert fleet.events.find(id_)[1].impacts[0].state is ImpactState.RETRY
        await fleet.time.advance(5 * MINUTE)
        assert fleet.events.find(id_)[1].impacts[0].state is ImpactState.BEGUN
        await fleet.time.advance(MINUTE)
        assert fleet.replica.scope("web").events == ()
    assert [ran.work.attempt for ran in platform.results] == [1, 2]


async def test_failed_work_waits_for_a_person_to_retry_it() -> None:
    """The event stays Started until a person decides."""
    clock = ManualClock(TEN)
    platform = SimulatedPlatform(clock)
    platform.set_outcomes("web/web-0", Failed("no such domain"))
    async with run_fleet(web_scope(), clock=clock, platform=platform) as fleet:
        ((_, id_),) = await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0"))
        await fleet.events.approve("web", "web-0", [id_])
        await fleet.time.advance(timedelta(days=3))
        failed = fleet.events.find(id_)[1]
        assert (failed.state, failed.impacts[0].why) == (State.STARTED, "no such domain")
        await fleet.scopes.apply("web", lambda value: retry(value, id_, "web-0", by="operator:test", now=clock.now()))
        await fleet.time.advance(MINUTE)
        assert fleet.replica.scope("web").events == ()


async def test_error_of_the_platform_counts_as_failed() -> None:
    """An exception of the platform is an outcome like any other, and has no other effect."""

    class Broken(SimulatedPlatform):
        async def carry_out(self, work: Work) -> Done | Failed | Retry:
            raise OSError("no route to the hypervisor")

    async with run_fleet(web_scope(), platform=Broken(ManualClock(TEN))) as fleet:
        ((_, id_),) = await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0"))
        await fleet.events.approve("web", "web-0", [id_])
        await until(lambda: fleet.events.find(id_)[1].impacts[0].state is ImpactState.FAILED)
        assert "no route to the hypervisor" in fleet.events.find(id_)[1].impacts[0].why


async def test_platform_without_a_result_has_an_unknown_outcome(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every wait has its limit."""
    monkeypatch.setattr(impacts, "WORK_TIMEOUT", 0.01)
    platform = RestartedPlatform(Unknown())
    async with run_fleet(web_scope(), platform=platform) as fleet:
        ((_, id_),) = await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0"))
        await fleet.events.approve("web", "web-0", [id_])
        await until(lambda: fleet.events.find(id_)[1].impacts[0].state is ImpactState.UNKNOWN)


async def test_outcome_is_saved_when_the_disk_has_room_again() -> None:
    """What the platform did is not forgotten because the disk was full for a while."""
    store, clock = FailingStore(), ManualClock(TEN)
    release = asyncio.Event()

    class Slow(SimulatedPlatform):
        async def carry_out(self, work: Work) -> Done | Failed | Retry:
            await release.wait()
            return await super().carry_out(work)

    platform = Slow(clock, durations=dict.fromkeys(EventType, timedelta(0)))
    async with run_fleet(web_scope(), store=store, clock=clock, platform=platform) as fleet:
        ((_, id_),) = await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0"))
        await fleet.events.approve("web", "web-0", [id_])
        await until(lambda: fleet.events.find(id_)[1].impacts[0].state is ImpactState.BEGUN)
        store.full = True
        release.set()
        await until(lambda: len(platform.results) == 1)
        assert fleet.events.find(id_)[1].state is State.STARTED
        store.full = False
        await until(lambda: fleet.replica.scope("web").events == ())
    assert len(platform.results) == 1


class RestartedPlatform:
    """A platform that cannot tell what it did, and on which doing twice would do harm."""

    repeatable = False

    def __init__(self, answer: Done | NotStarted | Unknown) -> None:
        self.answer = answer
        self.given: list[Work] = []
        self.hang = True

    async def carry_out(self, work: Work) -> Done:
        self.given.append(work)
        if self.hang:
            await asyncio.Event().wait()
        return Done()

    async def probe(self, work: Work) -> Done | NotStarted | Unknown:
        return self.answer


async def crashed_while_begun(store: MemoryStore, platform: RestartedPlatform) -> str:
    """Bring an event to where its work has begun, and end the process."""
    async with run_fleet(web_scope(), store=store, platform=platform) as fleet:
        ((_, id_),) = await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0"))
        await fleet.events.approve("web", "web-0", [id_])
        await until(lambda: len(platform.given) == 1)
    platform.hang = False
    return id_


@pytest.mark.parametrize(
    ("answer", "given"), [pytest.param(Done(), 1, id="done"), pytest.param(NotStarted(), 2, id="not-begun")]
)
async def test_begun_work_is_probed_after_a_crash(answer: Done | NotStarted, given: int) -> None:
    """Done is recorded, not repeated; what had not begun is carried out."""
    store, platform = MemoryStore(), RestartedPlatform(answer)
    await crashed_while_begun(store, platform)
    async with run_fleet(store=store, platform=platform) as fleet:
        await until(lambda: fleet.replica.scope("web").events == ())
    assert len(platform.given) == given
    assert len({work.id for work in platform.given}) == 1


async def test_unknown_work_is_not_repeated_after_a_crash() -> None:
    """The event stays Started with its impact unknown until a person decides."""
    store, platform = MemoryStore(), RestartedPlatform(Unknown("no record of it"))
    id_ = await crashed_while_begun(store, platform)
    async with run_fleet(store=store, platform=platform) as fleet:
        await until(lambda: fleet.events.find(id_)[1].impacts[0].state is ImpactState.UNKNOWN)
        assert fleet.events.find(id_)[1].state is State.STARTED
        await fleet.scopes.apply(
            "web",
            lambda value: resolve(
                value, id_, fleet.scopes.rule_context, by="operator:test", why="looked at it", now=TEN
            ),
        )
        assert fleet.replica.scope("web").events == ()
    assert len(platform.given) == 1
    assert (await read_journal(store, WEB))[-1].entry.kind is EntryKind.FAILED


async def test_unknown_work_is_repeated_after_a_crash_on_a_repeatable_platform() -> None:
    """A platform that says that repeating does no harm is given the work again."""
    store, platform = MemoryStore(), RestartedPlatform(Unknown())
    await crashed_while_begun(store, platform)
    platform.repeatable = True
    async with run_fleet(store=store, platform=platform) as fleet:
        await until(lambda: fleet.replica.scope("web").events == ())
    assert [work.attempt for work in platform.given] == [1, 2]


class CrashingStore(InterceptedStore):
    """A store whose process dies right before or right after its n-th save."""

    def __init__(self) -> None:
        super().__init__()
        self.lives: int | None = None
        self.before = False
        self.dead = asyncio.Event()

    async def intercept(self, key: RecordKey, save: Save) -> int:
        if self.lives is None:
            return await save()
        if self.lives == 0 and self.before:
            await self._die()
        revision = await save()
        self.lives -= 1
        if self.lives < 0:
            await self._die()
        return revision

    async def _die(self) -> None:
        self.dead.set()
        await asyncio.Event().wait()


async def rollout(store: CrashingStore, platform: SimulatedPlatform, clock: ManualClock) -> None:
    """Ask for a reboot of all VMs (asking twice does nothing twice) and let everything happen."""
    async with run_fleet(web_scope(), store=store, platform=platform, clock=clock) as fleet:
        await fleet.events.schedule(schedule_request(EventType.REBOOT, *(f"web-{n}" for n in range(6))))
        await fleet.time.advance(timedelta(hours=1))


async def lived_through(store: CrashingStore, platform: SimulatedPlatform, clock: ManualClock) -> bool:
    """Run the rollout until it is done or the process dies; tell which."""
    work = asyncio.ensure_future(rollout(store, platform, clock))
    death = asyncio.ensure_future(store.dead.wait())
    done, _ = await asyncio.wait((work, death), return_when=asyncio.FIRST_COMPLETED)
    for task in (work, death):
        task.cancel()
    await asyncio.gather(work, death, return_exceptions=True)
    store.lives = None
    return work in done


@pytest.mark.parametrize("before", [pytest.param(True, id="before-it"), pytest.param(False, id="after-it")])
async def test_rollout_continues_after_a_crash_at_any_save(before: bool) -> None:
    """The process dies at each single save of a rollout, before it or after it, and another one finishes it."""
    crashes = 0
    for lives in range(200):
        store, clock = CrashingStore(), ManualClock(TEN)
        platform = SimulatedPlatform(clock)
        store.lives, store.before = lives, before
        if await lived_through(store, platform, clock):
            break
        crashes += 1
        store.dead.clear()
        assert await lived_through(store, platform, clock)
        await assert_rolled_out(store, platform)
    assert crashes >= 10


async def assert_rolled_out(store: CrashingStore, platform: SimulatedPlatform) -> None:
    """Every event ended once, every VM was rebooted once, and no two update domains overlapped."""
    rows = [row.entry for row in await read_journal(store, WEB)]
    assert Counter(
        entry.kind for entry in rows if entry.kind in (EntryKind.SCHEDULED, EntryKind.STARTED, EntryKind.COMPLETED)
    ) == {
        EntryKind.SCHEDULED: 3,
        EntryKind.STARTED: 3,
        EntryKind.COMPLETED: 3,
    }
    assert [entry.kind for entry in rows if entry.kind in (EntryKind.STARTED, EntryKind.COMPLETED)] == [
        EntryKind.STARTED,
        EntryKind.COMPLETED,
    ] * 3
    assert [entry.n for entry in rows] == list(range(1, len(rows) + 1))
    assert Counter(ran.work.vm for ran in platform.results) == dict.fromkeys((f"web-{n}" for n in range(6)), 1)


async def test_work_begins_after_all_due_events_have_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guests wait for the start in long polls; no one waits for the save of begun work."""
    monkeypatch.setattr(scheduler, "TICK_CONCURRENCY", 1)
    store = MemoryStore()
    scopes = [scope(f"s{n}", vm(f"vm-{n}", host=f"hv-{n}")) for n in range(10)]
    async with run_fleet(*scopes, store=store) as fleet:
        await fleet.events.schedule(schedule_request(EventType.REBOOT, *(f"vm-{n}" for n in range(10))))
        await fleet.time.advance(15 * MINUTE)
        told = [row.entry.kind for row in await read_journal(store)]
    begun = [number for number, did in enumerate(told) if did is EntryKind.IMPACT_BEGUN]
    started = [number for number, did in enumerate(told) if did is EntryKind.STARTED]
    assert (len(begun), len(started)) == (10, 10)
    assert min(begun) > started[-2], "only the last one has its turn already, and may not be saved yet"


async def test_work_begins_although_scopes_are_always_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a busy fleet there is always a scope that is due; impacts wait for them only for a short time."""
    monkeypatch.setattr(impacts, "MAX_BEGIN_DELAY", 0.01)

    async def wait_forever() -> None:
        await asyncio.Event().wait()

    async with run_fleet(web_scope()) as fleet:
        monkeypatch.setattr(type(fleet.duties.scheduler), "is_idle", False)
        monkeypatch.setattr(fleet.duties.scheduler, "wait_idle", wait_forever)
        ((_, id_),) = await fleet.events.schedule(schedule_request(EventType.FREEZE, "web-0"))
        await fleet.events.approve("web", "web-0", [id_])
        await until(lambda: fleet.events.find(id_)[1].impacts[0].state is ImpactState.BEGUN)


class BegunWork(SimulatedPlatform):
    """Counts the work that it is given."""

    begun = 0

    async def carry_out(self, work: Work) -> Done | Failed | Retry:
        """Count the work, then carry it out."""
        self.begun += 1
        return await super().carry_out(work)


async def test_halted_duty_begins_no_work() -> None:
    """Not even work that waits for its turn."""
    clock = ManualClock(TEN)
    platform = BegunWork(clock)
    count = 5 * impacts.MAX_CONCURRENT
    scopes = [scope(f"s{n}", vm(f"vm-{n}", host=f"hv-{n}")) for n in range(count)]
    async with run_fleet(*scopes, clock=clock, platform=platform) as fleet:
        await fleet.events.schedule(schedule_request(EventType.REBOOT, *(f"vm-{n}" for n in range(count))))
        clock.set(TEN + 15 * MINUTE)
        await until(lambda: platform.begun > 0)
        fleet.duties.halt()
        begun = platform.begun
        await until(lambda: fleet.duties.impacts.waiting == 0)
        assert platform.begun == begun < count
