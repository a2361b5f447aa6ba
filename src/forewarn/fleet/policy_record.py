"""The policy of a cell: a record, so that all control nodes apply the same one.

It overrides `policy.*` of the settings. A fleet in a data directory has no such record, only its settings.
"""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from forewarn.core.journal import Entry, EntryKind
from forewarn.core.policy import Policy
from forewarn.fleet.main_loop import Decision, MainLoop, Observer, RecordCodec, RecordTable
from forewarn.settings.schema import PolicySettings
from forewarn.store.port import RecordKey, RecordKind

POLICY = RecordKey(RecordKind.FLEET, "policy")

FIRST_CHANGE = "taken from the settings"
"""The reason in the journal of the first policy of a cell."""


class CellPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of the record."""

    entries: int = 0
    policy: PolicySettings = PolicySettings()


class PolicyRecord:
    """The last saved policy, and its changes."""

    def __init__(self, main_loop: MainLoop) -> None:
        self._table = RecordTable[CellPolicy]()
        codec = RecordCodec(POLICY.kind, msgspec.json.Encoder().encode, _decode, id=POLICY.id)
        self._loop = main_loop.add(codec, self._table)

    @property
    def current(self) -> PolicySettings | None:
        """The policy; None if the fleet has no such record."""
        value = self._table.newest(POLICY.id)[0]
        return None if value is None else value.policy

    @property
    def observers(self) -> list[Observer[CellPolicy]]:
        """The observers of every change of the policy, in order."""
        return self._loop.observers

    def override(self, policy: Policy) -> Policy:
        """Return a policy with the values of the record, if there is one."""
        current = self.current
        return policy if current is None else msgspec.structs.replace(policy, **msgspec.structs.asdict(current))

    async def create(self, policy: PolicySettings, *, by: str, now: datetime) -> bool:
        """Save the first policy; return False if there is one already."""

        def command(value: CellPolicy | None) -> Decision[CellPolicy, bool]:
            if value is not None:
                return Decision(value, (), False)
            return _save(CellPolicy(), policy, msgspec.structs.asdict(policy), by=by, why=FIRST_CHANGE, now=now)

        return await self._loop.apply(POLICY.id, command)

    async def change(
        self, values: Mapping[str, object], default: PolicySettings, *, by: str, why: str, now: datetime
    ) -> bool:
        """Change some values, of `default` if there is no policy yet; return whether one is different now."""

        def command(value: CellPolicy | None) -> Decision[CellPolicy, bool]:
            known = value or CellPolicy(policy=default)
            policy = msgspec.structs.replace(known.policy, **values)
            if value is not None and policy == known.policy:
                return Decision(value, (), False)
            before, after = (msgspec.structs.asdict(each) for each in (known.policy, policy))
            changed = {key: after[key] for key in after if value is None or after[key] != before[key]}
            return _save(known, policy, changed, by=by, why=why, now=now)

        return await self._loop.apply(POLICY.id, command)


_decode = msgspec.json.Decoder(CellPolicy).decode


def _save(
    known: CellPolicy, policy: PolicySettings, changed: Mapping[str, object], *, by: str, why: str, now: datetime
) -> Decision[CellPolicy, bool]:
    facts = {key: msgspec.json.encode(value).decode().strip('"') for key, value in changed.items()}
    entry = Entry(n=known.entries + 1, at=now, kind=EntryKind.POLICY_CHANGED, by=by, why=why, facts=facts)
    return Decision(CellPolicy(entries=entry.n, policy=policy), (entry,), True)
