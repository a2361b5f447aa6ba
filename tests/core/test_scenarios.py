"""The rules, told as stories: one file per rule, named for the fact it shows."""

from pathlib import Path

import pytest

from forewarn.testing.scenario import CoreStage, play, read, retold

FILES = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_rule(file: Path, rewrite: bool) -> None:
    text = file.read_text()
    story = read(text)
    told = retold(story, {played.step.line: played.facts for played in play(story, CoreStage())})
    if rewrite:
        file.write_text(told)
    else:
        assert text == told


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_story_says_what_it_shows_and_expects_something(file: Path) -> None:
    story = read(file.read_text())
    assert story.fact.endswith(".")
    assert any(step.expected for step in story.steps)
