"""Run the commands of a page (lines after `$`) in a real shell, and compare the output with the page."""

import re
from pathlib import Path
from typing import NamedTuple

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SAVED = re.compile(r"^```(?:python|toml)\n(# (\w+\.(?:py|toml))\n.*?)^```$", re.MULTILINE | re.DOTALL)

VARIABLE = [
    (re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"), "<guid>"),
    (re.compile(r"\b(?=[0-9A-F]*\d)[0-9A-F]{8}\b"), "<short id>"),
    (re.compile(r"\btk_[0-9a-f]{12}\b"), "<token>"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "<ISO time>"),
    (re.compile(r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT"), "<date>"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ"), "<time>"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\+00:00"), "<Python time>"),
    # Work that has just started may still be pending.
    (re.compile(r"(the work on [^;\n]*), (pending|begun)\b"), r"\1, <under way>"),
    (re.compile(r"\b\d+\.\d s\b"), "<seconds>"),
    # PATIENCE makes it longer than on the page.
    (re.compile(r"\bat most \S+ if it polls\b"), "at most <limit> if it polls"),
    (re.compile(r"\b(passed|failed) in \d+\.\d\ds\b.*"), r"\1 in <duration>"),
    (re.compile(r"\r"), ""),
    (re.compile(r"[ \t]+$", re.MULTILINE), ""),
]


CTRL_C = "^C\n"

PATIENCE = {"FOREWARN_PATIENCE": "5"}
"""The variable that gives exams more time, because the machine may be slow."""


class Step(NamedTuple):
    """A command, and the output that the page shows; after that output, the reader may press Ctrl-C."""

    command: str
    prints: str
    ends_with_ctrl_c: bool = False


def steps(page: Path) -> list[Step]:
    """Return the commands of the page with their output, in order."""
    found: list[Step] = []
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append(Step(command, output.removesuffix(CTRL_C), output.endswith(CTRL_C)))
    return found


def programs(page: Path) -> dict[str, str]:
    """Return the files that the reader saves: programs and settings whose first line names the file."""
    return {name: program for program, name in SAVED.findall(page.read_text(encoding="utf-8"))}


def normal(text: str) -> str:
    """Return the text with ids and times replaced, because they differ between runs."""
    for pattern, name in VARIABLE:
        text = pattern.sub(name, text)
    return text.strip()
