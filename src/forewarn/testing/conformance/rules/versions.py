"""Conformance rules for the seven api-versions (section “Versions”)."""

import re
from collections.abc import Iterator, Sequence

from forewarn.core.event import EventType
from forewarn.core.event_type import EVENT_TYPES
from forewarn.testing.conformance.document import CheckSkipped, EventFields, Mismatch, event_id
from forewarn.testing.conformance.evidence import OUR_CHOICE, Evidence, documented, observed
from forewarn.testing.conformance.probe import Probe, query
from forewarn.testing.conformance.rule import Check, Precondition, Rule
from forewarn.testing.conformance.rules.assertions import (
    approval_accepted,
    get_request,
    has_status,
    quoted,
    response_to,
    response_to_approval,
    serves_document,
)
from forewarn.wire.protocol import (
    DESCRIPTION_SINCE,
    DURATION_SINCE,
    NEWEST_VERSION,
    PREVIEW_VERSION,
    SOURCE_SINCE,
    VERSIONS,
)

SECTION = "Versions"

PREEMPT_SINCE = EVENT_TYPES[EventType.PREEMPT].since.value
TERMINATE_SINCE = EVENT_TYPES[EventType.TERMINATE].since.value

ROLE_INSTANCE = re.compile(r".*_IN_\d+")
"""Role instances of cloud services have names like `FrontEnd_IN_0`, by which they differ from other VMs."""

INTRODUCED = {
    PREVIEW_VERSION: "| `2017-03-01` | the first version (D).",
    "2017-08-01": "| `2017-08-01` | no underscore (D)",
    PREEMPT_SINCE: "| `2017-11-01` | events of type `Preempt`; absent in older versions (D) |",
    TERMINATE_SINCE: "| `2019-01-01` | events of type `Terminate`; absent in older versions (D) |",
    DESCRIPTION_SINCE: "| `2019-04-01` | the field `Description`; absent in older versions (D) |",
    SOURCE_SINCE: "| `2019-08-01` | the field `EventSource`; absent in older versions (D) |",
    DURATION_SINCE: "| `2020-07-01` | the field `DurationInSeconds`; absent in older versions (D) |",
}
UNDERSCORE = "Names of VMs begin with an underscore (`_web-0`), except those of role instances of a cloud service (D)."

VERSION_TABLE = documented("events", "Version and region availability")


def _field_since(field: str, first: str) -> Check:
    """Return a check that a field is present from this version on, and absent before."""

    def check(probe: Probe) -> None:
        for version, event in _events_by_version(probe):
            if (field in event) != (version >= first):
                raise Mismatch(f"{field} is {'present' if field in event else 'absent'} in {version}")

    return check


def _hidden_below(type_: EventType) -> Check:
    """Return a check that events of a type are shown from its first version on, and hidden before."""
    first = EVENT_TYPES[type_].since

    def check(probe: Probe) -> None:
        ids = {event_id(event) for event in probe.document().events if event.get("EventType") == type_}
        if not ids:
            raise CheckSkipped(f"the document has no {type_} event")
        for version, document in probe.documents().items():
            shown = ids & set(map(event_id, document.events))
            if shown != (ids if version >= first else set()):
                raise Mismatch(f"{type_} events are {'shown' if shown else 'hidden'} in {version}")

    return check


def _events_by_version(probe: Probe) -> Iterator[tuple[str, EventFields]]:
    found = [(version, event) for version, document in probe.documents().items() for event in document.events]
    if not found:
        raise CheckSkipped("the document has no event")
    return iter(found)


def _names(probe: Probe, version: str, *, role_instances: bool) -> Iterator[tuple[str, str]]:
    """Yield each affected VM's name in the newest version and in the given one."""
    other = {event_id(event): event for event in probe.document(version).events}
    for event in probe.document().events:
        shown = other.get(event_id(event), {}).get("Resources")
        named = event.get("Resources")
        if not isinstance(shown, list) or not isinstance(named, list) or len(shown) != len(named):
            continue
        for name, name_shown in zip(named, shown, strict=True):
            if isinstance(name, str) and bool(ROLE_INSTANCE.fullmatch(name)) is role_instances:
                yield name, str(name_shown)


