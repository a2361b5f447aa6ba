"""The rules as scenarios: one file per rule, named after the fact it shows."""

from pathlib import Path

import pytest

from forewarn.testing.scenario import CoreBackend, parse, render_script, run_script

FILES = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_rule(file: Path, rewrite: bool) -> None:
    text = file.read_text()
    script = parse(text)
    told = render_script(script, {played.step.line: played.facts for played in run_script(script, CoreBackend())})
    if rewrite:
        file.write_text(told)
    else:
        assert text == told


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_story_says_what_it_shows_and_expects_something(file: Path) -> None:
    script = parse(file.read_text())
    assert script.title.endswith(".")
    assert any(step.expected for step in script.steps)
