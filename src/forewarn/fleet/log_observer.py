"""Log observer: writes a line for each saved change that an operator should notice, with its facts.

`docs/reference/log-lines.md` lists the lines. The process that saved a change logs it, so each is logged once.
"""

import logging

from forewarn.core.campaign.record import Campaign
from forewarn.core.event import Event
from forewarn.core.journal import Entry, EntryKind
from forewarn.core.scope import Scope
from forewarn.core.text import count_text
from forewarn.fleet.main_loop import RecordChange

log = logging.getLogger(__name__)

IMPACT_RESULTS = frozenset(
    {EntryKind.IMPACT_DONE, EntryKind.IMPACT_RETRY, EntryKind.IMPACT_FAILED, EntryKind.IMPACT_UNKNOWN}
)

Facts = dict[str, str]


class LogObserver:
    """Logs impacts that failed or have an unknown outcome, lost connections of the platform, campaigns and gates."""

    def __init__(self) -> None:
        self._unavailable: set[str] = set()
        """The hosts on which the platform could not work the last time; empty text: an unknown host."""

    def observe_scope(self, change: RecordChange[Scope]) -> None:
        """Log the results of impacts."""
        for entry in change.entries or ():
            if entry.kind in IMPACT_RESULTS:
                event = _find_event(change, entry)
                facts = _impact_facts(change, entry, event)
                self._log_connection(entry, facts)
                _log_impact(entry, event, facts)

    def observe_campaign(self, change: RecordChange[Campaign]) -> None:
        """Log what a campaign does."""
        campaign = change.after or change.before
        if campaign is not None:
            for entry in change.entries or ():
                _log_campaign(campaign, entry)

    def _log_connection(self, entry: Entry, facts: Facts) -> None:
        """Log the first result by which the platform cannot work on a host, and the first by which it can again."""
        host = facts["host"]
        name = f"host {host}" if host else "a VM of unknown host"
        if "unavailable" in entry.facts:
            if host not in self._unavailable:
                self._unavailable.add(host)
                retries = entry.kind is EntryKind.IMPACT_RETRY
                consequence = f"retrying at {entry.facts['retry_at']}" if retries else "not retrying"
                log.warning("the platform cannot work on %s: %s; %s", name, entry.why, consequence, extra=facts)
        elif host in self._unavailable:
            self._unavailable.discard(host)
            log.info("the platform works on %s again; maintenance there continues", name, extra=facts)


def _find_event(change: RecordChange[Scope], entry: Entry) -> Event | None:
    """Return the event of an entry; the change may have ended it."""
    scopes = [scope for scope in (change.after, change.before) if scope is not None]
    return next((event for scope in scopes for event in scope.events if event.id == entry.event), None)


def _impact_facts(change: RecordChange[Scope], entry: Entry, event: Event | None) -> Facts:
    (vm,) = entry.vms
    known = change.before.roster.find(vm) if change.before is not None else None
    host = (known.host if known is not None else None) or (event.host if event is not None else None)
    return {
        "scope": change.id,
        "vm": vm,
        "host": host or "",
        "event": entry.event or "",
        "event_type": "" if event is None else event.type.value,
        "reason": entry.why,
    }


def _log_impact(entry: Entry, event: Event | None, facts: Facts) -> None:
    work = f"{'the work' if event is None else event.type.value} on {facts['scope']}/{facts['vm']}"
    waits = "its event waits until an operator retries or resolves it"
    if entry.kind is EntryKind.IMPACT_FAILED:
        log.error("%s has failed: %s; %s", work, entry.why, waits, extra=facts)
    elif entry.kind is EntryKind.IMPACT_UNKNOWN:
        log.error("the outcome of %s is unknown: %s; %s", work, entry.why, waits, extra=facts)


def _log_campaign(campaign: Campaign, entry: Entry) -> None:
    facts = {"campaign": campaign.name, "campaign_id": campaign.id, "by": entry.by, "reason": entry.why} | entry.facts
    facts.pop("name", None)  # a name of logging's own, and the same as `campaign`
    name, why = campaign.name, f": {entry.why}" if entry.why else ""
    match entry.kind:
        case EntryKind.CAMPAIGN_STARTED:
            amount = f"{_count(facts, 'wave')} in {_count(facts, 'scope')} with {_count(facts, 'VM')}"
            silent = f", of which {facts['unannounced_vms']} will not hear of it" if "unannounced_vms" in facts else ""
            log.info("campaign %s has started%s; it has %s%s", name, why, amount, silent, extra=facts)
        case EntryKind.CAMPAIGN_HALTED:
            waits = "no further wave starts until an operator resumes or aborts it"
            log.error("campaign %s has halted%s; %s", name, why, waits, extra=facts)
        case EntryKind.CAMPAIGN_ENDED:
            log.info("campaign %s has ended; it is %s", name, facts["state"], extra=facts)
        case EntryKind.GATE_CLOSED:
            waits = f"wave {facts['wave']} of scope {facts['scope']} waits for it"
            log.warning("gate %s of campaign %s has closed%s; %s", facts["gate"], name, why, waits, extra=facts)
        case EntryKind.GATE_OPENED:
            log.info("gate %s of campaign %s is open again; the campaign continues", facts["gate"], name, extra=facts)
        case _:
            pass


def _count(facts: dict[str, str], what: str) -> str:
    return count_text(int(facts[f"{what.lower()}s"]), what)
