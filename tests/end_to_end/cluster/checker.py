"""The checker: finds out from the history of a run what must never happen. It is pure.

The journal is the witness of the order in which changes of a record took effect. The checker compares it with what
clients were told, what guests saw, and what the platform did.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import groupby, pairwise

from tests.end_to_end.cluster.history import (
    FinalState,
    History,
    Line,
    Operation,
    OperationKind,
    Outcome,
    Work,
)

CLOCK_TOLERANCE = 5.0
"""By how many seconds the clock of a node that starts events may be wrong."""

FLEET = "fleet"
FLEET_HOLD = "fleet/hold"

WITNESS = {
    OperationKind.SCHEDULE: "scheduled",
    OperationKind.CANCEL: "canceled",
    OperationKind.HOLD: "held",
    OperationKind.RELEASE: "released",
    OperationKind.ADD_VM: "vm-added",
    OperationKind.REMOVE_VM: "vm-removed",
    OperationKind.APPROVE: "approved",
    OperationKind.CREATE_TOKEN: "token-created",
    OperationKind.START_CAMPAIGN: "campaign-started",
    OperationKind.PAUSE_CAMPAIGN: "campaign-paused",
    OperationKind.RESUME_CAMPAIGN: "campaign-resumed",
    OperationKind.ABORT_CAMPAIGN: "campaign-aborted",
}
"""The line of the journal that each kind of operation leaves."""

WITHOUT_REASON = {OperationKind.ADD_VM, OperationKind.APPROVE, OperationKind.CREATE_TOKEN}
"""Operations whose line has no reason, and is found by its VM, event or name."""

EVENT_ORDER = {
    "scheduled": 0,
    "announced": 1,
    "approved": 1,
    "shrunk": 1,
    "started": 2,
    "impact-begun": 3,
    "impact-retry": 3,
    "impact-done": 3,
    "impact-failed": 3,
    "impact-unknown": 3,
    "impact-retried": 3,
    "impact-given-up": 3,
    "completed": 4,
    "failed": 4,
    "canceled": 4,
}
"""The phases of an event: they never go back, and nothing follows the last one."""

ENDS = frozenset({"completed", "failed", "canceled"})


def record_of(operation: Operation) -> str:
    """Return the record that an operation changes."""
    match operation.kind:
        case OperationKind.HOLD | OperationKind.RELEASE | OperationKind.READ_HOLD if operation.target == FLEET:
            return FLEET_HOLD
        case OperationKind.CREATE_TOKEN:
            return f"token {operation.target}"
        case (
            OperationKind.START_CAMPAIGN
            | OperationKind.PAUSE_CAMPAIGN
            | OperationKind.RESUME_CAMPAIGN
            | OperationKind.ABORT_CAMPAIGN
        ):
            return f"campaign {operation.target}"
        case _:
            return f"scope/{operation.target}"


class Index:
    """The journal by what it is searched for."""

    def __init__(self, history: History) -> None:
        self.lines = sorted(history.journal, key=lambda line: line.position)
        self.by_reason: dict[tuple[str, str], list[Line]] = defaultdict(list)
        self.by_event: dict[str, list[Line]] = defaultdict(list)
        self.added: dict[tuple[str, str], list[Line]] = defaultdict(list)
        self.approved: dict[tuple[str, str], list[Line]] = defaultdict(list)
        self.tokens: dict[str, list[Line]] = defaultdict(list)
        for line in self.lines:
            self.by_reason[line.action, line.reason].append(line)
            if line.event:
                self.by_event[line.event].append(line)
            if line.action == "vm-added":
                for vm in line.vms:
                    self.added[line.record, vm].append(line)
            elif line.action == "approved":
                self.approved[line.event, line.actor].append(line)
            elif line.action == "token-created":
                self.tokens[line.facts.get("name", "")].append(line)

    def witnesses(self, operation: Operation) -> list[Line]:
        """Return the lines that an operation left in the journal."""
        match operation.kind:
            case OperationKind.ADD_VM:
                return self.added[record_of(operation), operation.vm]
            case OperationKind.APPROVE:
                return self.approved[operation.event, f"vm:{operation.vm}"]
            case OperationKind.CREATE_TOKEN:
                return self.tokens[operation.target]
            case _:
                return self.by_reason[WITNESS[operation.kind], operation.key]


def is_change(operation: Operation) -> bool:
    """Return whether the operation has a witness in the journal."""
    return operation.kind in WITNESS


def check_saved(history: History) -> Iterator[str]:
    """No acknowledged change is lost, and nothing was refused that happened."""
    index = Index(history)
    for operation in filter(is_change, history.operations):
        found = index.witnesses(operation)
        if operation.outcome is Outcome.SAVED and not found and not _was_needless(operation, index, history):
            yield f"{operation.kind} {operation.key} of {operation.target} was acknowledged, and is not in the journal"
        is_own = operation.kind not in WITHOUT_REASON or not _was_done_by_another(operation, history)
        if operation.outcome is Outcome.REFUSED and found and is_own:
            yield f"{operation.kind} {operation.key} was refused ({operation.code}), and is in the journal"
    yield from _check_tags(history)
    yield from _check_tokens(history, index)


def _was_done_by_another(operation: Operation, history: History) -> bool:
    """Return whether another operation may have left the line that has no reason."""
    return any(
        other.key != operation.key
        and (other.kind, other.target, other.vm, other.event)
        == (operation.kind, operation.target, operation.vm, operation.event)
        and other.outcome is not Outcome.REFUSED
        for other in history.operations
    )


def _was_needless(operation: Operation, index: Index, history: History) -> bool:
    """Return whether an acknowledged operation had nothing to change: it repeats what another one did."""
    match operation.kind:
        case OperationKind.APPROVE:
            lines = index.by_event[operation.event]
            return any(line.action in ("approved", "started", *ENDS) for line in lines)
        case OperationKind.RELEASE:
            # Another release was first, or nothing was held.
            return not any(
                other.kind is OperationKind.HOLD
                and other.target == operation.target
                and other.outcome is Outcome.SAVED
                and other.ended_at < operation.begun_at
                and not _has_release_between(history, other, operation)
                for other in history.operations
            )
        case _:
            return False


def _has_release_between(history: History, hold: Operation, release: Operation) -> bool:
    return any(
        other.kind is OperationKind.RELEASE
        and other.key != release.key
        and other.target == hold.target
        and other.outcome is not Outcome.REFUSED
        and other.ended_at > hold.begun_at
        and other.begun_at < release.ended_at
        for other in history.operations
    )


def _check_tags(history: History) -> Iterator[str]:
    """The last value of a VM's tag is that of a change which no acknowledged one followed."""
    writes: dict[str, list[Operation]] = defaultdict(list)
    for operation in history.operations:
        if operation.kind is OperationKind.CHANGE_VM and operation.outcome is not Outcome.REFUSED:
            writes[f"{operation.target}/{operation.vm}"].append(operation)
    for node, final in history.finals.items():
        for vm in final.vms:
            changes, value = writes[vm], final.vms[vm].tag
            own = next((change for change in changes if change.value == value), None)
            known_since = float("-inf") if own is None else own.ended_at
            later = [each for each in changes if each.outcome is Outcome.SAVED and each.begun_at > known_since]
            if own is None and value:
                yield f"{node} shows the tag {value} of {vm}, which was refused or never asked for"
            elif later:
                yield f"{node} shows the tag {value or 'none'} of {vm}, although {later[-1].key} was saved later"


