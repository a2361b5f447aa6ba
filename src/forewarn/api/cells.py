"""Cells by name: the file that lists them, and a client whose lists have the items of all of them."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import cache
from heapq import merge
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from forewarn.api import v1
from forewarn.api.client import TIMEOUT, ApiClient
from forewarn.api.errors import CellNotChosen, CellNotFound, InvalidCells
from forewarn.api.local_service import read_token
from forewarn.api.transport import Transport
from forewarn.settings.file_reader import FileError, FileValue, read_toml_file

T = TypeVar("T", bound=msgspec.Struct)
MAX_CELLS = 256


class CellEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One cell of the file: the URL of its operator API, and how to log in."""

    url: str
    token_file: str
    ca: str | None = None


def read_cells(file: Path) -> dict[str, CellEntry]:
    """Return the cells that a file lists, in its order; raise InvalidCells."""
    try:
        content = read_toml_file(file)
        cells = {name: _read_entry(value) for name, value in content.entries().items()}
        if not 0 < len(cells) <= MAX_CELLS:
            raise content.error(
                f"it has {len(cells)} cells; 1 to {MAX_CELLS} are allowed, each a table with url and token_file, such "
                'as [east] url = "https://…" token_file = "…"'
            )
    except FileError as error:
        raise InvalidCells(str(error)) from error
    return cells


def _read_entry(value: FileValue) -> CellEntry:
    table = value.table(CellEntry.__struct_fields__, "a table with url and token_file")
    return CellEntry(
        url=table.require("url", FileValue.text, 'the URL of the operator API in quotes, such as "https://…"'),
        token_file=table.require("token_file", FileValue.text, "the path of a file in quotes"),
        ca=table.get("ca", FileValue.text, None),
    )


def connect_cell(file: Path, name: str, *, timeout: float = TIMEOUT) -> ApiClient:
    """Return a client of one cell."""
    cells = read_cells(file)
    if name not in cells:
        raise CellNotFound(name, file, tuple(cells))
    return _connect(file, cells[name], timeout)


def connect_cells(file: Path, *, timeout: float = TIMEOUT) -> ApiClient:
    """Return a client of all cells, or of the only one."""
    cells = {name: _connect(file, entry, timeout) for name, entry in read_cells(file).items()}
    return CellsClient(cells) if len(cells) > 1 else next(iter(cells.values()))


def cell_of(item: object) -> str | None:
    """Return the cell of an item of a merged list; None if it comes from a single service."""
    name = getattr(item, "cell", None)
    return name if isinstance(name, str) else None


class CellsClient(ApiClient):
    """A client of several cells. Lists merge the items of all cells, each with its cell; other requests are refused."""

    def __init__(self, cells: Mapping[str, ApiClient]) -> None:
        self._cells = dict(cells)

    @property
    def _transport(self) -> Transport:  # there is no single service
        raise CellNotChosen(tuple(self._cells))

    @property
    def _long_transport(self) -> Transport:
        raise CellNotChosen(tuple(self._cells))

    def scopes(self, **filters: Any) -> Iterator[v1.Scope]:
        """Yield the scopes of every cell."""
        return self._chain(lambda client: client.scopes(**filters))

    def vms(self, **filters: Any) -> Iterator[v1.Vm]:
        """Yield the VMs of every cell."""
        return self._chain(lambda client: client.vms(**filters))

    def hosts(self, **filters: Any) -> Iterator[v1.Host]:
        """Yield the hosts of every cell."""
        return self._chain(lambda client: client.hosts(**filters))

    def events(self, **filters: Any) -> Iterator[v1.Event]:
        """Yield the open events of every cell."""
        return self._chain(lambda client: client.events(**filters))

    def campaigns(self, **filters: Any) -> Iterator[v1.Campaign]:
        """Yield the campaigns of every cell."""
        return self._chain(lambda client: client.campaigns(**filters))

    def journal(self, *, newest_first: bool = False, **filters: Any) -> Iterator[v1.JournalEntry]:
        """Yield the journal entries of every cell, in the order of their times. Positions are those of each cell."""
        if filters.get("after") is not None:
            raise CellNotChosen(tuple(self._cells))

        def time_of(entry: v1.JournalEntry) -> datetime:
            return entry.at

        entries = (
            _add_cells(client.journal(newest_first=newest_first, **filters), name)
            for name, client in self._cells.items()
        )
        return merge(*entries, key=time_of, reverse=newest_first)

    def holds(self) -> v1.Holds:
        """Return the holds of every cell."""
        found = (_add_cell(hold, name) for name, client in self._cells.items() for hold in client.holds().holds)
        return v1.Holds(holds=list(found))

    def tokens(self) -> v1.TokenPage:
        """Return the tokens of every cell."""
        found = (_add_cell(token, name) for name, client in self._cells.items() for token in client.tokens().tokens)
        return v1.TokenPage(tokens=list(found))

    def _chain(self, read: Callable[[ApiClient], Iterator[T]]) -> Iterator[T]:
        for name, client in self._cells.items():
            yield from _add_cells(read(client), name)


def _connect(file: Path, entry: CellEntry, timeout: float) -> ApiClient:
    directory = file.parent
    token = read_token(directory / Path(entry.token_file).expanduser(), may_be_link=True)
    ca = None if entry.ca is None else directory / Path(entry.ca).expanduser()
    return ApiClient(entry.url, token, ca=ca, timeout=timeout)


def _add_cells(items: Iterator[T], cell: str) -> Iterator[T]:
    return (_add_cell(item, cell) for item in items)


def _add_cell(item: T, cell: str) -> T:
    """Return the item with one more field, the name of its cell."""
    fields = {field: getattr(item, field) for field in item.__struct_fields__}
    added: T = _type_with_cell(type(item))(**fields, cell=cell)
    return added


@cache
def _type_with_cell(type_: type[T]) -> Callable[..., T]:
    return msgspec.defstruct(type_.__name__, [("cell", str)], bases=(type_,), kw_only=True, frozen=True)  # type: ignore[return-value]  # a subclass
