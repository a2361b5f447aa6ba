"""Tests of the scenario language's reference page: all commands with all options, and examples that run as shown."""

import re
from pathlib import Path

import pytest

from forewarn.testing.scenario import CoreBackend, parse, run_script, syntax_errors
from forewarn.testing.scenario.expect import (
    CAMPAIGN_VERBS,
    EVENT_VERBS,
    GATE_VERBS,
    IMPACT_VERBS,
    SCOPE_AND_VM_VERBS,
    WAVE_VERBS,
)
from forewarn.testing.scenario.grammar import COMMAND_SYNTAX, Slot

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "reference/scenario-language.md").read_text()
GUIDE = (DOCS / "howto/write-a-scenario.md").read_text()

SPELT: list[tuple[str, str]] = re.findall(r"^\| `([a-z][^`]*)` \| (.+) \|$", PAGE, re.MULTILINE)
"""Each row of the tables of commands: syntax and description."""


def row_of(verb: str) -> tuple[str, str]:
    rows = [row for row in SPELT if row[0] == verb or row[0].startswith(f"{verb} ")]
    longer = [other for other in COMMAND_SYNTAX if other.startswith(f"{verb} ")]
    return next(row for row in rows if not any(row[0].startswith(other) for other in longer))


@pytest.mark.parametrize("verb", COMMAND_SYNTAX)
def test_page_has_all_options_of_the_command(verb: str) -> None:
    spelt, _ = row_of(verb)
    form = COMMAND_SYNTAX[verb]
    missing = [option for option in form.required if f" {option} " not in f"{spelt} "]
    missing += [option for option in form.options if not re.search(rf"\[{option}[ \]]", spelt)]
    assert missing == []


@pytest.mark.parametrize("verb", COMMAND_SYNTAX)
def test_only_optional_words_are_in_brackets(verb: str) -> None:
    spelt, _ = row_of(verb)
    form = COMMAND_SYNTAX[verb]
    needed = [slot for slot in (*form.words, *form.required.values()) if slot.at_least]
    optional = [slot for slot in form.words if not slot.at_least and verb not in {"approve", "expect"}]
    outside = re.sub(r"\[[^\]]*\]", "", spelt.removeprefix(verb)).split()
    assert len(outside) >= len(needed) + len(form.required)
    assert len(re.findall(r"\[", spelt)) == len(optional) + len(form.options)


@pytest.mark.parametrize("verb", COMMAND_SYNTAX)
def test_page_lists_all_choices(verb: str) -> None:
    """Faults are on another page."""
    spelt, says = row_of(verb)
    kinds = [
        slot.kind
        for slot in (*COMMAND_SYNTAX[verb].words, *COMMAND_SYNTAX[verb].options.values())
        if isinstance(slot, Slot)
    ]
    choices = {
        word
        for kind in kinds
        if kind.label not in {"a fault", "a fact"} and re.fullmatch(r"[\w-]+(, [\w-]+)*( or [\w-]+)?", kind.allowed)
        for word in re.split(r", | or ", kind.allowed)
    }
    described = f"{spelt} {says} {row_of('scope')[1]} {row_of('schedule')[1]}"
    assert {word for word in choices if word not in described and word != "digits"} == set()


def test_page_has_no_unknown_commands() -> None:
    facts = PAGE.index("## Facts")
    described = re.findall(r"^\| `([a-z]+(?: [a-z]+)?)", PAGE[:facts], re.MULTILINE)
    assert {
        spelt for spelt in described if spelt not in COMMAND_SYNTAX and spelt.split()[0] not in COMMAND_SYNTAX
    } == set()


def test_page_shows_all_facts() -> None:
    facts = PAGE[PAGE.index("## Facts") :]
    happens = [*EVENT_VERBS, *IMPACT_VERBS, *SCOPE_AND_VM_VERBS, *CAMPAIGN_VERBS, *WAVE_VERBS, *GATE_VERBS]
    assert [verb for verb in happens if verb not in facts] == []


def blocks(page: str) -> list[str]:
    """Return the code blocks without a language, that is, without shell commands."""
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return [block for language, block in fences if not language]


def examples(page: str) -> list[str]:
    return [block for block in blocks(page) if "scope " in block]


@pytest.mark.parametrize("text", [*examples(PAGE), *examples(GUIDE)])
def test_example_runs_as_shown(text: str) -> None:
    assert syntax_errors(text) == ()
    assert [each for each in run_script(parse(text), CoreBackend()) if not each.is_as_expected] == []


def test_guide_runs_with_the_shown_output_as_expectation() -> None:
    (text,) = examples(GUIDE)
    (pinned,) = (block for block in blocks(GUIDE) if block not in text and block.startswith("schedule"))
    script = text.replace('schedule Reboot shop-0 shop-1 in 2d why "kernel"\n', pinned)
    assert script != text
    assert [each for each in run_script(parse(script), CoreBackend()) if not each.is_as_expected] == []
