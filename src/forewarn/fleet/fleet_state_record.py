"""The fleet state record: its newest value in memory, the rule context derived from it, and its queue of changes."""

import asyncio
from collections.abc import Callable

import msgspec

from forewarn.core.policy import Policy, RuleContext
from forewarn.fleet.fleet_state import FLEET_STATE, FleetState, decode, encode
from forewarn.fleet.queue import Decision, RecordCodec, RecordQueues
from forewarn.store.port import Record, RecordKind, Store


class FleetStateRecord:
    """Holds the fleet state as it was last saved. `on_hold` is called when the hold on the fleet has changed."""

    def __init__(self, store: Store, tasks: asyncio.TaskGroup, policy: Policy, on_hold: Callable[[], None]) -> None:
        self.state = FleetState()
        self.rule_context = RuleContext(policy=policy)
        self._revision: int | None = None
        self._on_hold = on_hold
        self._queues = RecordQueues(
            store, tasks, RecordCodec(RecordKind.FLEET, self._newest, self._update, encode, decode)
        )

    @property
    def busy(self) -> int:
        """How much is being saved."""
        return self._queues.busy

    async def apply(self, rule: Callable[[FleetState], Decision[FleetState, None]]) -> None:
        """Apply a rule to the fleet state and save it."""
        await self._queues.apply(FLEET_STATE.id, lambda state: rule(state or FleetState()))

    def set_policy(self, policy: Policy) -> None:
        """Let another policy hold from now on."""
        self.rule_context = msgspec.structs.replace(self.rule_context, policy=policy)

    def apply_change(self, record: Record) -> None:
        """Take what the store gives, unless it is known already."""
        if self._revision is None or record.revision > self._revision:
            self._update(FLEET_STATE.id, decode(record.value), record.revision)

    def _newest(self, _: str) -> tuple[FleetState | None, int | None]:
        return (None, None) if self._revision is None else (self.state, self._revision)

    def _update(self, _: str, state: FleetState | None, revision: int) -> None:
        if state is None or (self._revision is not None and revision <= self._revision):
            return
        is_new_hold = state.hold != self.state.hold
        self.state, self._revision = state, revision
        self.rule_context = RuleContext(policy=self.rule_context.policy, hold=state.hold, outages=state.outages)
        if is_new_hold:
            self._on_hold()