def _check_tokens(history: History, index: Index) -> Iterator[str]:
    created: dict[str, set[str]] = defaultdict(set)
    for operation in history.operations:
        if operation.kind is OperationKind.CREATE_TOKEN and operation.outcome is Outcome.SAVED:
            created[operation.target].add(operation.key)
    for name, keys in created.items():
        if len(keys) > 1 or len(index.tokens[name]) > 1:
            yield f"the token name {name} was given to {', '.join(sorted(keys))}"


def check_keys(history: History) -> Iterator[str]:
    """One key has one effect."""
    index = Index(history)
    for operation in filter(is_change, history.operations):
        if operation.kind is not OperationKind.CREATE_TOKEN and (count := len(index.witnesses(operation))) > 1:
            yield f"{operation.kind} {operation.key} is {count} times in the journal"
    answers: dict[str, set[str]] = defaultdict(set)
    for line in index.lines:
        if line.action == "scheduled" and "campaign" not in line.facts:
            answers[line.reason].add(line.event)
    for operation in history.operations:
        if operation.kind is OperationKind.SCHEDULE and operation.outcome is Outcome.SAVED:
            others = answers[operation.key] - {operation.event}
            if others:
                yield f"schedule {operation.key} was answered with {operation.event}, and has made {sorted(others)}"


