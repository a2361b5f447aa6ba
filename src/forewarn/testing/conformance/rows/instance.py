"""Who the calling VM is (section “The instance document”)."""

from collections.abc import Iterator, Sequence

from forewarn.testing.conformance.document import NotChecked, Otherwise, read_json
from forewarn.testing.conformance.row import Check, Row
from forewarn.testing.conformance.rows.checks import answered, as_object, expect_status, get, quoted, status
from forewarn.testing.conformance.rows.requests import INSTANCE_VERSION, WHOLE_INSTANCE
from forewarn.testing.conformance.seen import Seen

SECTION = "The instance document"

VERSION = f"?api-version={INSTANCE_VERSION}"
NAME = "/metadata/instance/compute/name"
TEXT = "`format=text` gives a leaf as it is."
LEAF = "A leaf is then a JSON string (O: ask Azure for leaves with `format=text` only)."
NAMES_BELOW = "Of any other element it gives the names below, one in a line, with a slash after those that go deeper."


def _name(seen: Seen) -> str:
    compute = as_object(seen.ask(WHOLE_INSTANCE)).get("compute")
    name = compute.get("name") if isinstance(compute, dict) else None
    if not isinstance(name, str):
        raise NotChecked("the instance document does not say what this VM is called")
    return name


def _leaves(tree: object) -> Iterator[object]:
    """Give the leaves, however deep they are."""
    unseen = [tree]
    while unseen:
        match unseen.pop():
            case dict() as below:
                unseen += below.values()
            case list() as below:
                unseen += below
            case leaf:
                yield leaf


def _strings(seen: Seen) -> None:
    for leaf in _leaves(as_object(seen.ask(WHOLE_INSTANCE))):
        if not isinstance(leaf, str):
            raise Otherwise(f"a leaf is {quoted(leaf)}, and no string")


def _text_of_name(path: str) -> Check:
    def check(seen: Seen) -> None:
        answer = seen.ask(get(f"{path}{VERSION}&format=text"))
        expect_status(answer, 200)
        if answer.body.decode(errors="replace") != _name(seen):
            raise Otherwise(f"the name is {quoted(answer.body)}, not {quoted(_name(seen))}")

    return check


def _json_of_name(seen: Seen) -> None:
    answer = seen.ask(get(f"{NAME}{VERSION}&format=json"))
    expect_status(answer, 200)
    if read_json(answer.body) != _name(seen):
        raise Otherwise(f"the name is {quoted(answer.body)}, not the JSON text of {quoted(_name(seen))}")


def _names_below(seen: Seen) -> None:
    answer = seen.ask(get(f"/metadata/instance{VERSION}&format=text"))
    expect_status(answer, 200)
    names = [f"{name}/" for name in as_object(seen.ask(WHOLE_INSTANCE))]
    if answer.body.decode(errors="replace").splitlines() != names:
        raise Otherwise(f"the names are {quoted(answer.body)}, not {quoted(names)}")


def _json_by_default(seen: Seen) -> None:
    if as_object(seen.ask(get(f"{WHOLE_INSTANCE.target}&format=json"))) != as_object(seen.ask(WHOLE_INSTANCE)):
        raise Otherwise("with format=json another document comes")


def _row(id_: str, rule: str, check: Check) -> Row:
    return Row(id=id_, section=SECTION, rule=rule, check=check)


ROWS: Sequence[Row] = (
    _row("instance-strings", "Every leaf is a string", _strings),
    _row("instance-json", "`format=json` is the default.", _json_by_default),
    _row("instance-leaf-json", LEAF, _json_of_name),
    _row("instance-leaf-text", TEXT, _text_of_name(NAME)),
    _row("instance-names", NAMES_BELOW, _names_below),
    _row("instance-path-case", "It matches in any case (O)", _text_of_name("/metadata/INSTANCE/Compute/NAME")),
    _row(
        "instance-nowhere",
        "one that leads nowhere gets 404, after all other checks (O).",
        answered(get(f"/metadata/instance/compute/nowhere{VERSION}"), status(404)),
    ),
)
