"""Whether this VM approves an event now. Pure; the answer is a value with its reason."""

from datetime import datetime, timedelta
from typing import TypeAlias

import msgspec

from forewarn.agent.settings import By
from forewarn.agent.walk import Walk
from forewarn.client.document import NOTHING, Event, plain
from forewarn.client.leading import is_deputy, is_leader
from forewarn.core.event import EventType, Source


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """When events are approved."""

    by: By = By.LEADER
    user_events_at_once: bool = True
    """What the owner of the VMs asked for does not wait for the other VMs."""
    short_freeze: timedelta = timedelta(seconds=10)
    """A Freeze that is known to take no longer does not wait for the other VMs either; zero: all wait."""
    deputy_after: timedelta = timedelta(seconds=60)
    """How long the deputy waits for the leader, from the moment at which it is ready itself."""
    ask_every: timedelta = timedelta(seconds=5)
    """How often peers that are not ready are asked again."""

    def __post_init__(self) -> None:
        if self.short_freeze < NOTHING or self.deputy_after < NOTHING:
            raise ValueError("short_freeze and deputy_after are not negative")
        if self.ask_every <= NOTHING:
            raise ValueError("ask_every is more than zero")


class Yes(msgspec.Struct, frozen=True):
    """Approve now."""

    why: str


class Ask(msgspec.Struct, frozen=True):
    """Ask these peers first."""

    names: tuple[str, ...]


class NotYet(msgspec.Struct, frozen=True):
    """Not now; look again then, or when something happens."""

    why: str
    until: datetime | None = None


class No(msgspec.Struct, frozen=True):
    """Not as things are: time alone does not change it."""

    why: str


Verdict: TypeAlias = Yes | Ask | NotYet | No


def judge(walk: Walk, *, policy: Policy, peers: frozenset[str], now: datetime) -> Verdict:
    """Tell whether to approve the event of a walk, knowing the addresses of these peers."""
    if not walk.is_scheduled:
        return No("the event is not waiting for anybody")
    if policy.by is By.NEVER:
        return No("this agent never approves; the event starts at its time")
    if walk.is_only_told:
        return No("no rule matches this event, so it is only told")
    if walk.ready_at is None:
        return No("this VM is not ready")
    if (deadline := walk.event.deadline) is not None and now >= deadline:
        return No(_too_late(walk))
    if policy.by is By.EACH:
        return Yes("this VM is ready; every VM approves for itself")
    return _as_leader_or_deputy(walk, walk.ready_at, policy, peers, now)


def is_at_once(event: Event, policy: Policy) -> bool:
    """Tell whether an event does not wait for the other VMs."""
    if event.source == Source.USER:
        return policy.user_events_at_once
    return (
        event.type == EventType.FREEZE
        and event.duration is not None
        and event.duration <= policy.short_freeze != NOTHING
    )


def others(event: Event, me: str) -> tuple[str, ...]:
    """Return the other VMs that are affected."""
    return tuple(name for name in event.resources if plain(name) != plain(me))


def _as_leader_or_deputy(
    walk: Walk, ready_at: datetime, policy: Policy, peers: frozenset[str], now: datetime
) -> Verdict:
    if is_leader(walk.event, walk.me):
        return _for_all(walk, policy, peers, now)
    if not is_deputy(walk.event, walk.me):
        return No(f"{walk.event.resources[0]} approves for all")
    if now < (turn := ready_at + policy.deputy_after):
        return NotYet(f"{walk.event.resources[0]} approves for all; this VM does if that has not happened", turn)
    return _for_all(walk, policy, peers, now)


def _for_all(walk: Walk, policy: Policy, peers: frozenset[str], now: datetime) -> Verdict:
    names = others(walk.event, walk.me)
    if not names:
        return Yes("this VM is ready, and no other is affected")
    if is_at_once(walk.event, policy):
        return Yes("this VM is ready, and such events do not wait for the others")
    if not peers:
        return No(
            f"other VMs are affected ({', '.join(names)}), and no peers are configured to ask whether they are ready"
        )
    if unknown := [name for name in names if plain(name) not in peers]:
        return No(f"other VMs are affected whose agents have no address here: {', '.join(unknown)}")
    return _by_word_of_peers(walk, names, policy, now)


def _by_word_of_peers(walk: Walk, names: tuple[str, ...], policy: Policy, now: datetime) -> Verdict:
    if walk.is_asking_peers:
        return NotYet("the other VMs are being asked")
    if walk.peers_asked_at is None:
        return Ask(names)
    if not (waiting := _not_ready(walk, names)):
        return Yes("all VMs that are affected are ready")
    if now >= (again_at := walk.peers_asked_at + policy.ask_every):
        return Ask(names)
    return NotYet(f"not ready: {waiting}", again_at)


def _not_ready(walk: Walk, names: tuple[str, ...]) -> str:
    words = {plain(word.name): word for word in walk.peers}
    missing = ((name, words.get(plain(name))) for name in names)
    return "; ".join(
        f"{name} ({word.why if word else 'not asked'})" for name, word in missing if not (word and word.is_ready)
    )


def _too_late(walk: Walk) -> str:
    if waiting := "; ".join(f"{word.name} ({word.why})" for word in walk.peers if not word.is_ready):
        return f"not all VMs were ready before NotBefore: {waiting}"
    return "NotBefore has passed: the event starts without an approval"
