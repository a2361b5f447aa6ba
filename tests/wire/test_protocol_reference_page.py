"""The page docs/reference/guest-protocol.md shows what the code does."""

import re
from pathlib import Path

import pytest

from forewarn.wire.approval import parse_approval
from forewarn.wire.protocol import VERSIONS
from tests.wire.samples import EVENT_ID

PAGE = Path(__file__).parents[2] / "docs/reference/guest-protocol.md"
GOLDEN = Path(__file__).parent / "golden"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)\n```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def section(title: str) -> str:
    return PAGE.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_examples_are_real_answers_and_a_real_approval() -> None:
    document, approval, refusal = blocks("json")
    assert document == (GOLDEN / "2020-07-01/restart-by-user.json").read_text()
    assert parse_approval(approval.encode()) == (EVENT_ID,)
    assert refusal == (GOLDEN / "refusals/version-missing.http").read_text().split("\n\n")[1]
    assert blocks("text") == [(GOLDEN / "instance/whole.txt").read_text()]


def test_every_version_has_its_row() -> None:
    assert tuple(re.findall(r"^\| `(\d{4}-\d\d-\d\d)` \|", section("Versions"), re.MULTILINE)) == VERSIONS


@pytest.mark.parametrize("case", ["compute", "interface-0"])
def test_every_name_of_the_instance_document_is_explained(case: str) -> None:
    names = (GOLDEN / f"instance/{case}.txt").read_text().split("\n")
    unexplained = [name for name in names if name.removesuffix("/") not in section("The instance document")]
    assert unexplained == []


def test_every_field_of_the_document_has_its_row() -> None:
    (example,) = (block for block in blocks("json") if "NotBefore" in block)
    in_example = [name for name in re.findall(r'"(\w+)":', example) if name != "Events"]
    fields = section("The document").split("\n| field |")[1].split("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", fields, re.MULTILINE) == in_example
