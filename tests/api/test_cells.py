"""Cells by name: lists have the items of all cells, changes go to one cell, and wrong files are explained."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from forewarn.api import v1
from forewarn.api.cells import CellsClient, cell_of, connect_cell, connect_cells, read_cells
from forewarn.api.client import ApiClient
from forewarn.api.errors import CellNotChosen, CellNotFound, InvalidCells, InvalidToken
from forewarn.cli.errors import ExitCode
from forewarn.core.journal import EntryKind
from tests.cli.in_process import InProcessMachine, UpService, run, run_json, run_table, run_up


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, UpService]]:
    east, west = (InProcessMachine(tmp_path_factory.mktemp(name)) for name in ("east", "west"))
    with run_up(east) as first, run_up(west) as second:
        yield {"east": first, "west": second}


@pytest.fixture
def machine(tmp_path: Path) -> InProcessMachine:
    return InProcessMachine(tmp_path)


@pytest.fixture
def cells(services: dict[str, UpService], tmp_path: Path) -> str:
    file = tmp_path / "cells.toml"
    lines: list[str] = []
    for name, service in services.items():
        (tmp_path / f"{name}.token").write_text(Path(service.ready["token_file"]).read_text())
        lines += [f"[{name}]", f'url = "{service.running.operator_url}"', f'token_file = "{name}.token"']
    file.write_text("\n".join(lines))
    return str(file)


def test_lists_have_the_items_of_all_cells_with_the_cell_added(machine: InProcessMachine, cells: str) -> None:
    for command in (("vm", "list"), ("scope", "list"), ("host", "list"), ("token", "list")):
        merged = run_json(machine, *command, "--cells", cells)
        single = run_json(machine, *command, "--cells", cells, "--cell", "west")
        assert [item["cell"] for item in merged] == ["east"] * (len(merged) - len(single)) + ["west"] * len(single)
        assert len(merged) > len(single) > 0
        west = [
            {key: value for key, value in item.items() if key != "cell"} for item in merged if item["cell"] == "west"
        ]
        assert [list(item) for item in west] == [list(item) for item in single]
        assert "cell" not in single[0]
    assert run_table(machine, "vm", "list", "--cells", cells)[0][0] == "CELL"


def test_changes_go_to_the_chosen_cell(machine: InProcessMachine, cells: str) -> None:
    refused = run(machine, "event", "schedule", "Reboot", "web-0", "--cells", cells)
    assert refused.code == ExitCode.USAGE
    assert "--cell (east, west)" in refused.stderr
    event = run_json(machine, "event", "schedule", "Reboot", "web-0", "--in", "20m", "--cells", cells, "--cell", "west")
    listed = run_json(machine, "event", "list", "--cells", cells)
    assert [(item["cell"], item["id"]) for item in listed] == [
        ("west", event["events"][0]["id"] if "events" in event else event["id"])
    ]
    assert run_json(machine, "event", "list", FOREWARN_CELLS=cells, FOREWARN_CELL="east") == []
    held = run(machine, "hold", "the switch is replaced", "--cells", cells, "--cell", "east")
    assert held.code == 0
    shown = run(machine, "event", "list", "--cells", cells)
    assert "All planned maintenance of cell east is held" in shown.stderr
    assert [item["cell"] for item in run_json(machine, "hold", "--cells", cells)] == ["east"]
    journal = run_json(machine, "journal", "--cells", cells)
    assert {item["cell"] for item in journal} == {"east", "west"}
    assert [item["at"] for item in journal] == sorted(item["at"] for item in journal)


def test_unknown_cells_and_wrong_options_are_explained(machine: InProcessMachine, cells: str) -> None:
    unknown = run(machine, "vm", "list", "--cells", cells, "--cell", "north")
    assert unknown.code == ExitCode.NOT_FOUND
    assert "it has east, west" in unknown.stderr
    missing = run(machine, "vm", "list", "--cell", "east")
    assert (missing.code, "FOREWARN_CELLS" in missing.stderr) == (ExitCode.USAGE, True)
    absent = run(machine, "vm", "list", "--cells", "nothing.toml")
    assert absent.code == ExitCode.USAGE


def test_single_cell_needs_no_choice(cells: str, tmp_path: Path) -> None:
    file = tmp_path / "one.toml"
    file.write_text("\n".join(Path(cells).read_text().splitlines()[:3]))
    assert "cell" not in msgspec.structs.asdict(next(connect_cells(file).vms()))
    assert connect_cell(file, "east").health().status
    with pytest.raises(CellNotFound):
        connect_cell(file, "west")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ": it has 0 cells; 1 to 256 are allowed, each a table with url and token_file"),
        ("\neast = 1", ":2: east: 1 is not allowed: use a table with url and token_file"),
        ("[west]\nurl='u'\ntoken_file='t'\n[east]\nurl = 'http://h'", ":4: east.token_file: required key is missing"),
        ("[east]\nurl='u'\ntoken_file='t'\nx=1", ":4: east.x: unknown key; valid keys: ca, token_file, url"),
        ("[east]\ntoken_file='t'\nurl=1", ":3: east.url: 1 is not allowed: use a text in quotes"),
        ("[", ": invalid TOML: "),
    ],
)
def test_wrong_file_is_refused_with_line_and_cell(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "cells.toml"
    file.write_text(text)
    with pytest.raises(InvalidCells) as caught:
        read_cells(file)
    assert str(caught.value).startswith(f"{file}{message}")


def test_missing_token_is_named(tmp_path: Path) -> None:
    (tmp_path / "cells.toml").write_text('[east]\nurl = "http://127.0.0.1:1"\ntoken_file = "east.token"\n')
    with pytest.raises(InvalidToken):
        connect_cells(tmp_path / "cells.toml")


def test_journals_are_merged_by_time() -> None:
    class Journal(ApiClient):
        def __init__(self, *hours: int) -> None:
            self.hours = hours

        def journal(self, *, newest_first: bool = False, **_: object) -> Iterator[v1.JournalEntry]:
            for hour in sorted(self.hours, reverse=newest_first):
                at = datetime(2026, 1, 1, hour, tzinfo=UTC)
                yield v1.JournalEntry(
                    position=hour,
                    record_kind="scope",
                    record_id="web",
                    at=at,
                    action=EntryKind.SCHEDULED,
                    actor="ann",
                    reason="",
                    event=None,
                    vms=(),
                    incarnation=None,
                    facts={},
                )

    client = CellsClient({"east": Journal(1, 4), "west": Journal(2, 3)})
    merged = list(client.journal())
    assert [(cell_of(entry), entry.at.hour) for entry in merged] == [("east", 1), ("west", 2), ("west", 3), ("east", 4)]
    assert [entry.at.hour for entry in client.journal(newest_first=True)] == [4, 3, 2, 1]
    with pytest.raises(CellNotChosen):
        client.journal(after=7)
    with pytest.raises(CellNotChosen):
        client.clock()
