"""Reading TOML and JSON files: every error names the file, the line, the key and what is allowed."""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

import pytest

from forewarn.core.errors import Invalid
from forewarn.settings.file_reader import FileError, FileTable, FileValue, read_json, read_toml, read_toml_file


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


def value_of(toml: str) -> FileValue:
    """Return the value of the key `x`."""
    return table_of(f"\nx = {toml}").at("x")


def table_of(text: str, *known: str) -> FileTable:
    return read_toml(text, file="f.toml").table(known or ("x",))


READERS: dict[str, tuple[Callable[[FileValue], object], str, object, tuple[str, ...]]] = {
    "text": (FileValue.text, '"a b"', "a b", ("1", "[]")),
    "name": (FileValue.name, '"web-0"', "web-0", ("1", '"a b"', '""')),
    "flag": (FileValue.flag, "true", True, ('"true"', "1")),
    "number": (lambda value: value.number(1, 9), "9", 9, ("0", "10", "true", '"5"', "5.0")),
    "choice": (lambda value: value.choice(Colour), '"blue"', Colour.BLUE, ('"green"', "1")),
    "list": (lambda value: [item.value for item in value.items()], "[1, 2]", [1, 2], ('"1"', "{}")),
    "table": (lambda value: value.table(("a",)).at("a").value, "{ a = 1 }", 1, ("1", "[]", "{ b = 1 }")),
    "entries": (
        lambda value: {key: each.value for key, each in value.entries().items()},
        "{ a = 1 }",
        {"a": 1},
        ("1",),
    ),
}


@pytest.mark.parametrize("kind", READERS)
def test_value_of_the_kind_is_read(kind: str) -> None:
    read, written, expected, _ = READERS[kind]
    assert read(value_of(written)) == expected


@pytest.mark.parametrize(("kind", "written"), [(kind, text) for kind in READERS for text in READERS[kind][3]])
def test_value_of_another_kind_is_refused_with_its_place(kind: str, written: str) -> None:
    with pytest.raises(FileError) as refused:
        READERS[kind][0](value_of(written))
    error = refused.value
    assert (error.file, error.line, error.key.partition(".")[0]) == ("f.toml", 2, "x")
    assert str(error).startswith(f"f.toml:2: {error.key}: ")


def test_item_of_a_list_has_its_index_in_its_key() -> None:
    first, second = value_of('["a", 1]').items()
    assert (first.key, second.key, first.text()) == ("x[0]", "x[1]", "a")
    with pytest.raises(FileError, match=r"x\[1\]: 1 is not allowed"):
        second.text()


def test_unknown_key_is_refused_with_the_one_that_is_close_to_it() -> None:
    with pytest.raises(FileError, match="did you mean update_domain") as refused:
        table_of("a = 1\n\nupdate_domian = 2", "update_domain", "a")
    assert (refused.value.key, refused.value.line) == ("update_domian", 3)
    with pytest.raises(FileError, match=r"a, update_domain$"):
        table_of("zzz = 2", "update_domain", "a")


def test_table_has_required_optional_and_forbidden_keys() -> None:
    table = table_of('\n[x]\nname = "web"\n', "x").at("x").table(("name", "other"))
    assert (table.has("name"), table.has("other")) == (True, False)
    assert table.require("name", FileValue.name, "a name") == "web"
    assert (table.get("name", FileValue.text, None), table.get("other", FileValue.text, None)) == ("web", None)
    with pytest.raises(FileError, match="a number") as missing:
        table.require("other", FileValue.text, "a number")
    assert (missing.value.key, missing.value.line) == ("x.other", 2), "the line of its table"
    table.forbid("other", "not here")
    with pytest.raises(FileError, match="not here") as forbidden:
        table.forbid("name", "not here")
    assert (forbidden.value.key, forbidden.value.line) == ("x.name", 3)


def test_refusal_of_a_rule_is_about_the_value() -> None:
    with pytest.raises(FileError, match=r"^f.toml:2: x: too much$"), value_of("1").wrap_errors():
        raise Invalid("too much")


def test_value_that_is_not_written_by_a_person_has_no_line() -> None:
    value = read_json('{"x": 1}', file="body").table(("x",)).at("x")
    assert value.line is None
    with pytest.raises(FileError, match=r"^body: x: "):
        value.text()
    assert str(FileError("", "x", "is wrong", 3)) == "line 3: x: is wrong"


def test_another_place_and_another_value_keep_the_file() -> None:
    value = value_of("1")
    assert (value.with_value(7).value, value.with_value(7).line, value.at("y").key) == (7, 2, "y")


@pytest.mark.parametrize("text", ["x = ", "x = 1\nx = 2", "[" * 2_000 + "]" * 2_000], ids=["half", "twice", "deep"])
def test_text_that_is_not_toml_is_refused(text: str) -> None:
    with pytest.raises(FileError, match=r"^f.toml: invalid TOML"):
        read_toml(text, file="f.toml")


@pytest.mark.parametrize("text", ["{", b"\xff", "[" * 100_000], ids=["half", "not UTF-8", "deep"])
def test_text_that_is_not_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(FileError, match=r"^f.json(:1)?: invalid JSON"):
        read_json(text, file="f.json")


def test_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for name, content in (("gone.toml", None), ("latin.toml", b"x = '\xe9'"), ("large.toml", b"#" * 3_000_000)):
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(FileError) as refused:
            read_toml_file(path, max_bytes=2 << 20)
        assert refused.value.file == str(path)
    assert read_toml_file(tmp_path / "large.toml").value == {}


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("1.5", "1.5 "),
        ("false", "false "),
        ("[]", "[] "),
        ('[1, "a", true]', '[1, "a", true] '),
        ("[1, 2, 3, 4, 5, 6, 7, 8, 9]", "a list "),
        ("[[1]]", "a list "),
        ("[{}]", "a list "),
        ("{}", "a table "),
        ("2030-01-01", "2030-01-01 "),
        ("10:15:00", "10:15:00 "),
        ("2030-01-01T10:15:00Z", "2030-01-01 10:15:00+00:00 "),
    ],
)
def test_refused_value_is_shown_as_it_is_written(written: str, shown: str) -> None:
    with pytest.raises(FileError) as refused:
        value_of(written).text()
    assert refused.value.problem.startswith(shown)


def test_long_text_is_shown_in_part() -> None:
    with pytest.raises(FileError) as refused:
        value_of(f'"{"a" * 5_000}"').choice(Colour)
    assert refused.value.problem.startswith(f'"{"a" * 80}…" ')


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Invalid("too much", "gap"), "f.toml:3: x.gap: too much"),
        (Invalid("unknown", "names[1]"), "f.toml:6: x.names[1]: unknown"),
        (Invalid("needed", "zone"), "f.toml:2: x.zone: needed"),
        (Invalid("too few keys"), "f.toml:2: x: too few keys"),
    ],
    ids=["key", "item", "missing key", "table"],
)
def test_refusal_of_a_rule_is_about_the_key_of_its_field(error: Invalid, message: str) -> None:
    table = table_of('\n[x]\ngap = 9\nnames = [\n"a",\n"b",\n]', "x").at("x").table(("gap", "names"))
    with pytest.raises(FileError) as refused, table.wrap_errors():
        raise error
    assert str(refused.value) == message


def test_text_in_a_message_has_no_control_characters() -> None:
    with pytest.raises(FileError) as refused:
        value_of(r'"\u001b[31mred"').number(1, 9)
    assert r'"\x1b[31mred" is not allowed' in str(refused.value)
