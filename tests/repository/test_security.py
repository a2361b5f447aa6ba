"""SECURITY.md: every claim about what somebody can or cannot do names tests, and they exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
PORTS = PAGE.partition("## Who may reach which port")[2].partition("\n## ")[0]
CLAIMS = re.findall(r"^\| (?!\|)([^|]+) \| ([^|]*) \|$", PAGE.partition("## What each can do")[2], re.MULTILINE)
NAMED = re.compile(r"`([\w/]+\.py)::((?:Test\w+::)?test_\w+)`")


def missing_tests(claims: list[tuple[str, str]]) -> list[str]:
    """Return the claims without a test, and the named tests that do not exist."""
    missing = [claim for claim, shown_by in claims if not NAMED.search(shown_by)]
    for path, test in (named for _, shown_by in claims for named in NAMED.findall(shown_by)):
        file = ROOT / "tests" / path
        if not file.is_file() or test not in functions_of(file):
            missing.append(f"{path}::{test}")
    return missing


def functions_of(file: Path) -> set[str]:
    """Return the names of the functions of a test file as pytest takes them: `Class::function` in a class."""
    names: set[str] = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        members, prefix = (node.body, f"{node.name}::") if isinstance(node, ast.ClassDef) else ([node], "")
        functions = [one for one in members if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
        names.update(prefix + function.name for function in functions)
    return names


def test_every_claim_names_tests_that_exist() -> None:
    assert len(CLAIMS) > 30
    assert missing_tests(CLAIMS) == []


def test_every_port_names_tests_that_exist() -> None:
    _, _, *rows = [line.strip("| ").split(" | ") for line in PORTS.splitlines() if line.startswith("|")]
    assert [len(row) for row in rows] == [4] * len(rows)
    assert missing_tests([(row[0], row[3]) for row in rows]) == []


@pytest.mark.parametrize(
    "shown_by", ["", "a test", "`repository/test_security.py::test_gone`", "`repository/test_gone.py::test_gone`"]
)
def test_claim_without_a_test_is_found(shown_by: str) -> None:
    assert len(missing_tests([("can fly", shown_by)])) == 1


@pytest.mark.parametrize(
    "reader",
    ["A guest", "An operator with a token", "A local user, on the machine of the service", "A host of a cluster"],
)
def test_page_covers_every_kind_of_attacker(reader: str) -> None:
    assert f"\n### {reader}\n" in PAGE


def test_page_lists_every_setting_that_opens_a_port() -> None:
    words = ("169.254.169.254:80", "guest port", "operator API", "calendar", "Unix socket", "a host", "NATS", "agent")
    assert [word for word in words if word not in PORTS] == []
