"""Options shared by several commands, and the types of their values."""

from enum import StrEnum
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.options.common import (
    ANY_NUMBER,
    FROM_0,
    FROM_1,
    FROM_1_TO_100,
    ONE_SHOT_SECONDS,
    ChoiceType,
    CommandGroup,
    complete_words,
    declare_config_option,
    given_settings,
    option,
    origin_of,
    setting_option,
    usage_errors,
    with_options,
)
from forewarn.settings.loader import read_settings_file


class Colour(StrEnum):
    RED = "Red"
    BLUE = "Blue"


def convert(value: str) -> StrEnum:
    return ChoiceType(Colour).convert(value, None, None)


def test_choice_is_read_in_any_case() -> None:
    assert [convert(text) for text in ("Red", "rED", "blue")] == [Colour.RED, Colour.RED, Colour.BLUE]


def test_wrong_choice_is_refused_with_all_and_the_nearest() -> None:
    with pytest.raises(click.BadParameter, match=r"'rd' is not one of Red and Blue\..*Red\?"):
        convert("rd")
    with pytest.raises(click.BadParameter) as refused:
        convert("zzz")
    assert "?" not in str(refused.value)


@pytest.mark.parametrize(
    ("type_", "accepted", "refused", "allowed"),
    [
        (FROM_0, ("0", "7"), ("-1", "1.5", "x", ""), "use an integer of at least 0."),
        (FROM_1, ("1",), ("0",), "use an integer of at least 1."),
        (ANY_NUMBER, ("-0.5", "1e9"), ("x", "nan"), "use a number."),
        (FROM_1_TO_100, ("1", "99.5", "100"), ("0.9", "101", "nan"), "use a number from 1 to 100."),
        (ONE_SHOT_SECONDS, ("0.1", "3600"), ("0", "3601"), "use a number from 0.1 to 3600."),
    ],
    ids=["from 0", "from 1", "any", "from 1 to 100", "seconds"],
)
def test_number_out_of_bounds_is_refused_with_those_that_are_allowed(
    type_: click.ParamType[float], accepted: tuple[str, ...], refused: tuple[str, ...], allowed: str
) -> None:
    assert [type_.convert(text, None, None) for text in accepted] == list(map(float, accepted))
    for text in refused:
        with pytest.raises(click.BadParameter) as error:
            type_.convert(text, None, None)
        assert error.value.message == f"{text!r} is not allowed: {allowed}"


def test_words_are_completed_in_any_case() -> None:
    assert [item.value for item in complete_words(["web-0", "Web-1", "db"], "WEB")] == ["web-0", "Web-1"]


def test_setting_is_passed_on_only_if_it_was_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings loader reads the variable, and says which one is wrong."""
    given: list[dict[str, object]] = []

    @click.command()
    @with_options([setting_option("speed", "Speed.", "NUMBER"), setting_option("manual_time", "Manual.")])
    def command(**values: object) -> None:
        given.append(given_settings(values))

    monkeypatch.setenv("FOREWARN_SPEED", "7")
    for arguments in ([], ["--speed", "2"], ["--manual-time"]):
        CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert given == [{}, {"speed": "2"}, {"manual_time": True}]


@pytest.mark.parametrize("arguments", [[], ["--speed", "2"]])
def test_origin_of_a_value_is_its_option(arguments: list[str]) -> None:
    assert found_origin(arguments) == "--speed"


def test_origin_of_a_value_is_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """An option that was not typed is not named: nobody would find the wrong value there."""
    monkeypatch.setenv("FOREWARN_SPEED", "7")
    assert found_origin([]) == "FOREWARN_SPEED"
    assert found_origin(["--speed", "2"]) == "--speed"


def found_origin(arguments: list[str]) -> str:
    @click.command()
    @option("--speed", envvar="FOREWARN_SPEED")
    def command(speed: str | None) -> None:
        del speed
        click.echo(origin_of("--speed"))

    return CliRunner().invoke(command, arguments, catch_exceptions=False).output.strip()


def test_origin_of_a_value_is_its_argument_as_in_the_usage() -> None:
    @click.command()
    @click.argument("url", envvar="FOREWARN_ENDPOINT")
    def command(url: str) -> None:
        del url
        click.echo(origin_of("URL"))

    runner = CliRunner()
    assert runner.invoke(command, ["x"]).output.strip() == "URL"
    assert runner.invoke(command, env={"FOREWARN_ENDPOINT": "x"}).output.strip() == "FOREWARN_ENDPOINT"


def test_origin_of_an_option_that_the_command_lacks_is_its_variable() -> None:
    """`forewarn exam --upload` reads the variables of a connection, and has none of its options."""

    @click.command()
    def command() -> None:
        click.echo(origin_of("--token-file"))

    assert CliRunner().invoke(command).output.strip() == "FOREWARN_TOKEN_FILE"


def test_usage_error_has_the_name_of_its_option() -> None:
    with pytest.raises(CliError, match=r"^--speed: too fast$") as refused, usage_errors("--speed", ValueError):
        raise ValueError("too fast")
    assert refused.value.code is ExitCode.USAGE
    with pytest.raises(KeyError), usage_errors("--speed", ValueError):
        raise KeyError


@pytest.mark.parametrize(
    ("arguments", "variable", "origin"),
    [
        (["--config", "gone.toml"], "", "--config: gone.toml"),
        ([], "gone.toml", "TOY_CONFIG: gone.toml"),
        ([], "other.toml", "gone.toml"),
        ([], "", "gone.toml"),
    ],
    ids=["option", "variable", "another file", "no option"],
)
def test_settings_file_that_cannot_be_read_is_refused_by_its_origin(
    arguments: list[str], variable: str, origin: str
) -> None:
    @click.command()
    @declare_config_option("TOY_CONFIG", "The file.")
    def command(config: str | None) -> None:
        del config
        read_settings_file(Path("gone.toml"))

    refused = CliRunner().invoke(command, arguments, env={"TOY_CONFIG": variable}).exception
    assert str(refused) == f"{origin}: cannot be read: No such file or directory"


def test_origin_outside_a_command_is_the_option() -> None:
    """Completion has no running command in its thread."""
    assert origin_of("--speed") == "--speed"


def test_help_lists_options_and_commands_in_the_order_of_their_definition() -> None:
    group = CommandGroup()
    for name in ("zeta", "alpha"):
        group.command(name)(lambda: None)
    assert group.list_commands(click.Context(group)) == ["zeta", "alpha"]
