"""Conformance rules for the instance document (section “The instance document”)."""

from collections.abc import Iterator, Sequence

from forewarn.testing.conformance.document import CheckSkipped, Mismatch, read_json
from forewarn.testing.conformance.evidence import OUR_CHOICE, Evidence, documented
from forewarn.testing.conformance.probe import Probe
from forewarn.testing.conformance.rule import Check, Precondition, Rule
from forewarn.testing.conformance.rules.assertions import (
    expect_status,
    get_request,
    has_status,
    json_object,
    quoted,
    response_to,
)
from forewarn.testing.conformance.rules.requests import INSTANCE_VERSION, WHOLE_INSTANCE

SECTION = "The instance document"

VERSION = f"?api-version={INSTANCE_VERSION}"
NAME = "/metadata/instance/compute/name"
TEXT = "`format=text` gives a leaf without quotes (D)."
LEAF = "A leaf is then a JSON string (O: on Azure, request leaves only with `format=text`)."
CHILD_NAMES = (
    "For any other element it gives the names of its children, one per line, with a slash after those that have "
    "children (O)."
)


def _vm_name(probe: Probe) -> str:
    compute = json_object(probe.send_once(WHOLE_INSTANCE)).get("compute")
    name = compute.get("name") if isinstance(compute, dict) else None
    if not isinstance(name, str):
        raise CheckSkipped("the instance document does not contain the VM's name")
    return name


def _leaves(tree: object) -> Iterator[object]:
    """Yield all leaves of the tree."""
    pending = [tree]
    while pending:
        match pending.pop():
            case dict() as below:
                pending += below.values()
            case list() as below:
                pending += below
            case leaf:
                yield leaf


def _leaves_are_strings(probe: Probe) -> None:
    for leaf in _leaves(json_object(probe.send_once(WHOLE_INSTANCE))):
        if not isinstance(leaf, str):
            raise Mismatch(f"a leaf is {quoted(leaf)}, not a string")


def _text_of_name(path: str) -> Check:
    def check(probe: Probe) -> None:
        response = probe.send_once(get_request(f"{path}{VERSION}&format=text"))
        expect_status(response, 200)
        if response.body.decode(errors="replace") != _vm_name(probe):
            raise Mismatch(f"the name is {quoted(response.body)}, not {quoted(_vm_name(probe))}")

    return check


def _json_of_name(probe: Probe) -> None:
    response = probe.send_once(get_request(f"{NAME}{VERSION}&format=json"))
    expect_status(response, 200)
    if read_json(response.body) != _vm_name(probe):
        raise Mismatch(f"the name is {quoted(response.body)}, not the JSON text of {quoted(_vm_name(probe))}")


def _child_names(probe: Probe) -> None:
    response = probe.send_once(get_request(f"/metadata/instance{VERSION}&format=text"))
    expect_status(response, 200)
    names = [f"{name}/" for name in json_object(probe.send_once(WHOLE_INSTANCE))]
    if response.body.decode(errors="replace").splitlines() != names:
        raise Mismatch(f"the names are {quoted(response.body)}, not {quoted(names)}")


def _json_by_default(probe: Probe) -> None:
    if json_object(probe.send_once(get_request(f"{WHOLE_INSTANCE.target}&format=json"))) != json_object(
        probe.send_once(WHOLE_INSTANCE)
    ):
        raise Mismatch("the document with format=json differs from the one without it")


def _rule(id_: str, rule: str, evidence: Evidence, check: Check) -> Rule:
    return Rule(id=id_, section=SECTION, text=rule, evidence=evidence, check=check, precondition=Precondition.INSTANCE)


DATA_FORMAT = documented("metadata", "Data format")

RULES: Sequence[Rule] = (
    _rule("instance-strings", "Every leaf is a string (D)", DATA_FORMAT, _leaves_are_strings),
    _rule("instance-json", "`format=json` is the default (D).", DATA_FORMAT, _json_by_default),
    _rule("instance-leaf-json", LEAF, OUR_CHOICE, _json_of_name),
    _rule("instance-leaf-text", TEXT, documented("metadata", "Route parameters"), _text_of_name(NAME)),
    _rule("instance-names", CHILD_NAMES, OUR_CHOICE, _child_names),
    _rule(
        "instance-path-case",
        "It is compared without case (O)",
        OUR_CHOICE,
        _text_of_name("/metadata/INSTANCE/Compute/NAME"),
    ),
    _rule(
        "instance-nowhere",
        "an unknown path gets 404, after all other checks (O).",
        OUR_CHOICE,
        response_to(get_request(f"/metadata/instance/compute/nowhere{VERSION}"), has_status(404)),
    ),
)