def check_order(history: History) -> Iterator[str]:
    """Each record is linearizable: the journal is an order that agrees with the real one and with every answer."""
    index = Index(history)
    by_record: dict[str, list[tuple[int, Operation]]] = defaultdict(list)
    for operation in filter(is_change, history.operations):
        found = index.witnesses(operation)
        if operation.outcome is Outcome.SAVED and len(found) == 1 and operation.kind is not OperationKind.APPROVE:
            by_record[record_of(operation)].append((found[0].position, operation))
    for record, operations in by_record.items():
        ordered = sorted(operations, key=lambda each: each[0])
        latest_begin = float("-inf")
        latest = ""
        for _, operation in ordered:
            if operation.ended_at < latest_begin:
                yield f"{record}: {operation.key} ended before {latest} began, and follows it in the journal"
            if operation.begun_at > latest_begin:
                latest_begin, latest = operation.begun_at, operation.key
    yield from _check_event_order(index)
    yield from _check_reads(history, index)


def _check_event_order(index: Index) -> Iterator[str]:
    for event, lines in index.by_event.items():
        actions = [line.action for line in lines if line.action in EVENT_ORDER]
        for before, after in pairwise(actions):
            if before in ENDS or EVENT_ORDER[after] < EVENT_ORDER[before] or before == after == "started":
                yield f"event {event}: {after} follows {before}"
        if actions and actions[0] not in ("scheduled", "started"):
            yield f"event {event} begins with {actions[0]}"


def _check_reads(history: History, index: Index) -> Iterator[str]:
    """A node shows each hold at least as new as what it has acknowledged or shown before, and never too new.

    A fresh read shows it at least as new as what any node has.
    """
    asked_at = {operation.key: operation.begun_at for operation in history.operations}
    holds: dict[str, list[tuple[int, str, float]]] = defaultdict(list)
    """By record: each position, its value, and when it was asked for."""
    for line in index.lines:
        if line.action in ("held", "released"):
            value = line.reason if line.action == "held" else ""
            holds[line.record].append((line.position, value, asked_at.get(line.reason, float("-inf"))))
    known: dict[tuple[str, str], list[tuple[float, int]]] = defaultdict(list)
    """By node and record: when each position was acknowledged or shown."""
    for operation in history.operations:
        if operation.kind in (OperationKind.HOLD, OperationKind.RELEASE) and operation.outcome is Outcome.SAVED:
            for line in index.witnesses(operation):
                known[operation.node, record_of(operation)].append((operation.ended_at, line.position))
    reads = (each for each in history.operations if each.kind is OperationKind.READ_HOLD)
    for read in sorted(reads, key=lambda each: each.ended_at):
        record = record_of(read)
        seen = known[read.node, record]
        nodes = {node for node, _ in known} if read.is_fresh else {read.node}
        least = max(
            (position for node in nodes for at, position in known[node, record] if at < read.begun_at), default=0
        )
        possible = [
            position
            for position, value, since in [(0, "", float("-inf")), *holds[record]]
            if position >= least and value == read.value and since <= read.ended_at
        ]
        if possible:
            seen.append((read.ended_at, min(possible)))
        else:
            yield f"{read.node} shows the hold {read.value or 'none'} of {record}, after or before its time"


def check_not_before(history: History) -> Iterator[str]:
    """Nothing begins before `NotBefore` without an approval."""
    index = Index(history)
    approved_at: dict[str, float] = {}
    for operation in history.operations:
        if operation.kind is OperationKind.APPROVE and operation.outcome is not Outcome.REFUSED:
            first = approved_at.get(operation.event, float("inf"))
            approved_at[operation.event] = min(first, operation.begun_at)
    not_before = {
        line.event: datetime.fromisoformat(line.facts["not_before"]).timestamp()
        for line in index.lines
        if line.action == "scheduled"
    }

    def is_early(event: str, at: float) -> bool:
        due_at = not_before.get(event, float("-inf"))
        return at < due_at - CLOCK_TOLERANCE and approved_at.get(event, float("inf")) > at

    for work in history.work:
        if is_early(work.event, work.begun_at):
            yield f"work on {work.scope}/{work.vm} for {work.event} began before its NotBefore, without an approval"
    for document in history.documents:
        for event in document.events:
            if event.status == "Started" and is_early(event.id, document.at):
                yield f"{document.scope}/{document.vm} saw {event.id} Started before its NotBefore, without an approval"


