"""The pages of the site, found by following links from README.md and docs/."""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

INDEX = "README.md"
START = PurePosixPath(INDEX)
DOCS = PurePosixPath("docs")
PICTURES = {".gif", ".jpg", ".png", ".svg", ".webp"}
LANGUAGES = {".cs": "csharp", ".json": "json", ".ps1": "powershell", ".py": "python", ".sh": "bash", ".toml": "toml"}
"""How to highlight a file that is shown as a page; others are plain text."""

FENCE = re.compile(r"^ *(?P<ticks>```+).*?^ *(?P=ticks)$", re.MULTILINE | re.DOTALL)
CODE_OR_LINK = re.compile(
    rf"{FENCE.pattern}|`[^`\n]+`|(?P<start>\]\(|\b(?:src|srcset|href)=\")(?P<target>[^)\"\s]+)", FENCE.flags
)
"""A link or picture, in Markdown or HTML. Code is matched first, because what looks like a link there is not one."""

TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
MARKUP = re.compile(r"`|\*\*|\[([^\]]*)\]\([^)]*\)")
MERMAID = re.compile(r"^ *```+mermaid", re.MULTILINE)


class DocsError(Exception):
    """A page that cannot be part of the site, and what to change."""


class Page(NamedTuple):
    """A file of the repository as a page: Markdown, or the text of another file."""

    source: PurePosixPath
    text: str

    @property
    def name(self) -> PurePosixPath:
        """Its path in the input of Zensical: samples/handler.py is shown by samples/handler.py.md."""
        return self.source if self.is_markdown else self.source.with_name(f"{self.source.name}.md")

    @property
    def is_markdown(self) -> bool:
        return self.source.suffix == ".md"

    @property
    def title(self) -> str:
        """The first heading, without markup."""
        found = TITLE.search(FENCE.sub("", self.text))
        if found is None:
            raise DocsError(f"{self.source} has no title; start it with a line '# Title'")
        return MARKUP.sub(r"\1", found[1])

    def links(self) -> Iterator[PurePosixPath]:
        """Yield the files of the repository that the page links to, in order."""
        if self.is_markdown:
            for found in CODE_OR_LINK.finditer(self.text):
                if found["target"] and (path := linked_path(self.source, found["target"])):
                    yield path

    def site_text(self) -> str:
        """Return the text with links to files that are not Markdown replaced by links to their pages."""

        def replace(found: re.Match[str]) -> str:
            path = linked_path(self.source, found["target"]) if found["target"] else None
            if path is None or path.suffix in {".md", *PICTURES}:
                return found[0]
            return f"{found['start']}{found['target']}.md"

        return CODE_OR_LINK.sub(replace, self.text) if self.is_markdown else self.text


def linked_path(source: PurePosixPath, target: str) -> PurePosixPath | None:
    """Return the path in the repository that a link leads to, or None if it leads to the page itself or elsewhere."""
    name, _, _ = target.partition("#")
    if not name or re.match(r"[a-z]+:|/", name):
        return None
    return PurePosixPath(posixpath.normpath(source.parent / name))


def read_page(root: Path, source: PurePosixPath) -> Page:
    """Read a Markdown file, or make a page with the text of another file."""
    text = (root / source).read_text()
    if source.suffix == ".md":
        if MERMAID.search(text):
            raise DocsError(f"{source} has a Mermaid diagram, which needs a script from elsewhere; use a picture")
        return Page(source, text)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return Page(source, f"# {source}\n\n{fence}{LANGUAGES.get(source.suffix, 'text')}\n{text.rstrip()}\n{fence}\n")


def collect(root: Path) -> tuple[dict[PurePosixPath, Page], set[PurePosixPath]]:
    """Return the pages, in the order in which links lead to them, and the pictures."""
    pages: dict[PurePosixPath, Page] = {}
    pictures: set[PurePosixPath] = set()
    in_docs = sorted(PurePosixPath(path.relative_to(root).as_posix()) for path in (root / DOCS).rglob("*.md"))
    waiting = [START, DOCS / INDEX, *in_docs]
    while waiting:
        source = waiting.pop(0)
        if source.suffix in PICTURES:
            pictures.add(source)
        elif source not in pages:
            pages[source] = page = read_page(root, source)
            for link in page.links():
                if ".." in link.parts or not (root / link).is_file():
                    raise DocsError(f"{source} links to {link}, which is not a file of this repository")
                waiting.append(link)
    return pages, pictures
