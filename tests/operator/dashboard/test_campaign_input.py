"""A campaign as a user types it: form and TOML have the same content, and errors name key and line."""

import pytest

from forewarn.core.errors import Invalid
from forewarn.fleet.errors import GateNotFound
from forewarn.operator.dashboard.campaign_input import InputError, input_from_form, input_from_toml

BEGIN = 'name = "kernel"\ntype = "Reboot"\n\n[selection]\nall = true\n\n[policy]\n'
TEXTS = {"name": "kernel", "type": "Reboot", "selection.all": "true", "policy.advance": "true"}


def test_form_and_toml_follow_each_other() -> None:
    from_form = input_from_form(TEXTS | {"policy.gap": "90m"})
    assert from_form.toml == BEGIN + 'gap = "90m"\n'
    from_toml = input_from_toml(from_form.toml)
    assert from_toml.texts is not None
    assert {key: text for key, text in from_toml.texts.items() if text} == TEXTS | {"policy.gap": "90m"}
    assert from_form.spec is not None
    assert from_form.spec == from_toml.spec


def test_edit_of_the_form_keeps_the_comments_of_the_toml() -> None:
    before = "# For ticket 7.\n" + BEGIN.replace("all = true", "all = true  # sic")
    edited = input_from_form(TEXTS | {"policy.gap": "90m"}, before=before)
    assert edited.toml == before + 'gap = "90m"\n'


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ('gap = "soon"', InputError("line 8: policy.gap: 'soon' is not a duration", "policy.gap", 8)),
        ('gate = "a b"', InputError("line 8: policy.gate: 'a b': use 1 to 128 letters", "policy.gate", 8)),
        (
            '[[policy.windows]]\nstart = "22:00"\nend = "26:00"',
            InputError("line 10: policy.windows[0].end: '26:00' is not a time of day", "policy.windows", 10),
        ),
        ('gap = "40d"', InputError("line 8: policy.gap: must be 0s to 30d, got 40d", "policy.gap", 8)),
        ('windows = [\n"sat",\n]', InputError("line 9: policy.windows[0]: 'sat' is not a window", "policy.windows", 9)),
        ("gate = {}", InputError("line 8: policy.gate.url: required key is missing", "policy.gate", 8, True)),
        ("vms_at_once = 0", InputError("line 8: policy.vms_at_once: a limit must be", "policy.vms_at_once", 8)),
        ("gapp = 3", InputError("line 8: policy.gapp: unknown key; did you mean gap?", "", 8)),
        ("gap = \n", InputError("invalid TOML: Invalid value (at line 8, column 7)", "", 8)),
        ("gap = ", InputError("invalid TOML: Invalid value (at end of document)", "", 8)),
    ],
)
def test_error_names_key_and_line(more: str, error: InputError) -> None:
    typed = input_from_toml(BEGIN + more)
    assert typed.spec is None
    assert typed.toml == BEGIN + more
    assert typed.error is not None
    assert typed.error.message.startswith(error.message)
    assert typed.error._replace(message=error.message) == error


@pytest.mark.parametrize(("key", "text"), [("policy.gap", "soon"), ("policy.halt_after", "often"), ("start_at", "now")])
def test_wrong_text_of_the_form_is_in_the_toml_too(key: str, text: str) -> None:
    typed = input_from_form(TEXTS | {key: text})
    assert f'{key.rpartition(".")[2]} = "{text}"' in typed.toml
    assert typed.error is not None
    assert (typed.error.key, typed.error.line is not None, typed.error.is_incomplete) == (key, True, False)
    assert (input_from_toml(typed.toml).texts or {})[key] == text


def test_unfinished_campaign_lacks_something() -> None:
    for texts, key in (({}, "name"), ({"name": "kernel"}, "type"), ({"name": "kernel", "type": "Reboot"}, "")):
        error = input_from_form(texts | {"policy.advance": "true"}).error
        assert error is not None
        assert (error.key, error.is_incomplete) == (key, True)


@pytest.mark.parametrize("more", ["gapp = 3", "gap = ", 'gate = { url = "http://h/", odd = 1 }', 'zone = "a\\nb"'])
def test_form_does_not_show_what_it_would_lose(more: str) -> None:
    assert input_from_toml(BEGIN + more).texts is None


def test_other_way_to_write_the_same_is_shown() -> None:
    assert input_from_toml(BEGIN + "advance = true\nvms_at_once = '5'").texts is not None


def test_error_of_a_rule_is_located() -> None:
    typed = input_from_toml(BEGIN + 'zone = "Mars"\ngate = "g"')
    found = typed.locate(Invalid("there is no time zone Mars", "policy.zone"))
    assert found == InputError("line 8: policy.zone: there is no time zone Mars", "policy.zone", 8)
    gate = typed.locate(GateNotFound("g", ()))
    assert (gate.key, gate.line, gate.message.startswith("line 9: policy.gate: ")) == ("policy.gate", 9, True)
    assert typed.locate(Invalid("the selection matches no VM")) == InputError("the selection matches no VM")
