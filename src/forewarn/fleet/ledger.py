"""The one record that is not a scope's: the hold on the whole fleet, outages, the manual clock, the guests' ports.

The functions are rules like those of `core`: they decide, and whoever calls them saves.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

import msgspec

from forewarn.core.errors import Invalid
from forewarn.core.fault import Fault, fault_facts
from forewarn.core.idempotency import IdempotencyKey, add_seen_key, is_repeated_request
from forewarn.core.journal import Entry, EntryKind
from forewarn.core.limits import MAX_RECORD_BYTES
from forewarn.core.policy import Outage
from forewarn.core.scope import Hold, SeenKey
from forewarn.fleet.queue import Decision
from forewarn.store.port import Key, Kind, Store

LEDGER = Key(Kind.FLEET, "ledger")
OUTAGES = 64
RESERVE = 96 * 1024
"""Room that ports leave for everything else: a hold, a full memory of keys and a start must always be possible."""

SHORTEST_OUTAGE = timedelta(seconds=1)


class Ledger(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the fleet as a whole remembers."""

    entries: int = 0
    filled: bool = False
    held: Hold | None = None
    outages: tuple[Outage, ...] = ()
    alive_at: datetime | None = None
    clock_at: datetime | None = None
    ports: dict[str, int] = {}
    answered: tuple[SeenKey, ...] = ()


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Ledger).decode


async def manual_start(store: Store, *, now: datetime) -> datetime:
    """Return where a manual clock goes on: where it was, and never before what the service has lived through.

    A new one begins with a whole second, as notices do: after the whole of its notice an event is due.
    """
    record = await store.load(LEDGER)
    if record is None:
        return now.replace(microsecond=0)
    ledger = decode(record.value)
    start = ledger.clock_at or now.replace(microsecond=0)
    return max(start, ledger.alive_at or start)


def began(ledger: Ledger, *, now: datetime) -> Decision[Ledger, None]:
    """The service has started: the time since it was last alive was an outage."""
    if ledger.alive_at is None or now - ledger.alive_at <= SHORTEST_OUTAGE:
        return alive(ledger, now=now)
    return missed(ledger, Outage(began_at=ledger.alive_at, ended_at=now))


def missed(ledger: Ledger, outage: Outage) -> Decision[Ledger, None]:
    """The service was not there for a time, and is back."""
    outages = (*ledger.outages, outage)[-OUTAGES:]
    return Decision(msgspec.structs.replace(ledger, outages=outages, alive_at=outage.ended_at), (), None)


def alive(ledger: Ledger, *, now: datetime) -> Decision[Ledger, None]:
    """The service is alive."""
    return Decision(msgspec.structs.replace(ledger, alive_at=now), (), None)


def filled(ledger: Ledger) -> Decision[Ledger, None]:
    """Everything of the first fleet file is saved."""
    return Decision(msgspec.structs.replace(ledger, filled=True), (), None)


def hold(ledger: Ledger, *, by: str, reason: str, now: datetime) -> Decision[Ledger, None]:
    """Let nothing planned start anywhere."""
    if not reason.strip():
        raise Invalid("a hold needs a reason: whoever finds it must know why")
    held = Hold(by=by, at=now, reason=reason)
    return _noted(msgspec.structs.replace(ledger, held=held), EntryKind.HELD, by=by, why=reason, now=now)


def release(ledger: Ledger, *, by: str, why: str, now: datetime) -> Decision[Ledger, None]:
    """End the hold on the whole fleet."""
    if ledger.held is None:
        return Decision(ledger, (), None)
    return _noted(msgspec.structs.replace(ledger, held=None), EntryKind.RELEASED, by=by, why=why, now=now)


def once(
    ledger: Ledger, asked: IdempotencyKey | None, rule: Callable[[Ledger], Decision[Ledger, None]], *, now: datetime
) -> Decision[Ledger, None]:
    """Apply the rule unless this request was answered before."""
    if asked is not None and is_repeated_request(ledger.answered, asked, now=now):
        return Decision(ledger, (), None)
    decision = rule(ledger)
    if asked is None or decision.value is None:
        return decision
    answered = add_seen_key(decision.value.answered, asked, now=now)
    return Decision(msgspec.structs.replace(decision.value, answered=answered), decision.entries, None)


def clock_moved(ledger: Ledger, *, to: datetime, by: str, why: str = "") -> Decision[Ledger, None]:
    """Somebody has the manual clock go to this moment."""
    return _noted(msgspec.structs.replace(ledger, clock_at=to), EntryKind.CLOCK_MOVED, by=by, why=why, now=to)


def clock_passed(ledger: Ledger, *, to: datetime) -> Decision[Ledger, None]:
    """The manual clock goes on to this moment, on a way that the journal has told of."""
    return Decision(msgspec.structs.replace(ledger, clock_at=to), (), None)


def fault_noted(
    ledger: Ledger, did: EntryKind, fault: Fault, *, by: str, why: str, now: datetime
) -> Decision[Ledger, None]:
    """A fault of all VMs was set or cleared, or is over; it is told here, and kept nowhere."""
    return _noted(ledger, did, by=by, why=why, now=now, facts=fault_facts(fault, did))


def ports_given(ledger: Ledger, ports: Mapping[str, int]) -> Decision[Ledger, None]:
    """Give ports to VMs, each for ever."""
    owners = {port: vm for vm, port in ledger.ports.items()}
    for vm, port in ports.items():
        if owners.setdefault(port, vm) != vm:
            raise Invalid(f"port {port} was given to {owners[port]} and is given to no other VM")
        if ledger.ports.get(vm, port) != port:
            raise Invalid(f"{vm} was given port {ledger.ports[vm]} and keeps it")
    given = msgspec.structs.replace(ledger, ports={**ledger.ports, **ports})
    if len(encode(given)) > MAX_RECORD_BYTES - RESERVE:
        raise Invalid(f"{len(given.ports)} ports are more than can be kept: start with --listen none, or anew")
    return Decision(given, (), None)


def _noted(
    ledger: Ledger, did: EntryKind, *, by: str, why: str, now: datetime, facts: dict[str, str] | None = None
) -> Decision[Ledger, None]:
    entry = Entry(n=ledger.entries + 1, at=now, kind=did, by=by, why=why, facts=facts or {})
    return Decision(msgspec.structs.replace(ledger, entries=entry.n), (entry,), None)
