"""Terminal colours: only on a terminal, and only if the user wants them."""

import sys

import pytest

from forewarn.cli.colours import Colour, coloured, is_coloured


@pytest.mark.parametrize(
    ("terminal", "environ", "expected"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {"TERM": "dumb"}, False),
    ],
)
def test_results_are_coloured_on_a_terminal_unless_it_is_unwanted(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, environ: dict[str, str], expected: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    assert is_coloured() is expected
    assert coloured("text", Colour.BAD) == ("\x1b[31mtext\x1b[0m" if expected else "text")
    assert coloured("text", None) == "text"