def _named_in(version: str, prefix: str, *, role_instances: bool) -> Check:
    def check(probe: Probe) -> None:
        names = list(_names(probe, version, role_instances=role_instances))
        if not names:
            what = "a role instance" if role_instances else "a VM that is not a role instance"
            raise CheckSkipped(f"no event of {what} is shown in {version}")
        for name, shown in names:
            if shown != f"{prefix}{name}":
                raise Mismatch(f"the name {quoted(name)} is {quoted(shown)} in {version}, not {quoted(prefix + name)}")

    return check


def _same_incarnation(probe: Probe) -> None:
    documents = probe.documents()
    shown = {version: len(document.events) for version, document in documents.items()}
    if len(set(shown.values())) < 2:
        raise CheckSkipped("no event is hidden in any version")
    incarnations = {version: document.incarnation for version, document in documents.items()}
    if len(set(map(str, incarnations.values()))) != 1:
        raise Mismatch(
            f"the incarnation is {incarnations[NEWEST_VERSION]} in {NEWEST_VERSION}, "
            f"but differs in other versions: {quoted(incarnations)}"
        )


def _rule(id_: str, rule: str, evidence: Evidence, check: Check, needs: Precondition = Precondition.NOTHING) -> Rule:
    return Rule(id=id_, section=SECTION, text=rule, evidence=evidence, check=check, precondition=needs)


RULES: Sequence[Rule] = (
    *(
        _rule(f"version-{version}", INTRODUCED[version], VERSION_TABLE, serves_document(query(version)))
        for version in VERSIONS
    ),
    _rule(
        "preview-names",
        UNDERSCORE,
        VERSION_TABLE,
        _named_in(PREVIEW_VERSION, "_", role_instances=False),
        Precondition.VM,
    ),
    _rule(
        "preview-role-instances",
        UNDERSCORE,
        documented("events", "Event properties, examples of Resources"),
        _named_in(PREVIEW_VERSION, "", role_instances=True),
        Precondition.ROLE_INSTANCE,
    ),
    _rule(
        "preview-approval-header",
        "An approval needs no `Metadata` header (D)",
        documented("events", "Version and region availability, and the samples of 2017"),
        approval_accepted("preview-without-header"),
        Precondition.APPROVE_ANY,
    ),
    _rule(
        "names",
        INTRODUCED["2017-08-01"],
        VERSION_TABLE,
        _named_in("2017-08-01", "", role_instances=False),
        Precondition.VM,
    ),
    _rule(
        "approval-header",
        "the header is needed on every request (D) |",
        documented("events", "Headers"),
        response_to_approval("no-header", has_status(400)),
        Precondition.APPROVE,
    ),
    _rule(
        "preempt-since",
        INTRODUCED[PREEMPT_SINCE],
        VERSION_TABLE,
        _hidden_below(EventType.PREEMPT),
        Precondition.PREEMPT,
    ),
    _rule(
        "terminate-since",
        INTRODUCED[TERMINATE_SINCE],
        VERSION_TABLE,
        _hidden_below(EventType.TERMINATE),
        Precondition.TERMINATE,
    ),
    _rule(
        "description-since",
        INTRODUCED[DESCRIPTION_SINCE],
        VERSION_TABLE,
        _field_since("Description", DESCRIPTION_SINCE),
        Precondition.EVENT,
    ),
    _rule(
        "source-since",
        INTRODUCED[SOURCE_SINCE],
        VERSION_TABLE,
        _field_since("EventSource", SOURCE_SINCE),
        Precondition.EVENT,
    ),
    _rule(
        "duration-since",
        INTRODUCED[DURATION_SINCE],
        VERSION_TABLE,
        _field_since("DurationInSeconds", DURATION_SINCE),
        Precondition.EVENT,
    ),
    _rule(
        "version-of-approval",
        "A query and an approval of one client may use different versions (C).",
        observed("requests of clients that query and approve with different versions"),
        approval_accepted("other-version"),
        Precondition.APPROVE_ANY,
    ),
    _rule(
        "hidden-events",
        "An event that a version hides still changes the incarnation (O).",
        OUR_CHOICE,
        _same_incarnation,
        Precondition.PREEMPT_OR_TERMINATE,
    ),
    _rule(
        "instance-versions",
        "Forewarn accepts every date from 2017-03-01 to 2025-04-07, the newest known one (O)",
        OUR_CHOICE,
        response_to(get_request("/metadata/instance?api-version=2019-02-28"), has_status(200)),
        Precondition.INSTANCE,
    ),
)
