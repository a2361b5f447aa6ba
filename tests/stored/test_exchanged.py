"""What the service and the agent exchange with others, and what they write, is as it was in commit 450409b."""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.stored import exchanged
from tests.stored.history import History
from tests.stored.records import EXPECTED, STORED, copy
from tests.stored.rendering import key_paths, missing
from tests.stored.service_process import Service

KNOWN: dict[str, str] = json.loads((STORED / "known.json").read_text())


def expected(name: str) -> Any:
    return json.loads((EXPECTED / f"{name}.json").read_text())


def without_new_fields(found: Any, wanted: Any) -> Any:
    """Return settings without the values at the end of a section, which may be of new keys."""
    if not isinstance(found, list) or not isinstance(wanted, list) or len(found) < len(wanted):
        return found
    return [without_new_fields(*pair) for pair in zip(found, wanted, strict=False)]


def test_enums_have_the_same_values_in_the_same_order() -> None:
    found = exchanged.enum_values()
    assert [values[: len(wanted)] for values, wanted in zip(found, expected("enums"), strict=True)] == expected("enums")


def test_digest_of_a_request_does_not_depend_on_names_of_attributes() -> None:
    assert exchanged.digest() == expected("digest")


def test_campaign_file_has_the_same_keys() -> None:
    assert missing(expected("campaign-file"), exchanged.campaign_file()) == []


def test_settings_of_the_agent_have_the_same_keys_and_variables(tmp_path: Path) -> None:
    wanted = expected("agent-settings")
    assert without_new_fields(exchanged.agent_settings(tmp_path), wanted) == wanted
    assert exchanged.known_agent_variables(tmp_path) == expected("agent-variables")


def test_settings_of_the_service_have_the_same_keys_and_variables(tmp_path: Path) -> None:
    found = exchanged.service_settings(tmp_path)
    for place, rows in expected("service-settings").items():
        assert [row for row in rows if row not in found[place]] == []


NEW_METRICS = (
    "forewarn_operator_connections",
    "forewarn_operator_protocol_errors",
    "forewarn_operator_wrong_tokens",
)
"""What `/metrics` has since."""

NEW_SERIES = {"forewarn_campaign_waves": ['forewarn_campaign_waves{state="unannounced"}']}
"""Series that these metrics have since."""


KNOWN_KEYS = (
    *("location", "name", "osType", "placementGroupId", "platformFaultDomain", "platformUpdateDomain", "priority"),
    *("resourceGroupName", "subscriptionId", "tags", "tagsList", "vmId", "vmScaleSetName", "zone"),
)
"""What the instance document had below `compute`."""

KNOWN_ADDRESSES = ("10.0.0.4", "fd00::4")
"""The addresses of VMs that can read their documents. Those of others are made from their ids since."""


FREEZE = re.compile(r'("EventType":"Freeze"[^{}]*"DurationInSeconds":)-1')
"""A Freeze of unknown duration, which is announced with 5 seconds since."""


def test_service_tells_others_the_same(tmp_path: Path) -> None:
    copy(tmp_path)
    wanted, found = expected("service-side"), exchanged.service_side(Service(tmp_path), KNOWN)
    known = {name: series for name, series in found.pop("metrics").items() if not name.startswith(NEW_METRICS)}
    for name, added in NEW_SERIES.items():
        wanted["metrics"][name] = sorted(wanted["metrics"][name] + added)
    assert known == wanted.pop("metrics"), "no series is lost, and none is new"
    for place in [place for place in wanted["documents"] if "/metadata/instance" in place]:
        assert known_values(found["documents"].pop(place)) == known_values(wanted["documents"].pop(place))
    wanted["documents"] = {place: FREEZE.sub(r"\g<1>5", text) for place, text in wanted["documents"].items()}
    assert found == wanted


def known_values(document: str) -> Any:
    """Return what the instance document of commit 450409b knew of a VM. It has more keys since, and other defaults."""
    content = json.loads(document)
    compute = {key: value for key, value in content["compute"].items() if key in KNOWN_KEYS}
    compute["priority"] = compute["priority"] or "Regular"
    cards = [(card["ipv4"]["ipAddress"], card["ipv6"]["ipAddress"]) for card in content["network"]["interface"]]
    found = [ip["privateIpAddress"] for card in cards for ips in card for ip in ips]
    return compute, [ip for ip in found if ip in KNOWN_ADDRESSES]


def test_agent_tells_others_the_same(tmp_path: Path) -> None:
    copy(tmp_path)
    wanted, found = expected("agent-side"), exchanged.agent_side(tmp_path, Service(tmp_path), KNOWN)
    assert found.pop("metrics") == wanted.pop("metrics"), "no series is lost, and none is new"
    assert found == wanted


def test_commands_end_with_the_same_codes(tmp_path: Path) -> None:
    copy(tmp_path)
    assert exchanged.exit_codes(Service(tmp_path)) == expected("exit-codes")


ADDED = {".answered[].caller", ".events[].impacts[].stuck_entry", ".facts.caller", ".facts.unavailable"}
"""What is stored since: the token that an idempotency key belongs to; since which journal entry an impact is stuck;
that the platform cannot work on a host."""


def test_the_same_history_is_stored_under_the_same_names(tmp_path: Path) -> None:
    """Keys of facts are often keyword arguments, and stored by the code that runs today: play it all again."""
    history = History(Service(tmp_path))
    history.play()
    now, then = written(tmp_path), written(STORED)
    now["campaign"] = sorted({*now["campaign"], *history.keys_at_gate})
    if ".outages" not in now["fleet"]:  # the service was back within the same second
        then["fleet"] = [path for path in then["fleet"] if not path.startswith(".outages")]
    added = {path for record, paths in now.items() for path in paths if path not in then.get(record, ())}
    assert added == ADDED
    assert {record: [path for path in paths if path not in ADDED] for record, paths in now.items()} == then
    assert exchanged.variable_names(tmp_path / "gate-variables") == expected("gate-variables")


def written(stored: Path) -> dict[str, list[str]]:
    """Return the keys in what is stored: records by kind, entries of the journal by what they report, and files."""
    found: dict[str, set[str]] = {}
    with closing(sqlite3.connect(f"file:{stored / 'data/forewarn.db'}?mode=ro&immutable=1", uri=True)) as database:
        records = database.execute("SELECT kind, value FROM records").fetchall()
        entries = database.execute("SELECT did, entry FROM journal").fetchall()
    for kind, content in (*records, *entries):
        found.setdefault(kind, set()).update(key_paths(json.loads(content)))
    for pattern in ("data/work/*.note", "data/work/*.in", "agents/*/state/*/*.json", "service.json"):
        for path in stored.glob(pattern):
            name = f"{path.parent.relative_to(stored)}/*{path.suffix}"
            found.setdefault(name, set()).update(key_paths(json.loads(path.read_bytes())))
    return {name: sorted(paths) for name, paths in found.items()}