def check_holds(history: History) -> Iterator[str]:
    """No event starts after an acknowledged hold, and no wave after an acknowledged pause."""
    index = Index(history)
    held: set[str] = set()
    paused: set[str] = set()
    campaigns: dict[str, str] = {}
    for line in index.lines:
        match line.action:
            case "held":
                held.add(line.record)
            case "released":
                held.discard(line.record)
            case "campaign-paused" | "campaign-halted" | "campaign-aborted":
                paused.add(line.record)
            case "campaign-resumed":
                paused.discard(line.record)
            case "scheduled":
                campaigns[line.event] = f"campaign/{line.facts.get('campaign', '')}"
            case "started":
                stopped_by = {FLEET_HOLD, line.record} & held or {campaigns.get(line.event, "")} & paused
                if stopped_by:
                    yield f"{line.event} of {line.record} started at {line.position}, while {stopped_by.pop()} was held"
            case _:
                pass


def check_domains(history: History) -> Iterator[str]:
    """The platform never works in two update domains of a scope at once, and guests never see that."""
    by_scope: dict[str, list[Work]] = defaultdict(list)
    for work in history.work:
        by_scope[work.scope].append(work)
    for scope, works in by_scope.items():
        for one, other in _overlaps(works):
            domains = {history.domains[f"{scope}/{work.vm}"] for work in (one, other)}
            if len(domains) > 1:
                yield f"{scope}: work on {one.vm} and {other.vm}, of domains {sorted(domains)}, overlaps"
    for document in history.documents:
        started = {
            history.domains[f"{document.scope}/{vm}"]
            for event in document.events
            if event.status == "Started"
            for vm in event.vms
            if f"{document.scope}/{vm}" in history.domains
        }
        if len(started) > 1:
            yield f"{document.scope}/{document.vm} saw the domains {sorted(started)} Started at once"


def _overlaps(works: Sequence[Work]) -> Iterator[tuple[Work, Work]]:
    """Yield each pair of works that overlap in time. Work without an end lasts for ever."""
    ordered = sorted(works, key=lambda work: work.begun_at)
    for number, one in enumerate(ordered):
        for other in ordered[number + 1 :]:
            if one.ended_at is not None and other.begun_at >= one.ended_at:
                break
            yield one, other


def check_incarnations(history: History) -> Iterator[str]:
    """Incarnations never go back within an epoch on any host, and each one is one document everywhere."""
    latest: dict[tuple[str, str, str, str], int] = {}
    content: dict[tuple[str, str, int], frozenset[tuple[str, str]]] = {}
    for document in history.documents:
        key = document.host, document.scope, document.vm, document.epoch
        if document.incarnation < latest.get(key, 0):
            where = f"{document.scope}/{document.vm} on {document.host}"
            yield f"{where}: incarnation {document.incarnation} after {latest[key]}"
        latest[key] = max(document.incarnation, latest.get(key, 0))
        identity = document.scope, document.epoch, document.incarnation
        events = frozenset((event.id, event.status) for event in document.events)
        if content.setdefault(identity, events) != events:
            yield f"incarnation {document.incarnation} of {document.scope} has two documents"


def check_unique(history: History) -> Iterator[str]:
    """One address is one VM, and so is one id."""
    for node, final in history.finals.items():
        owners: dict[str, list[str]] = defaultdict(list)
        for name, vm in final.vms.items():
            for identity in (*vm.addresses, vm.vm_id):
                owners[identity].append(name)
        for identity, names in owners.items():
            if len(names) > 1:
                yield f"{node}: {identity} belongs to {', '.join(sorted(names))}"
    removed = {
        (operation.target, operation.vm): operation
        for operation in history.operations
        if operation.kind is OperationKind.REMOVE_VM and operation.outcome is not Outcome.REFUSED
    }
    added = [
        operation
        for operation in history.operations
        if operation.kind is OperationKind.ADD_VM and operation.outcome is Outcome.SAVED
    ]
    for (scope, new), keys in _group(added, lambda each: (each.target, each.vm)).items():
        if len(keys) > 1:
            yield f"{scope}/{new} was added by {', '.join(sorted(keys))}"
    for one, other in pairwise(sorted(added, key=lambda each: (each.value, each.ended_at))):
        removal = removed.get((one.target, one.vm))
        if (one.value, one.key) == (other.value, other.key):
            continue  # one request, sent to two nodes at once
        if one.value == other.value and (removal is None or removal.begun_at > other.ended_at):
            yield f"{one.value} was given to {other.vm} while {one.vm} had it"


