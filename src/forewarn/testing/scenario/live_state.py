"""State of a scenario in a running service: its scopes there, and new journal entries as facts."""

import re
from collections.abc import Callable, Iterable, Sequence, Set
from contextlib import suppress
from typing import NamedTuple

import msgspec

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.api.errors import NotFound, RequestRefused
from forewarn.core.errors import ResourceExists, ScopeVmNotFound
from forewarn.core.journal import Entry, EntryKind
from forewarn.testing.scenario import commands
from forewarn.testing.scenario.core_campaigns import GATE
from forewarn.testing.scenario.live_gate import LiveGate
from forewarn.testing.scenario.render import FactRenderer, Names, campaign_order, render_campaign_entry
from forewarn.testing.scenario.runner import InvalidCommand, event_id

HIDDEN_ENTRIES = frozenset({EntryKind.FAULT_SET, EntryKind.FAULT_CLEARED, EntryKind.FAULT_ENDED})
"""Entries that are not shown as facts: commands report faults themselves, and faults end whenever a program polls."""

SCOPE_EXISTS = "scope-exists"
"""The service's error code for a scope name that is in use."""

CLEAN_UP_REASON = "the scenario has ended"

OTHER_NAMES = range(2, 100)
"""Suffixes for a scope whose name is in use in the service: web-2, web-3, …"""


class LiveScope:
    """A scope of the scenario in the service. `id` is its name there, `is_own` whether the scenario created it."""

    def __init__(self, name: str, id_: str, names: Names, *, is_own: bool, incarnation: int = 1) -> None:
        self.name, self.id, self.is_own = name, id_, is_own
        self.renderer = FactRenderer(name, names, incarnation=incarnation)


class LiveCampaign(NamedTuple):
    """A campaign of the scenario in the service: its name in the scenario, its id and its name there."""

    name: str
    id: str
    live_name: str


