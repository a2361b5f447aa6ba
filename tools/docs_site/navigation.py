"""The navigation of the site, derived from the folders.

A folder is a section if it has an index: cli/README.md, or cli.md beside it. Its pages come in the order in which the
index links to them. A page that the index does not link to is an error, so no page can be forgotten.
"""

import json
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

from tools.docs_site.pages import DOCS, INDEX, START, DocsError, Page


class Entry(NamedTuple):
    """An entry of the navigation; a section contains further entries."""

    title: str
    page: PurePosixPath
    entries: "tuple[Entry, ...]" = ()

    def as_toml(self) -> str:
        """Return the entry as Zensical reads it: a section is a list that starts with its index."""
        value = json.dumps(str(self.page))
        if self.entries:
            # Zensical shows README.md as the section itself, any other page as its first entry.
            index = value if self.page.name == INDEX else f'{{ "Overview" = {value} }}'
            value = f"[{', '.join([index, *(entry.as_toml() for entry in self.entries)])}]"
        return f"{{ {json.dumps(self.title)} = {value} }}"


def navigation(pages: dict[PurePosixPath, Page]) -> list[Entry]:
    """Return the first page, the sections of docs/, and the other Markdown files that the pages link to."""
    homes = {source: home_of(pages, source) for source, page in pages.items() if page.is_markdown and source != START}

    def section(index: PurePosixPath) -> Iterator[Entry]:
        members = {source for source, home in homes.items() if home == index}
        linked = [link for link in dict.fromkeys(pages[index].links()) if link in members]
        if lost := sorted(members - set(linked)):
            raise DocsError(f"{index} must link to {', '.join(map(str, lost))}: the navigation follows its links")
        yield from map(entry, linked)

    def entry(source: PurePosixPath) -> Entry:
        return Entry(pages[source].title, source, tuple(section(source)))

    index = DOCS / INDEX
    others = [entry(source) for source, home in homes.items() if home == START and source != index]
    return [Entry("Home", START), Entry(pages[index].title, index), *section(index), *others]


def home_of(pages: dict[PurePosixPath, Page], source: PurePosixPath) -> PurePosixPath:
    """Return the index of the nearest folder, whose links determine the place of this page."""
    folders = source.parent.parents if source.name == INDEX else (source.parent, *source.parent.parents)
    indexes = (index for folder in folders for index in (folder / INDEX, folder.parent / f"{folder.name}.md"))
    return next(index for index in indexes if index in pages)
