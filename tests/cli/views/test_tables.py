"""Tables fitted to the terminal: nothing is cut, and columns that do not fit are named."""

import os
import shutil
import sys

import pytest

from forewarn.cli.views.tables import Column, single_line, write_details, write_table

COLUMNS = (Column("ID"), Column("HOST", drop_order=2), Column("STATE", drop_order=1), Column("NOTE", can_fold=True))
ROWS = [("id-1", "hv-0", "on", "one two three four five six seven eight nine ten"), ("id-22", "hv-1", "off", "x")]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("NO_COLOR", "1")
    return monkeypatch


def set_width(terminal: pytest.MonkeyPatch, columns: int) -> None:
    terminal.setattr(sys.stdout, "isatty", lambda: True)
    terminal.setattr(shutil, "get_terminal_size", lambda **_: os.terminal_size((columns, 24)))


def test_every_row_is_one_line_where_a_program_reads_it(capsys: pytest.CaptureFixture[str]) -> None:
    write_table((Column("A"), Column("B")), [("1", "two\n lines "), ("long cell", "")])
    assert capsys.readouterr().out == "A          B\n1          two / lines\nlong cell\n"


def test_wide_terminal_shows_all_columns(terminal: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    set_width(terminal, 100)
    write_table(COLUMNS, ROWS)
    out = capsys.readouterr()
    assert out.out.splitlines()[0].split() == ["ID", "HOST", "STATE", "NOTE"]
    assert out.out.splitlines()[2] == f"id-1   hv-0  on     {ROWS[0][3]}"
    assert out.err == ""


def test_narrow_terminal_folds_a_column_below_and_then_leaves_others_out(
    terminal: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    set_width(terminal, 14)
    write_table(COLUMNS, ROWS)
    out = capsys.readouterr()
    lines = out.out.splitlines()
    assert lines[0].split() == ["ID", "STATE"]
    assert lines[2].split() == ["id-1", "on"]
    assert " ".join(line.strip() for line in lines[3:5]).startswith("one two three")
    assert "HOST" in out.err


def test_cell_that_must_not_be_cut_is_wider_than_the_terminal(
    terminal: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    set_width(terminal, 5)
    write_table((Column("URL"),), [("http://127.0.0.1:8180",)])
    assert "http://127.0.0.1:8180" in capsys.readouterr().out


def test_details_have_a_line_for_all_that_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    write_details([("name", "web-0"), ("zone", ""), ("reason", "a\nb")])
    assert capsys.readouterr().out == "name    web-0\nreason  a / b\n"


def test_long_detail_goes_on_below_itself(terminal: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    set_width(terminal, 48)
    write_details([("note", "word " * 12)])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("      word")


@pytest.mark.parametrize(("text", "line"), [("a", "a"), ("a\n b \n", "a / b"), ("", "")])
def test_text_of_several_lines_is_joined(text: str, line: str) -> None:
    assert single_line(text) == line


IDS = ("3F2A91C0-0000-5000-8000-000000000001", "3F2A91C0-1000-5000-8000-000000000002")


@pytest.mark.parametrize(
    ("ids", "shown"),
    [
        (IDS[:1], ["3F2A91C0"]),
        (IDS, ["3F2A91C0-0", "3F2A91C0-1"]),
        (("same-id-twice", "same-id-twice"), ["same-id-", "same-id-"]),
        (("short",), ["short"]),
    ],
    ids=["one", "same beginning", "same id", "short"],
)
def test_ids_are_short_on_a_terminal_and_differ(
    terminal: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ids: tuple[str, ...], shown: list[str]
) -> None:
    set_width(terminal, 80)
    columns = (Column("EVENT", has_ids=True), Column("TYPE"))
    write_table(columns, [(id_, "Reboot") for id_ in ids])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[2:]] == shown


def test_ids_are_whole_where_a_program_reads_them(capsys: pytest.CaptureFixture[str]) -> None:
    write_table((Column("EVENT", has_ids=True),), [(id_,) for id_ in IDS])
    assert capsys.readouterr().out.splitlines()[1:] == list(IDS)
