"""The rules, told as stories: one file per rule, named for the fact it shows."""

from pathlib import Path

import pytest

from forewarn.testing.scenario import CoreBackend, parse, render_script, run_script

FILES = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_rule(file: Path, rewrite: bool) -> None:
    text = file.read_text()
    story = parse(text)
    told = render_script(story, {played.step.line: played.facts for played in run_script(story, CoreBackend())})
    if rewrite:
        file.write_text(told)
    else:
        assert text == told


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_story_says_what_it_shows_and_expects_something(file: Path) -> None:
    story = parse(file.read_text())
    assert story.title.endswith(".")
    assert any(step.expected for step in story.steps)
