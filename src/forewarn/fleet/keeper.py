"""The keeper of the ledger: its newest value, what holds outside every scope because of it, and changing it."""

import asyncio
from collections.abc import Callable

import msgspec

from forewarn.core.policy import Policy, RuleContext
from forewarn.fleet.ledger import LEDGER, Ledger, decode, encode
from forewarn.fleet.queue import Decision, Queues, Shelf
from forewarn.store.port import Kind, Record, Store


class LedgerKeeper:
    """Keeps the ledger in memory as it was last saved. `on_hold` is called when the hold on the fleet has changed."""

    def __init__(self, store: Store, tasks: asyncio.TaskGroup, policy: Policy, on_hold: Callable[[], None]) -> None:
        self.ledger = Ledger()
        self.conditions = RuleContext(policy=policy)
        self._revision: int | None = None
        self._on_hold = on_hold
        self._queues = Queues(store, tasks, Shelf(Kind.FLEET, self._newest, self._keep, encode, decode))

    @property
    def busy(self) -> int:
        """How much is being saved."""
        return self._queues.busy

    async def apply(self, rule: Callable[[Ledger], Decision[Ledger, None]]) -> None:
        """Apply a rule to the ledger and save it."""
        await self._queues.apply(LEDGER.id, lambda ledger: rule(ledger or Ledger()))

    def use(self, policy: Policy) -> None:
        """Let another policy hold from now on."""
        self.conditions = msgspec.structs.replace(self.conditions, policy=policy)

    def take(self, record: Record) -> None:
        """Take what the store gives, unless it is known already."""
        if self._revision is None or record.revision > self._revision:
            self._keep(LEDGER.id, decode(record.value), record.revision)

    def _newest(self, _: str) -> tuple[Ledger | None, int | None]:
        return (None, None) if self._revision is None else (self.ledger, self._revision)

    def _keep(self, _: str, ledger: Ledger | None, revision: int) -> None:
        if ledger is None or (self._revision is not None and revision <= self._revision):
            return
        is_new_hold = ledger.held != self.ledger.held
        self.ledger, self._revision = ledger, revision
        self.conditions = RuleContext(policy=self.conditions.policy, hold=ledger.held, outages=ledger.outages)
        if is_new_hold:
            self._on_hold()