class LiveState:
    """The part of a service that a scenario uses. `actor` is the actor of the current command."""

    def __init__(self, api: ApiClient, names: Names) -> None:
        self.api, self.names = api, names
        self.scopes: dict[str, LiveScope] = {}
        self.faults: list[str] = []
        """The ids of the faults that the scenario has set."""
        self.campaigns: dict[str, LiveCampaign] = {}
        self.gate = LiveGate()
        self.holds_all = False
        self.holders: dict[str, str] = {}
        """The actors of the scenario's holds, by reason."""
        self.actor = commands.OPERATOR
        self._own_name = api.me().name
        self._pending_facts: list[str] = []
        newest = next(api.journal(newest_first=True), None)
        self._read_until = 0 if newest is None else newest.position

    # Scopes and campaigns.

    def add(self, request: v1.AddScope) -> None:
        """Add a scope of the scenario; if its name is in use in the service, it gets another name there."""
        if request.id in self.scopes:
            raise ResourceExists(f"scope {request.id}")
        for id_ in (request.id, *(f"{request.id}-{n}" for n in OTHER_NAMES)):
            try:
                self.api.add_scope(msgspec.structs.replace(request, id=id_))
            except RequestRefused as refusal:
                if refusal.code != SCOPE_EXISTS:
                    raise
            else:
                self.scopes[request.id] = LiveScope(request.id, id_, self.names, is_own=True)
                return
        raise InvalidCommand("the name of this scope, and every name tried instead of it, is in use", request.id)

    def adopt(self, scope: v1.Scope) -> None:
        """Use an existing scope of the service in the scenario."""
        self.scopes[scope.id] = LiveScope(scope.id, scope.id, self.names, is_own=False, incarnation=scope.incarnation)

    def scope(self, name: str) -> str:
        """Return the id of a scope of the scenario in the service."""
        if name not in self.scopes:
            raise InvalidCommand("unknown scope", name)
        return self.scopes[name].id

    def newest_scope(self) -> str:
        """Return the id of the scope that was created last."""
        if not self.scopes:
            raise InvalidCommand("no scope defined yet: start with `scope NAME KIND`", "")
        return list(self.scopes.values())[-1].id

    def find(self, name: str) -> v1.Vm:
        """Return a VM of the scenario, given as `scope/name` or, if that is unambiguous, as `name`."""
        scope, slash, bare = name.rpartition("/")
        if slash:
            self.scope(scope)
        scopes = [self.scopes[scope]] if slash else list(self.scopes.values())
        if not scopes:
            self.newest_scope()
        found = [vm for scope in scopes for vm in self._vms(scope) if vm.name.casefold() == bare.casefold()]
        if len(found) > 1:
            raise InvalidCommand("several scopes have a VM of this name; write scope/name", name)
        if not found:
            raise ScopeVmNotFound(bare, scopes[-1].name)
        return found[0]

    def _vms(self, scope: LiveScope) -> list[v1.Vm]:
        try:
            return list(self.api.vms(scope=scope.id))
        except NotFound:
            return []

    def event(self, name: str) -> str:
        """Return the id of an event, given by its label or its id."""
        return event_id(name, self.names)

    def start_campaign(self, name: str, request: Callable[[str], v1.StartCampaign]) -> None:
        """Start a campaign; if its name is in use in the service, it gets another name there."""
        known = self.campaigns.get(name)
        names = (known.live_name,) if known is not None else (name, *(f"{name}-{n}" for n in OTHER_NAMES))
        taken = {campaign.name.casefold() for campaign in self.api.campaigns(only_open=True)}
        free = [other for other in names if known is not None or other.casefold() not in taken]
        started = self.api.start_campaign(request(free[0]))
        self.campaigns[name] = LiveCampaign(name, started.id, started.name)

    def campaign(self, name: str) -> str:
        """Return the id of a campaign of the scenario in the service."""
        if name not in self.campaigns:
            raise InvalidCommand("unknown campaign", name)
        return self.campaigns[name].id

    def clear_faults(self) -> None:
        """Clear the faults of the scenario; some may already have ended."""
        while self.faults:
            with suppress(NotFound):
                self.api.clear_fault(self.faults.pop())

    def clean_up(self) -> None:
        """Remove everything that the scenario created."""
        self.clear_faults()
        for campaign in self.campaigns.values():
            with suppress(RequestRefused):
                self.api.abort_campaign(campaign.id, v1.AbortCampaign(reason=CLEAN_UP_REASON))
        self.gate.close()
        if self.holds_all:
            self.api.release(v1.ReleaseHold(reason=CLEAN_UP_REASON))
        for scope in self.scopes.values():
            if scope.is_own:
                with suppress(NotFound):
                    self.api.remove_scope(scope.id, force=True, reason=CLEAN_UP_REASON)

    # Journal.

    def new_facts(self, named: Sequence[str] = (), *, hidden: Iterable[EntryKind] = ()) -> list[str]:
        """Return new journal entries as facts, without the VMs that the command itself `named`."""
        pending, self._pending_facts = self._pending_facts, []
        return pending + self._render_new_entries(named, HIDDEN_ENTRIES.union(hidden))

    def read_journal(self) -> None:
        """Read the journal now; the next `new_facts` returns these facts."""
        self._pending_facts += self._render_new_entries((), HIDDEN_ENTRIES | {EntryKind.ENABLED})

    def _render_new_entries(self, named: Sequence[str], hidden: Set[EntryKind]) -> list[str]:
        facts: list[str] = []
        for entry in self._ordered(self._new_entries()):
            if (campaign := self._campaign_of(entry)) is not None:
                facts.append(self.replace_ids(render_campaign_entry(campaign, self._entry(entry), self.names)))
                continue
            scope = next((scope for scope in self.scopes.values() if scope.id == entry.record_id), None)
            if scope is not None and entry.record_kind == "scope":
                rendered = scope.renderer.render([self._entry(entry)], named)
                facts += [self.replace_ids(fact) for fact in rendered if entry.action not in hidden]
                if entry.action is EntryKind.SCOPE_REMOVED:
                    del self.scopes[scope.name]
        return facts

    def _campaign_of(self, entry: v1.JournalEntry) -> str | None:
        """Return the name of the scenario's campaign that an entry is about."""
        if entry.record_kind != "campaign":
            return None
        return next((each.name for each in self.campaigns.values() if each.id == entry.record_id), None)

    def _ordered(self, entries: list[v1.JournalEntry]) -> list[v1.JournalEntry]:
        """Return the entries in the order of their facts: see `campaign_order`."""
        if not self.campaigns:
            return entries
        return sorted(entries, key=lambda entry: campaign_order(entry.record_kind, entry.record_id, self._entry(entry)))

    def replace_ids(self, text: str) -> str:
        """Replace ids, dates, scopes and actors in a text by the scenario's names."""
        text = self.names.replace_ids(text)
        for scope in self.scopes.values():
            if scope.id != scope.name:
                text = re.sub(rf"\bscope {re.escape(scope.id)}(?![\w.-])", f"scope {scope.name}", text)
        for campaign in self.campaigns.values():
            text = text.replace(f"campaign:{campaign.live_name}", f"campaign:{campaign.name}")
        if self.campaigns:
            text = self._without_addresses(text)
        for reason, by in self.holders.items():
            text = text.replace(f"held by {self._own_name}: {reason}", f"held by {by}: {reason}")
        return re.sub(rf"\bby {re.escape(self._own_name)}(?![\w.-])", f"by {self.actor}", text)

    def _without_addresses(self, text: str) -> str:
        """Replace scope ids and the gate's URL in a text about a campaign by the scenario's names."""
        for scope in self.scopes.values():
            if scope.id != scope.name:
                text = re.sub(rf"(?<![\w.-]){re.escape(scope.id)}(?![\w.-])", scope.name, text)
        return text.replace(self.gate.url, GATE).replace(self.gate.origin, "the gate") if self.gate.is_used else text

    def _new_entries(self) -> list[v1.JournalEntry]:
        lines = list(self.api.journal(after=self._read_until))
        if lines:
            self._read_until = lines[-1].position
        return lines

    def _entry(self, entry: v1.JournalEntry) -> Entry:
        return Entry(
            n=entry.position,
            at=entry.at,
            kind=entry.action,
            by=self.actor if entry.actor == self._own_name else entry.actor,
            why=entry.reason,
            event=entry.event,
            vms=tuple(entry.vms),
            incarnation=entry.incarnation,
            facts=entry.facts,
        )
