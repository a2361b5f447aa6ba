"""Backend that runs scenarios in a running service, through its operator API and guest endpoints.

With a manual clock, results are exact to the second. With a system clock the scenario waits, and times are not
compared. A program under test can act as the handler; then additional facts are allowed."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.api.errors import RequestRefused
from forewarn.core.base_error import BaseError
from forewarn.core.duration import format_duration
from forewarn.core.errors import CoreError
from forewarn.core.journal import EntryKind
from forewarn.testing.scenario import commands
from forewarn.testing.scenario.core_state import START_TIME
from forewarn.testing.scenario.expect import contains_expected_facts, facts_equal, facts_equal_except_times
from forewarn.testing.scenario.handler_role import DEFAULT_TIMEOUT, HandlerProgram, HandlerRole
from forewarn.testing.scenario.journal_watcher import JournalWatcher
from forewarn.testing.scenario.live_clock import ZERO, LiveClock, ManualLiveClock, SystemLiveClock
from forewarn.testing.scenario.live_commands import run_command
from forewarn.testing.scenario.live_state import LiveState
from forewarn.testing.scenario.matcher import ExpectationMatcher
from forewarn.testing.scenario.render import Names
from forewarn.testing.scenario.runner import REFUSED, CommandResult, InvalidCommand
from forewarn.testing.scenario.setup import DEFAULT_SETUP, ServiceSetup, apply_policy

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
NOT_IN_PRODUCTION = "emulator-only"


class ScenarioNotAllowed(BaseError):
    """The service is for real VMs: its platform would carry out maintenance for the VMs of the scenario."""

    template = "{url} is a service for real VMs; scenarios run only in an emulator (`forewarn up`)"
    url: str


class LiveBackend:
    """Runs one scenario in a running service; at its end, the context manager removes what the scenario created.

    `setup` is the service's policy and duration of work. `speed` is how much faster it is than the scenario: with
    `--speed 60`, seconds of the service are minutes of the scenario. `program` is the handler; it has `timeout`
    seconds for each of its lines. Raises ScenarioNotAllowed if the service is for real VMs.
    """

    def __init__(
        self,
        api: ApiClient,
        *,
        setup: ServiceSetup = DEFAULT_SETUP,
        speed: float = 1.0,
        program: HandlerProgram | None = None,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        _check_emulator(api)
        # A handler reads the system clock, so the service's clock must not move away from it.
        clock = _align_to_minute(api) if program is None else api.clock()
        self._setup, self._policy = setup, DEFAULT_SETUP.policy
        self._is_exact = clock.manual and speed == 1
        self._watcher = JournalWatcher(api)
        names = Names(clock.now - START_TIME / speed, speed=speed, precision=None if self._is_exact else SECOND)
        self.state = LiveState(api, names)
        self._handler_role = HandlerRole(program, timeout, self.state, self._watcher)
        self._speed = speed
        self._clock: LiveClock = (
            ManualLiveClock(api, self._watcher, self._handler_role.catch_up)
            if clock.manual
            else SystemLiveClock(api, self._watcher, self._scopes)
        )
        self._matcher = ExpectationMatcher()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watcher.close()
        self.state.clean_up()

    @property
    def handler(self) -> v1.Vm | None:
        """The VM that the scenario names as its handler."""
        return self._handler_role.handler

    def cancel(self) -> None:
        """End the scenario with Cancelled, from any thread."""
        self._watcher.cancel()

    def matches(self, facts: Sequence[str], expected: Sequence[str]) -> bool:
        """Compare the facts with the expected ones: exactly, without times, or, with a program, as a subset."""
        if self._handler_role.is_active:
            return contains_expected_facts(facts, expected)
        return facts_equal(facts, expected) if self._is_exact else facts_equal_except_times(facts, expected)

    def max_wait(self, command: commands.Command, at: timedelta | None) -> timedelta:
        """Return how long the command may wait for a system clock; zero for a manual clock."""
        if isinstance(self._clock, ManualLiveClock):
            return ZERO
        until_then = ZERO if at is None else self._until(self.state.names.moment(at))
        match command:
            case commands.Wait(time=time) | commands.Expect(within=time):
                return until_then + time / self._speed
            case commands.Tick(time=timedelta() as time):
                return self._until(self.state.names.moment(time))
            case _:
                return until_then

    def execute(self, command: commands.Command, at: timedelta | None) -> CommandResult:
        """Execute the command in the service and return the resulting facts."""
        self._watcher.check()
        self.state.actor = _actor(command)
        facts = [] if at is None else self._advance_to(self.state.names.moment(at))
        if isinstance(command, commands.Expect):
            self._matcher.add(facts)
            grace = ZERO if command.subject == commands.NOTHING else self._clock.grace
            return self._matcher.expect(command, self._advance, limit=self._after(command.within) + grace)
        is_handled = self._handler_role.handles(command)
        facts += self._execute_by_program(command) if is_handled else self._execute(command)
        self._add_facts(facts)
        return CommandResult(
            tuple(facts), is_judged=not is_handled and not self._handler_role.may_have_changed(command)
        )

    def _add_facts(self, facts: list[str]) -> None:
        """Pass the facts to the matcher; with a program, earlier facts stay, because it may act before the `expect`."""
        if self._handler_role.is_active:
            self._matcher.add(facts)
        else:
            self._matcher.reset(facts)

    def _execute_by_program(self, command: commands.Command) -> list[str]:
        facts = self._handler_role.wait_for_program(command)
        self._clock.settle()
        return facts + self.state.new_facts(hidden=(EntryKind.ENABLED,))

    def _execute(self, command: commands.Command) -> list[str]:
        try:
            named = [self.state.find(vm).name for vm in _named_vms(command)]
            own = self._dispatch(command)
        except (CoreError, RequestRefused) as refusal:
            facts = self.state.new_facts(hidden=(EntryKind.ENABLED,))
            return [*facts, f"{REFUSED}{refusal.code}: {self.state.replace_ids(str(refusal))}"]
        self._clock.settle()
        facts = self.state.new_facts(named, hidden=() if isinstance(command, commands.Query) else (EntryKind.ENABLED,))
        return facts or own if isinstance(command, EVENT_COMMANDS) else [*own, *facts]

    def _dispatch(self, command: commands.Command) -> list[str]:
        match command:
            case commands.SetPolicy():
                self._check_policy(command)
            case commands.UsePlatform():
                if command.lasting != self._setup.lasting:
                    raise InvalidCommand("a service's settings decide how long work takes: set simulated.…", "lasting")
            case commands.Handler():
                self._handler_role.assign(self.state.find(command.vm))
            case commands.Wait():
                return self._advance_to(self._after(command.time))
            case commands.Tick():
                return [] if command.time is None else self._advance_to(self.state.names.moment(command.time))
            case _:
                return run_command(command, self.state)
        return []

    def _check_policy(self, command: commands.SetPolicy) -> None:
        self._policy = apply_policy(self._policy, command)
        if self._policy != self._setup.policy:
            problem = (
                "the policy of a running service cannot be changed: move this line to the beginning of the scenario, "
                "and start a service with this policy"
            )
            raise InvalidCommand(problem, "policy")

    # Time.

    def _after(self, time: timedelta) -> datetime:
        return self._clock.now() + time / self._speed

    def _until(self, moment: datetime) -> timedelta:
        return max(moment - self._clock.now(), ZERO)

    def _advance_to(self, moment: datetime) -> list[str]:
        if moment < self._clock.now():
            if not self._is_exact:
                return []
            raise InvalidCommand("the clock of a service cannot go back", "at")
        while self._clock.advance(moment):
            pass
        self._clock.settle()
        return self.state.new_facts(hidden=(EntryKind.ENABLED,))

    def _advance(self, limit: datetime) -> list[str] | None:
        has_changed = self._clock.advance(limit)
        facts = self.state.new_facts(hidden=(EntryKind.ENABLED,))
        return facts if has_changed or facts else None

    def _scopes(self) -> list[str]:
        return [scope.id for scope in self.state.scopes.values()]


def _check_emulator(api: ApiClient) -> None:
    """Raise ScenarioNotAllowed unless the service is an emulator: only emulators have faults."""
    try:
        api.faults()
    except RequestRefused as refusal:
        if refusal.code == NOT_IN_PRODUCTION:
            raise ScenarioNotAllowed(api.url) from None
        raise


def _align_to_minute(api: ApiClient) -> v1.Clock:
    """Advance a manual clock to a whole minute, because windows of campaigns begin at whole minutes."""
    clock = api.clock()
    past = timedelta(seconds=clock.now.second, microseconds=clock.now.microsecond)
    return api.advance(format_duration(MINUTE - past)) if clock.manual and past else clock


EVENT_COMMANDS = (
    commands.Schedule,
    commands.Restart,
    commands.Redeploy,
    commands.Delete,
    commands.Evict,
    commands.Fail,
    commands.Predict,
)
"""The commands that create events. If the events are known already, that is the only fact."""


def _named_vms(command: commands.Command) -> Sequence[str]:
    """Return the VMs that the facts of this command need not name again."""
    match command:
        case commands.Schedule(vms=vms) | commands.Fail(vms=vms) | commands.Predict(vms=vms):
            return vms
        case commands.Restart(vm=vm) | commands.Redeploy(vm=vm) | commands.Delete(vm=vm) | commands.Evict(vm=vm):
            return (vm,)
        case _:
            return ()


def _actor(command: commands.Command) -> str:
    match command:
        case commands.Restart() | commands.Redeploy() | commands.Delete():
            return commands.USER
        case commands.Evict() | commands.Fail() | commands.Predict():
            return "platform"
        case commands.Approve(through=str() as through):
            return through
        case _:
            return str(getattr(command, "by", commands.OPERATOR))
