"""Comments of a TOML file stay when a program writes the file with other values."""

import tomllib
from typing import Any

import pytest
from hypothesis import given, settings

from forewarn.api.campaign_file import write_campaign
from forewarn.api.table_comments import keep_comments
from forewarn.core.campaign.spec import CampaignSpec
from tests.support.campaign_specs import SPECS
from tests.support.examples import examples

BEFORE = """\
# Ask the network team first.

# The new kernel.
name = "kernel"  # 6.1
description = "# no comment"

[policy] # of operations
# Half an hour is not enough.
gap = "1h"
windows = [
    "sat 22:00-04:00", # weekend
]
zone = "UTC"
# The end.
"""


def test_comments_follow_their_keys() -> None:
    written = 'description = "new"\nname = "kernel-2"\n\n[policy]\nwindows = []\ngap = "2h"\n'
    assert keep_comments(written, before=BEFORE) == (
        'description = "new"\n'
        "# Ask the network team first.\n# The new kernel.\n"
        'name = "kernel-2"  # 6.1\n\n'
        "[policy]  # of operations\n"
        "windows = []\n"
        "# Half an hour is not enough.\n"
        'gap = "2h"\n'
        "# The end.\n"
    )


def test_comments_of_a_removed_key_move_to_the_end() -> None:
    kept = keep_comments('name = "kernel"\n', before=BEFORE)
    assert kept.splitlines()[3:] == ["# of operations", "# Half an hour is not enough.", "# The end."]


@pytest.mark.parametrize("before", ["", "name = ", BEFORE.replace("]\nzone", "zone")])
def test_file_without_comments_or_with_mistakes_adds_nothing(before: str) -> None:
    assert keep_comments('name = "kernel"\n', before=before) == 'name = "kernel"\n'


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        (f'name = "{"#" * 10_000}"', ""),
        (f"name = '{'#' * 10_000}' # it is long", "  # it is long"),
        (f'name = "{"#" * 10_000}', None),
        (r'name = "\\" # a \" b', r"  # a \" b"),
        ('name = """ a" # b"""', ""),
    ],
    ids=["text", "text and comment", "mistake", "escaped quotes", "text in three quotes"],
)
def test_line_is_parsed_only_a_few_times(monkeypatch: pytest.MonkeyPatch, line: str, kept: str | None) -> None:
    """Not once for each character that could begin a comment: that would keep the event loop for minutes."""
    parsed: list[str] = []
    parse = tomllib.loads

    def count(text: str) -> dict[str, Any]:
        parsed.append(text)
        return parse(text)

    monkeypatch.setattr(tomllib, "loads", count)
    assert keep_comments('name = "kernel"\n', before=f"{line}\n") == f'name = "kernel"{kept or ""}\n'
    assert len(parsed) <= 4


def test_too_deeply_nested_file_adds_nothing() -> None:
    assert keep_comments('name = "kernel"\n', before="name = " + "[" * 5_000) == 'name = "kernel"\n'


@settings(deadline=None, max_examples=examples(50))
@given(SPECS, SPECS)
def test_comments_never_change_a_value(spec: CampaignSpec, other: CampaignSpec) -> None:
    text, before = write_campaign(spec), write_campaign(other)
    commented = "".join(f"# {n}\n{line}\n" for n, line in enumerate(before.split("\n")))
    for former in (before, commented):
        try:
            tomllib.loads(former)
        except tomllib.TOMLDecodeError:  # a comment within a text
            continue
        assert tomllib.loads(keep_comments(text, before=former)) == tomllib.loads(text)
    assert keep_comments(text, before=before) == text
