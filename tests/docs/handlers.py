"""Handlers of the documentation: every program in a page, an example or a sample that reacts to events."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.docs.console import steps

ROOT = Path(__file__).parents[2]
FOLDERS = ("examples", "samples")
"""Folders with programs of their own."""

BLOCK = re.compile(r"^(?P<indent> *)```(?P<language>\S*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"(?:#|//) ([\w.-]+\.\w+)\n")
REACTS = re.compile(r"StartRequests|\.approve\(|\.watch\(|\.interruptible\(|guest (?:approve|watch)")
NOT_PROGRAMS = ("console", "json")
"""Languages of blocks with commands that the reader types, or with what is sent."""


class DocumentedHandler(NamedTuple):
    """A handler, and where it is: `page:file`, `page:number` for a block without a file name, or a path."""

    place: str
    text: str

    @property
    def file(self) -> str:
        """The name under which the reader saves it."""
        named = FILE_NAME.match(self.text)
        return named[1] if named else Path(self.place).name


def documented_handlers() -> Iterator[DocumentedHandler]:
    """Yield every handler in the pages and folders that are under version control."""
    listed = subprocess.run(
        ["git", "ls-files", "*.md", *FOLDERS], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    for path in listed.stdout.splitlines():
        text = (ROOT / path).read_text(encoding="utf-8")
        if path.endswith(".md"):
            yield from handlers_in_page(path, text)
        elif REACTS.search(text):
            yield DocumentedHandler(path, text)


def handlers_in_page(path: str, text: str) -> Iterator[DocumentedHandler]:
    """Yield the blocks of a page that react to events."""
    number = 0
    for block in BLOCK.finditer(text):
        if block["language"] in NOT_PROGRAMS or not REACTS.search(block["text"]):
            continue
        number += 1
        named = FILE_NAME.match(block["text"])
        yield DocumentedHandler(f"{path}:{named[1] if named else number}", block["text"])


def edits_of(handler: DocumentedHandler) -> list[str]:
    """Return the commands with which the page changes the handler."""
    page, _, file = handler.place.partition(":")
    return [step.command for step in steps(ROOT / page) if re.fullmatch(rf"sed -i .* {re.escape(file)}", step.command)]