def _group(
    operations: Sequence[Operation], key: Callable[[Operation], tuple[str, str]]
) -> dict[tuple[str, str], set[str]]:
    """Return the idempotency keys of operations by what they are about."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for operation in operations:
        found[key(operation)].add(operation.key)
    return found


def check_impacts(history: History) -> Iterator[str]:
    """No impact is skipped, and none is repeated unless the program is declared as repeatable."""
    index = Index(history)
    works = Counter((work.event, work.scope, work.vm) for work in history.work)
    for (event, scope, vm), count in works.items():
        if count > 1 and not history.is_repeatable:
            yield f"work on {scope}/{vm} for {event} was done {count} times"
    done = {(work.event, work.vm) for work in history.work if work.ended_at is not None}
    for event, lines in index.by_event.items():
        actions = {line.action: line for line in lines}
        worked = {work.vm for work in history.work if work.event == event}
        if "started" not in actions and worked:
            yield f"event {event} has not started, and there was work on {sorted(worked)}"
        settled = {vm for line in lines if line.action == "impact-done" for vm in line.vms}
        removed = {vm for line in lines if line.action in ("shrunk", "impact-given-up") for vm in line.vms}
        if "completed" in actions:
            removed |= _removed_vms(index, actions["completed"].record)
            for vm in set(actions["completed"].vms) - removed:
                if (event, vm) not in done:
                    yield f"event {event} is completed, and there was no work on {vm}"
                elif vm not in settled:
                    yield f"event {event} is completed, and {vm} is not settled"
    for node, final in history.finals.items():
        for event, status in final.open_events.items():
            if status == "Started":
                yield f"{node}: event {event} is still Started at the end"


def _removed_vms(index: Index, record: str) -> set[str]:
    return {vm for line in index.lines if line.record == record and line.action == "vm-removed" for vm in line.vms}


def check_campaigns(history: History) -> Iterator[str]:
    """The limits of each campaign are kept, counted from the platform's log."""
    campaigns = {
        line.event: line.facts["campaign"]
        for line in history.journal
        if line.action == "scheduled" and "campaign" in line.facts
    }
    works = sorted((work for work in history.work if work.event in campaigns), key=lambda work: campaigns[work.event])
    for campaign, group in groupby(works, key=lambda work: campaigns[work.event]):
        limits = history.limits.get(campaign)
        if limits is None:
            continue
        own = list(group)
        for work in own:
            running = [
                other
                for other in own
                if other.begun_at <= work.begun_at and (other.ended_at is None or other.ended_at > work.begun_at)
            ]
            scopes = {other.scope for other in running}
            vms = {(other.scope, other.vm) for other in running}
            if len(scopes) > limits.scopes:
                yield f"campaign {campaign} works in {len(scopes)} scopes at once, more than {limits.scopes}"
            if len(vms) > limits.vms:
                yield f"campaign {campaign} works on {len(vms)} VMs at once, more than {limits.vms}"


def check_agreement(history: History) -> Iterator[str]:
    """At the end all control nodes answer the same."""
    finals: list[tuple[str, FinalState]] = sorted(history.finals.items())
    for (one, first), (other, second) in pairwise(finals):
        if first != second:
            yield f"{one} and {other} answer differently: {first} {second}"


def check_purges(history: History) -> Iterator[str]:
    """Only old lines are purged, from the beginning, and an event that has left a document never returns."""
    for node, lines in history.journals.items():
        purged = history.journal[: len(history.journal) - len(lines)]
        if purged + lines != history.journal:
            yield f"{node} does not have the same lines as before, from {lines[0].position if lines else 'the end'} on"
        elif purged and purged[-1].position > history.expired:
            yield f"{node} has purged lines up to {purged[-1].position}, and only those to {history.expired} are old"
    present: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    gone: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for document in history.documents:
        place = document.host, document.scope, document.vm
        events = {event.id for event in document.events}
        gone[place] |= present[place] - events
        present[place] = events
        for event in events & gone[place]:
            yield f"{document.scope}/{document.vm} saw {event} on {document.host} again, after it was gone"


CHECKS: dict[str, Callable[[History], Iterator[str]]] = {
    "saved": check_saved,
    "keys": check_keys,
    "order": check_order,
    "not-before": check_not_before,
    "holds": check_holds,
    "domains": check_domains,
    "incarnations": check_incarnations,
    "unique": check_unique,
    "impacts": check_impacts,
    "campaigns": check_campaigns,
    "agreement": check_agreement,
    "purges": check_purges,
}


def violations(history: History) -> list[str]:
    """Return everything that must not have happened, with the name of the check."""
    return [f"{name}: {text}" for name, check in CHECKS.items() for text in check(history)]
