"""A running service as a stage: operators speak through its API, VMs through their endpoints, time is its own.

With a manual clock every telling is the same, to the second. With a real one the story waits, and its times are not
compared. A program under examination may play the story's handler; then only what the story expects is compared.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.api.errors import RequestRefused
from forewarn.core.duration import format_duration
from forewarn.core.errors import CoreError
from forewarn.core.journal import EntryKind
from forewarn.testing.scenario import commands as say
from forewarn.testing.scenario.bell import Bell
from forewarn.testing.scenario.casting import PATIENCE, Casting, Program
from forewarn.testing.scenario.expecting import agree, agree_as_far_as_known, agree_but_for_times
from forewarn.testing.scenario.hearing import Heard
from forewarn.testing.scenario.live_acts import act
from forewarn.testing.scenario.live_time import NO_TIME, AwaitedTime, LiveTime, MovedTime
from forewarn.testing.scenario.live_world import LiveWorld
from forewarn.testing.scenario.policies import USUAL, Wanted, changed
from forewarn.testing.scenario.stage import REFUSED, Told, Unplayable
from forewarn.testing.scenario.telling import Names
from forewarn.testing.scenario.world import BEGINNING

SECOND = timedelta(seconds=1)
IN_PRODUCTION = "not-in-production"


class NotAnEmulator(Exception):
    """The service is for real VMs: whoever carries maintenance out there would do so for the VMs of the story."""

    def __init__(self, url: str) -> None:
        self.url = url
        super().__init__(f"{url} is no emulator but a service for real VMs: stories are not played there")


class LiveStage:
    """Plays one story in a running service; as a context it takes away again what the story has brought along.

    `wanted` is how the service was started, as far as stories can say it. `speed` is how much faster it is than the
    story: of a service with `--speed 60` minutes are told where seconds pass. `program` plays the story's handler; it
    has `patience` seconds for each of its lines. Raises NotAnEmulator where the service is for real VMs.
    """

    def __init__(
        self,
        api: ApiClient,
        *,
        wanted: Wanted = USUAL,
        speed: float = 1.0,
        program: Program | None = None,
        patience: float = PATIENCE,
    ) -> None:
        _check_emulator(api)
        clock = _on_the_second(api)
        self._wanted, self._policy = wanted, USUAL.policy
        self._is_exact = clock.manual and speed == 1
        self._bell = Bell(api)
        names = Names(clock.now - BEGINNING / speed, speed=speed, grain=None if self._is_exact else SECOND)
        self.world = LiveWorld(api, names)
        self._casting = Casting(program, patience, self.world, self._bell)
        self._speed = speed
        self._time: LiveTime = (
            MovedTime(api, self._bell, self._casting.keep_up)
            if clock.manual
            else AwaitedTime(api, self._bell, self._scopes)
        )
        self._heard = Heard()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bell.close()
        self.world.clean_up()

    @property
    def handler(self) -> v1.Vm | None:
        """The VM that the story has named as its handler."""
        return self._casting.handler

    def cancel(self) -> None:
        """Let the story end, from whichever thread, with Cancelled."""
        self._bell.cancel()

    def agrees(self, told: Sequence[str], expected: Sequence[str]) -> bool:
        """Tell whether this followed as the story says: to the second, but for its times, or as far as it is known."""
        if self._casting.is_on:
            return agree_as_far_as_known(told, expected)
        return agree(told, expected) if self._is_exact else agree_but_for_times(told, expected)

    def longest_wait(self, command: say.Command, at: timedelta | None) -> timedelta:
        """Return for how long the clock may have to be waited for; one that can be moved is not waited for."""
        if isinstance(self._time, MovedTime):
            return NO_TIME
        until_then = NO_TIME if at is None else self._until(self.world.names.moment(at))
        match command:
            case say.Wait(time=time) | say.Expect(within=time):
                return until_then + time / self._speed
            case say.Tick(time=timedelta() as time):
                return self._until(self.world.names.moment(time))
            case _:
                return until_then

    def perform(self, command: say.Command, at: timedelta | None) -> Told:
        """Have it done by the service, and tell what followed."""
        self._bell.check()
        self.world.speaker = _speaker(command)
        facts = [] if at is None else self._pass_until(self.world.names.moment(at))
        if isinstance(command, say.Expect):
            self._heard.add(facts)
            grace = NO_TIME if command.subject == say.NOTHING else self._time.grace
            return self._heard.expect(command, self._pass_on, limit=self._in(command.within) + grace)
        is_left = self._casting.plays(command)
        facts += self._left(command) if is_left else self._done(command)
        self._hear(facts)
        return Told(tuple(facts), judged=not is_left and not self._casting.may_have_changed(command))

    def _hear(self, facts: list[str]) -> None:
        """Take note of what has happened. What a program does may have happened before the story expects it."""
        if self._casting.is_on:
            self._heard.add(facts)
        else:
            self._heard.begin(facts)

    def _left(self, command: say.Command) -> list[str]:
        facts = self._casting.leave(command)
        self._time.settle()
        return facts + self.world.tell(untold=(EntryKind.ENABLED,))

    def _done(self, command: say.Command) -> list[str]:
        try:
            named = [self.world.find(vm).name for vm in _named(command)]
            own = self._act(command)
        except (CoreError, RequestRefused) as refusal:
            facts = self.world.tell(untold=(EntryKind.ENABLED,))
            return [*facts, f"{REFUSED}{refusal.code}: {self.world.plain(str(refusal))}"]
        self._time.settle()
        facts = self.world.tell(named, untold=() if isinstance(command, say.Query) else (EntryKind.ENABLED,))
        return facts or own if isinstance(command, ASKING) else [*own, *facts]

    def _act(self, command: say.Command) -> list[str]:
        match command:
            case say.SetPolicy():
                self._check_policy(command)
            case say.UsePlatform():
                if command.lasting != self._wanted.lasting:
                    raise Unplayable("the service decides how long work takes: set simulated.…", "lasting")
            case say.Handler():
                self._casting.name(self.world.find(command.vm))
            case say.Wait():
                return self._pass_until(self._in(command.time))
            case say.Tick():
                return [] if command.time is None else self._pass_until(self.world.names.moment(command.time))
            case _:
                return act(command, self.world)
        return []

    def _check_policy(self, command: say.SetPolicy) -> None:
        self._policy = changed(self._policy, command)
        if self._policy != self._wanted.policy:
            problem = (
                "the service keeps the policy it has: say this at the beginning, and have a service started for it"
            )
            raise Unplayable(problem, "policy")

    # Time.

    def _in(self, time: timedelta) -> datetime:
        return self._time.now() + time / self._speed

    def _until(self, moment: datetime) -> timedelta:
        return max(moment - self._time.now(), NO_TIME)

    def _pass_until(self, moment: datetime) -> list[str]:
        if moment < self._time.now():
            if not self._is_exact:
                return []
            raise Unplayable("the clock of a service does not go back", "at")
        while self._time.pass_on(moment):
            pass
        self._time.settle()
        return self.world.tell(untold=(EntryKind.ENABLED,))

    def _pass_on(self, limit: datetime) -> list[str] | None:
        has_changed = self._time.pass_on(limit)
        facts = self.world.tell(untold=(EntryKind.ENABLED,))
        return facts if has_changed or facts else None

    def _scopes(self) -> list[str]:
        return [place.id for place in self.world.places.values()]


def _check_emulator(api: ApiClient) -> None:
    """Only emulators have faults."""
    try:
        api.faults()
    except RequestRefused as refusal:
        if refusal.code == IN_PRODUCTION:
            raise NotAnEmulator(api.url) from None
        raise


def _on_the_second(api: ApiClient) -> v1.Clock:
    """Begin with a whole second, as notices do, where the clock can be moved to one."""
    clock = api.clock()
    past = timedelta(microseconds=clock.now.microsecond)
    return api.advance(format_duration(SECOND - past)) if clock.manual and past else clock


ASKING = (say.Schedule, say.Restart, say.Redeploy, say.Delete, say.Evict, say.Fail, say.Predict)
"""The commands that make events. If these are known already, that is all there is to tell."""


def _named(command: say.Command) -> Sequence[str]:
    """Return the VMs whose events need not name them again."""
    match command:
        case say.Schedule(vms=vms) | say.Fail(vms=vms) | say.Predict(vms=vms):
            return vms
        case say.Restart(vm=vm) | say.Redeploy(vm=vm) | say.Delete(vm=vm) | say.Evict(vm=vm):
            return (vm,)
        case _:
            return ()


def _speaker(command: say.Command) -> str:
    match command:
        case say.Restart() | say.Redeploy() | say.Delete():
            return say.USER
        case say.Evict() | say.Fail() | say.Predict():
            return "platform"
        case say.Approve(through=str() as through):
            return through
        case _:
            return str(getattr(command, "by", say.OPERATOR))
