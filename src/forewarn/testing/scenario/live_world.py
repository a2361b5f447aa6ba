"""What a story knows of the running service in which it takes place: its scopes there, and how its journal is told."""

import re
from collections.abc import Iterable, Sequence, Set
from contextlib import suppress

import msgspec

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.api.errors import NotFound, RequestRefused
from forewarn.core.errors import ResourceExists, ScopeVmNotFound
from forewarn.core.journal import Entry, EntryKind
from forewarn.testing.scenario import commands as say
from forewarn.testing.scenario.stage import Unplayable, event_named
from forewarn.testing.scenario.telling import Names, Teller

UNTOLD = frozenset({EntryKind.FAULT_SET, EntryKind.FAULT_CLEARED, EntryKind.FAULT_ENDED})
"""What commands tell themselves, or what happens whenever a program asks."""

TAKEN = "scope-exists"
"""What the service says where it has a scope of that name."""

OVER = "the story is over"

OTHER_NAMES = range(2, 100)
"""A scope whose name is taken in the service gets another one there: web-2, web-3, …"""


class Place:
    """A scope of the story in the service. `id` is its name there, `is_own` whether the story has brought it along."""

    def __init__(self, name: str, id_: str, names: Names, *, is_own: bool, incarnation: int = 1) -> None:
        self.name, self.id, self.is_own = name, id_, is_own
        self.teller = Teller(name, names, incarnation=incarnation)


class LiveWorld:
    """The part of a service that a story is about. `speaker` is who does what the story is doing."""

    def __init__(self, api: ApiClient, names: Names) -> None:
        self.api, self.names = api, names
        self.places: dict[str, Place] = {}
        self.faults: list[str] = []
        """The ids of those that the story has set."""
        self.holds_all = False
        self.holders: dict[str, str] = {}
        """Who in the story holds something, by the reason."""
        self.speaker = say.OPERATOR
        self._me = api.me().name
        self._kept: list[str] = []
        newest = next(api.history(newest_first=True), None)
        self._read_until = 0 if newest is None else newest.position

    # Its scopes.

    def add(self, ask: v1.AddScope) -> None:
        """Add a scope of the story; where its name is taken by somebody else's, it gets another one there."""
        if ask.id in self.places:
            raise ResourceExists(f"scope {ask.id}")
        for id_ in (ask.id, *(f"{ask.id}-{n}" for n in OTHER_NAMES)):
            try:
                self.api.add_scope(msgspec.structs.replace(ask, id=id_))
            except RequestRefused as refusal:
                if refusal.code != TAKEN:
                    raise
            else:
                self.places[ask.id] = Place(ask.id, id_, self.names, is_own=True)
                return
        raise Unplayable("the service has scopes of this name and many like it", ask.id)

    def adopt(self, scope: v1.Scope) -> None:
        """Let the story be about a scope that the service has."""
        self.places[scope.id] = Place(scope.id, scope.id, self.names, is_own=False, incarnation=scope.incarnation)

    def scope(self, name: str) -> str:
        """Return the id of a scope of the story in the service."""
        if name not in self.places:
            raise Unplayable("there is no such scope", name)
        return self.places[name].id

    def newest_scope(self) -> str:
        """Return the id of the scope that came last."""
        if not self.places:
            raise Unplayable("there is no scope yet: begin with `scope NAME KIND`", "")
        return list(self.places.values())[-1].id

    def find(self, name: str) -> v1.Vm:
        """Return a VM of the story, named as `scope/name` or, where that is unambiguous, as `name`."""
        scope, slash, bare = name.rpartition("/")
        if slash:
            self.scope(scope)
        candidates = [self.places[scope]] if slash else list(self.places.values())
        if not candidates:
            self.newest_scope()
        found = [vm for place in candidates for vm in self._vms(place) if vm.name.casefold() == bare.casefold()]
        if len(found) > 1:
            raise Unplayable("several scopes have such a VM, write scope/name", name)
        if not found:
            raise ScopeVmNotFound(bare, candidates[-1].name)
        return found[0]

    def _vms(self, place: Place) -> list[v1.Vm]:
        try:
            return list(self.api.vms(scope=place.id))
        except NotFound:
            return []

    def event(self, name: str) -> str:
        """Return the id of an event, given by its label or in full."""
        return event_named(name, self.names)

    def clear_faults(self) -> None:
        """End the faults of the story; some may have ended by themselves."""
        while self.faults:
            with suppress(NotFound):
                self.api.clear_fault(self.faults.pop())

    def clean_up(self) -> None:
        """Take away what the story has brought along."""
        self.clear_faults()
        if self.holds_all:
            self.api.release(v1.ReleaseHold(why=OVER))
        for place in self.places.values():
            if place.is_own:
                with suppress(NotFound):
                    self.api.remove_scope(place.id, force=True, why=OVER)

    # Its journal.

    def tell(self, named: Sequence[str] = (), *, untold: Iterable[EntryKind] = ()) -> list[str]:
        """Tell what the journal has got since the last time. VMs that the command has `named` are not named again."""
        kept, self._kept = self._kept, []
        return kept + self._told(named, UNTOLD.union(untold))

    def catch_up(self) -> None:
        """Read the journal now, and tell of it the next time."""
        self._kept += self._told((), UNTOLD | {EntryKind.ENABLED})

    def _told(self, named: Sequence[str], hidden: Set[EntryKind]) -> list[str]:
        facts: list[str] = []
        for line in self._new_lines():
            place = next((place for place in self.places.values() if place.id == line.record), None)
            if place is not None and line.kind == "scope":
                told = place.teller.tell([self._entry(line)], named)
                facts += [self.plain(fact) for fact in told if line.did not in hidden]
                if line.did is EntryKind.SCOPE_REMOVED:
                    del self.places[place.name]
        return facts

    def plain(self, text: str) -> str:
        """Put the story's names for ids, dates, scopes and whoever speaks into a text."""
        text = self.names.plain(text)
        for place in self.places.values():
            if place.id != place.name:
                text = re.sub(rf"\bscope {re.escape(place.id)}(?![\w.-])", f"scope {place.name}", text)
        for reason, by in self.holders.items():
            text = text.replace(f"held by {self._me}: {reason}", f"held by {by}: {reason}")
        return re.sub(rf"\bby {re.escape(self._me)}(?![\w.-])", f"by {self.speaker}", text)

    def _new_lines(self) -> list[v1.JournalEntry]:
        lines = list(self.api.history(after=self._read_until))
        if lines:
            self._read_until = lines[-1].position
        return lines

    def _entry(self, line: v1.JournalEntry) -> Entry:
        return Entry(
            n=line.position,
            at=line.at,
            kind=line.did,
            by=self.speaker if line.by == self._me else line.by,
            why=line.why,
            event=line.event,
            vms=tuple(line.vms),
            incarnation=line.incarnation,
            facts=line.facts,
        )
