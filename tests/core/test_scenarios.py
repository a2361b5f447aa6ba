"""The rules as scenarios: one file per rule, named after the behaviour it shows."""

from pathlib import Path

import pytest

from forewarn.testing.scenario import CoreBackend, parse, render_script, run_script

FILES = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_rule(file: Path, rewrite: bool) -> None:
    text = file.read_text()
    script = parse(text)
    actual = render_script(script, {result.step.line: result.facts for result in run_script(script, CoreBackend())})
    if rewrite:
        file.write_text(actual)
    else:
        assert text == actual


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_scenario_has_a_title_and_expected_facts(file: Path) -> None:
    script = parse(file.read_text())
    assert script.title.endswith(".")
    assert any(step.expected for step in script.steps)
