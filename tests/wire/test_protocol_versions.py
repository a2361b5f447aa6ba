"""PROTOCOL §2: what each api-version introduced, and what older ones do not have."""

import json

import pytest

from forewarn.core.event import EventType
from forewarn.core.scope import ScopeKind
from forewarn.core.vm import Roster
from forewarn.wire import error_responses
from forewarn.wire.document import encode_document, etag
from forewarn.wire.protocol import NEWEST_VERSION, VERSIONS
from forewarn.wire.request import ApprovalRequest, DocumentRequest, RequestHead, route
from tests.wire.samples import EVENTS, event, get, numbered_id, post, scope

FIRST_FIELDS = ["EventId", "EventStatus", "EventType", "ResourceType", "Resources", "NotBefore"]
FIRST_TYPES = ["Freeze", "Reboot", "Redeploy"]

EVERY_TYPE = scope(*(event(id=numbered_id(n), type=type_) for n, type_ in enumerate(EventType)))

ROWS = {
    "2017-03-01": (FIRST_FIELDS, FIRST_TYPES, "_web_0"),
    "2017-08-01": (FIRST_FIELDS, FIRST_TYPES, "web_0"),
    "2017-11-01": (FIRST_FIELDS, [*FIRST_TYPES, "Preempt"], "web_0"),
    "2019-01-01": (FIRST_FIELDS, [*FIRST_TYPES, "Preempt", "Terminate"], "web_0"),
    "2019-04-01": ([*FIRST_FIELDS, "Description"], [*FIRST_TYPES, "Preempt", "Terminate"], "web_0"),
    "2019-08-01": ([*FIRST_FIELDS, "Description", "EventSource"], [*FIRST_TYPES, "Preempt", "Terminate"], "web_0"),
    "2020-07-01": (
        [*FIRST_FIELDS, "Description", "EventSource", "DurationInSeconds"],
        [*FIRST_TYPES, "Preempt", "Terminate"],
        "web_0",
    ),
}


def test_supported_versions() -> None:
    assert tuple(ROWS) == VERSIONS


@pytest.mark.parametrize("version", ROWS)
def test_version_has_its_fields_types_and_names(version: str) -> None:
    fields, types, name = ROWS[version]
    shown = json.loads(encode_document(EVERY_TYPE, version))["Events"]
    assert [list(entry) for entry in shown] == [fields] * len(types)
    assert [entry["EventType"] for entry in shown] == types
    assert [entry["Resources"] for entry in shown] == [[name]] * len(types)


@pytest.mark.parametrize("version", VERSIONS)
def test_role_instances_never_have_an_underscore(version: str) -> None:
    service = scope(event(vms=("FrontEnd_IN_0",), role_instances=("FrontEnd_IN_0",)), kind=ScopeKind.CLOUD_SERVICE)
    assert json.loads(encode_document(service, version))["Events"][0]["Resources"] == ["FrontEnd_IN_0"]


@pytest.mark.parametrize("version", VERSIONS)
def test_names_stay_after_their_vms_have_left(version: str) -> None:
    both = event(vms=("FrontEnd_IN_0", "web_0"), role_instances=("FrontEnd_IN_0",))
    assert encode_document(scope(both, roster=Roster()), version) == encode_document(scope(both), version)


@pytest.mark.parametrize("version", VERSIONS)
def test_get_needs_the_header_in_every_version(version: str) -> None:
    assert route(RequestHead("GET", f"{EVENTS}?api-version={version}")) == error_responses.METADATA_HEADER_MISSING


@pytest.mark.parametrize("version", VERSIONS)
def test_post_needs_the_header_in_every_version_but_the_first(version: str) -> None:
    expected = ApprovalRequest(version) if version == "2017-03-01" else error_responses.METADATA_HEADER_MISSING
    assert route(RequestHead("POST", f"{EVENTS}?api-version={version}")) == expected
    assert route(RequestHead("POST", f"{EVENTS}?api-version={version}", [("Metadata", "false")])) == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_get_and_post_accept_every_version(version: str) -> None:
    """A client may use different versions for them."""
    asked = f"{EVENTS}?api-version={version}"
    assert (route(get(asked)), route(post(asked))) == (DocumentRequest(version), ApprovalRequest(version))


def test_latest_is_refused_like_any_unknown_version() -> None:
    for version in ("latest", "2020-07-02"):
        assert route(get(f"{EVENTS}?api-version={version}")) == error_responses.version_unsupported(version, 404)


@pytest.mark.parametrize("version", VERSIONS)
def test_hidden_event_raises_the_incarnation(version: str) -> None:
    assert json.loads(encode_document(EVERY_TYPE, version))["DocumentIncarnation"] == EVERY_TYPE.incarnation


def test_etag_is_epoch_incarnation_and_version() -> None:
    assert etag(EVERY_TYPE, NEWEST_VERSION) == '"k3Jx9.2.2020-07-01"'
