"""The seven api-versions, and what each of them brought (section “Versions”)."""

import re
from collections.abc import Iterator, Sequence

from forewarn.testing.conformance.document import Entry, NotChecked, Otherwise, id_of
from forewarn.testing.conformance.row import Check, Needs, Row
from forewarn.testing.conformance.rows.checks import (
    accepted,
    answered,
    get,
    is_refused_without_header,
    posted,
    quoted,
    served,
    status,
)
from forewarn.testing.conformance.seen import Seen, query
from forewarn.wire.protocol import (
    DESCRIPTION_SINCE,
    DURATION_SINCE,
    NEWEST_VERSION,
    PREEMPT_SINCE,
    PREVIEW_VERSION,
    SOURCE_SINCE,
    TERMINATE_SINCE,
    VERSIONS,
)

SECTION = "Versions"

ROLE_INSTANCE = re.compile(r".*_IN_\d+")
"""Role instances of cloud services are called like `FrontEnd_IN_0`; that is how they can be told from other VMs."""

BROUGHT = {
    PREVIEW_VERSION: "| `2017-03-01` | the first one.",
    "2017-08-01": "| `2017-08-01` | no underscore; the header is needed on every request |",
    PREEMPT_SINCE: "| `2017-11-01` | events of type `Preempt`; below, they are absent |",
    TERMINATE_SINCE: "| `2019-01-01` | events of type `Terminate`; below, they are absent |",
    DESCRIPTION_SINCE: "| `2019-04-01` | the field `Description`; below, it is absent |",
    SOURCE_SINCE: "| `2019-08-01` | the field `EventSource`; below, it is absent |",
    DURATION_SINCE: "| `2020-07-01` | the field `DurationInSeconds`; below, it is absent |",
}
UNDERSCORE = "Names of VMs begin with an underscore (`_web-0`), those of role instances of a cloud service do not."


def _since(field: str, first: str) -> Check:
    """Check that a field is there from a version on, and not before."""

    def check(seen: Seen) -> None:
        for version, event in _events_by_version(seen):
            if (field in event) != (version >= first):
                raise Otherwise(f"{field} is {'there' if field in event else 'absent'} in {version}")

    return check


def _hidden_below(type_: str, first: str) -> Check:
    """Check that events of a type are shown from a version on, and not before."""

    def check(seen: Seen) -> None:
        ids = {id_of(event) for event in seen.document().events if event.get("EventType") == type_}
        if not ids:
            raise NotChecked(f"there is no {type_} event")
        for version, document in seen.documents().items():
            shown = ids & set(map(id_of, document.events))
            if shown != (ids if version >= first else set()):
                raise Otherwise(f"{type_} events are {'shown' if shown else 'hidden'} in {version}")

    return check


def _events_by_version(seen: Seen) -> Iterator[tuple[str, Entry]]:
    found = [(version, event) for version, document in seen.documents().items() for event in document.events]
    if not found:
        raise NotChecked("there is no event")
    return iter(found)


def _names(seen: Seen, version: str, *, role_instances: bool) -> Iterator[tuple[str, str]]:
    """Give each affected VM's name in the newest version, and in another one."""
    other = {id_of(event): event for event in seen.document(version).events}
    for event in seen.document().events:
        shown = other.get(id_of(event), {}).get("Resources")
        named = event.get("Resources")
        if not isinstance(shown, list) or not isinstance(named, list) or len(shown) != len(named):
            continue
        for name, name_shown in zip(named, shown, strict=True):
            if isinstance(name, str) and bool(ROLE_INSTANCE.fullmatch(name)) is role_instances:
                yield name, str(name_shown)


def _named_in(version: str, prefix: str, *, role_instances: bool) -> Check:
    def check(seen: Seen) -> None:
        names = list(_names(seen, version, role_instances=role_instances))
        if not names:
            what = "a role instance" if role_instances else "a VM that is no role instance"
            raise NotChecked(f"there is no event of {what}, seen in {version} too")
        for name, shown in names:
            if shown != f"{prefix}{name}":
                raise Otherwise(f"{quoted(name)} is called {quoted(shown)} in {version}")

    return check


def _same_incarnation(seen: Seen) -> None:
    documents = seen.documents()
    shown = {version: len(document.events) for version, document in documents.items()}
    if len(set(shown.values())) < 2:
        raise NotChecked("no event is hidden in any version")
    told = {version: document.incarnation for version, document in documents.items()}
    if len(set(map(str, told.values()))) != 1:
        raise Otherwise(f"the incarnation is {told[NEWEST_VERSION]} in {NEWEST_VERSION}, and elsewhere {quoted(told)}")


ROWS: Sequence[Row] = (
    *(
        Row(id=f"version-{version}", section=SECTION, rule=BROUGHT[version], check=served(query(version)))
        for version in VERSIONS
    ),
    Row(
        id="preview-names",
        section=SECTION,
        rule=UNDERSCORE,
        check=_named_in(PREVIEW_VERSION, "_", role_instances=False),
        needs=Needs.VM,
    ),
    Row(
        id="preview-role-instances",
        section=SECTION,
        rule=UNDERSCORE,
        check=_named_in(PREVIEW_VERSION, "", role_instances=True),
        needs=Needs.ROLE_INSTANCE,
    ),
    Row(
        id="preview-approval-header",
        section=SECTION,
        rule="An approval needs no `Metadata` header",
        check=accepted("preview-without-header"),
        needs=Needs.KNOWN,
    ),
    Row(
        id="names",
        section=SECTION,
        rule=BROUGHT["2017-08-01"],
        check=_named_in("2017-08-01", "", role_instances=False),
        needs=Needs.VM,
    ),
    Row(
        id="approval-header",
        section=SECTION,
        rule=BROUGHT["2017-08-01"],
        check=posted("no-header", is_refused_without_header),
        needs=Needs.APPROVE,
    ),
    Row(
        id="preempt-since",
        section=SECTION,
        rule=BROUGHT[PREEMPT_SINCE],
        check=_hidden_below("Preempt", PREEMPT_SINCE),
        needs=Needs.PREEMPT,
    ),
    Row(
        id="terminate-since",
        section=SECTION,
        rule=BROUGHT[TERMINATE_SINCE],
        check=_hidden_below("Terminate", TERMINATE_SINCE),
        needs=Needs.TERMINATE,
    ),
    Row(
        id="description-since",
        section=SECTION,
        rule=BROUGHT[DESCRIPTION_SINCE],
        check=_since("Description", DESCRIPTION_SINCE),
        needs=Needs.EVENT,
    ),
    Row(
        id="source-since",
        section=SECTION,
        rule=BROUGHT[SOURCE_SINCE],
        check=_since("EventSource", SOURCE_SINCE),
        needs=Needs.EVENT,
    ),
    Row(
        id="duration-since",
        section=SECTION,
        rule=BROUGHT[DURATION_SINCE],
        check=_since("DurationInSeconds", DURATION_SINCE),
        needs=Needs.EVENT,
    ),
    Row(
        id="version-of-approval",
        section=SECTION,
        rule="A query and an approval of one client may use different versions.",
        check=accepted("other-version"),
        needs=Needs.KNOWN,
    ),
    Row(
        id="hidden-events",
        section=SECTION,
        rule="An event that a version hides still moves the incarnation (O).",
        check=_same_incarnation,
        needs=Needs.HIDDEN,
    ),
    Row(
        id="instance-versions",
        section=SECTION,
        rule="here it takes every day from 2017-03-01 on, and answers the same to all (O).",
        check=answered(get("/metadata/instance?api-version=2019-02-28"), status(200)),
    ),
)
