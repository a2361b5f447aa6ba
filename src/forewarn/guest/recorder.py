"""Request recorder: keeps the newest exchanges of the VMs that somebody looks at.

It costs nothing while it watches no VM. Requests of a watched VM are parsed and reported one by one; all others are
served from the caches as always.
"""

from collections.abc import Callable

import msgspec

from forewarn.guest.observer import Observed
from forewarn.wire.exchange import Exchange, ExchangeList

MAX_VMS = 16
"""How many VMs are watched at a time; a further one replaces the one that was not looked at for the longest time."""

MAX_EXCHANGES = 100
"""How many exchanges of a VM are kept; equal ones in a row count once."""

MAX_BYTES = 1024 * 1024
"""The limit for the total size of a VM's exchanges."""

RAW_BYTES = 65_536
"""How many bytes of a request, and of a response, are kept."""

WATCH_TICKS = 180
"""After how many seconds without a look the exchanges of a VM are dropped. A hidden page may look once a minute."""


class VmRecord:
    """The newest exchanges of one VM, in order of arrival."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self.version = 0
        self.idle_ticks = 0

    def add(self, new: Exchange) -> None:
        """Add an exchange, or the response to a request that has waited."""
        self.version += 1
        kept = self.exchanges
        at = next((n for n in reversed(range(len(kept))) if kept[n].number == new.number), len(kept))
        if at < len(kept):
            del kept[at]
        before = kept[at - 1] if at else None
        if before is not None and new.status is not None and before.is_equal(new):
            kept[at - 1] = msgspec.structs.replace(new, id=before.id, first_at=before.first_at, count=before.count + 1)
        else:
            kept.insert(at, new)
        while len(kept) > MAX_EXCHANGES or (sum(each.size for each in kept) > MAX_BYTES and len(kept) > 1):
            del kept[0]


class RequestRecorder:
    """The watched VMs and their exchanges. With `keeps_bytes`, for the emulator, exchanges have their raw bytes."""

    def __init__(self, *, keeps_bytes: bool = False) -> None:
        self.keeps_bytes = keeps_bytes
        self._vms: dict[str, VmRecord] = {}
        self.on_change: Callable[[], None] = lambda: None
        """Called when another set of VMs is watched."""

    @property
    def is_active(self) -> bool:
        """Whether any VM is watched."""
        return bool(self._vms)

    def watches(self, vm: str) -> bool:
        """Return whether a VM (`scope/name`) is watched."""
        return vm in self._vms

    def watch(self, vm: str) -> ExchangeList:
        """Return the exchanges of a VM since it is watched; watch it from now on, for as long as somebody looks."""
        record = self._vms.pop(vm, None)
        if record is None:
            record = self._vms[vm] = VmRecord()
            if len(self._vms) > MAX_VMS:
                del self._vms[next(iter(self._vms))]
            self.on_change()
        self._vms[vm] = record  # the last one was looked at most recently
        record.idle_ticks = 0
        return ExchangeList(record.version, tuple(record.exchanges))

    def tick(self) -> None:
        """Note that a second has passed: forget the VMs that were not looked at for a while."""
        for record in self._vms.values():
            record.idle_ticks += 1
        idle = [vm for vm, record in self._vms.items() if record.idle_ticks > WATCH_TICKS]
        for vm in idle:
            del self._vms[vm]
        if idle:
            self.on_change()

    def record(self, seen: Observed, request: bytes = b"", response: bytes = b"") -> None:
        """Keep a request, or its response, if its VM is watched."""
        record = self._vms.get(seen.vm)
        if record is None:
            return
        record.add(
            Exchange(
                id=seen.number,
                number=seen.number,
                first_at=seen.wall,
                at=seen.wall,
                method=seen.method,
                target=seen.target,
                status=seen.status,
                seconds=None if seen.answered_at is None else seen.answered_at - seen.at,
                approved=seen.approved,
                body=seen.body,
                answer=seen.answer,
                raw_request=request[:RAW_BYTES] if self.keeps_bytes else b"",
                raw_answer=response[:RAW_BYTES] if self.keeps_bytes else b"",
            )
        )
