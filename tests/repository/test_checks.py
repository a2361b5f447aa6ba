"""Every check of `make check` finds the faults that these tests plant."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

PROGRAMS = Path(sys.executable).parent

# Module to plant, its source, and the line of import-linter's report that has to appear.
IMPORT_FAULTS = {
    "core does I/O": ("core/planted", "import sqlite3", "forewarn.core.planted -> sqlite3"),
    "core draws lots": ("core/planted_chance", "import random", "forewarn.core.planted_chance -> random"),
    "wire does I/O": ("wire/planted", "import socket", "forewarn.wire.planted -> socket"),
    "core imports upwards": ("core/planted_up", "import forewarn.wire", "forewarn.core.planted_up -> forewarn.wire"),
    "siblings meet": ("guest/planted", "import forewarn.operator", "forewarn.guest.planted -> forewarn.operator"),
    "fleet names a store": (
        "fleet/planted",
        "import forewarn.store.planted",
        "forewarn.fleet.planted -> forewarn.store.planted",
    ),
    "fleet names a platform": (
        "fleet/planted_platform",
        "import forewarn.platform.planted",
        "forewarn.fleet.planted_platform -> forewarn.platform.planted",
    ),
    "modules go round in a circle": (
        "store/planted",
        "import forewarn.store.planted_back",
        "No cycles are allowed in forewarn.store",
    ),
    "client knows the server": (
        "client/planted",
        "import forewarn.store",
        "forewarn.client.planted -> forewarn.store",
    ),
    "api needs the server's packages": ("api/planted", "import h11", "forewarn.api.planted -> h11"),
    "a module has no place": ("planted", "", "forewarn.planted"),
}

# Modules that the import faults need; they have no faults themselves.
IMPORTED = {
    "platform/planted": "",
    "store/planted_back": "import forewarn.store.planted",
}

# Module to plant, its source, and the rule that ruff has to report for it.
LINT_FAULTS = {
    "core reads the clock": ("core/planted", "from datetime import UTC, datetime\n\nN = datetime.now(UTC)", "TID251"),
    "wire reads the clock": ("wire/planted_now", "import datetime as dt\n\nNOW = dt.datetime.now(dt.UTC)", "TID251"),
    "core reads today": ("core/planted_today", "from datetime import date\n\nNOW = date.today()", "TID251"),
    "core counts seconds": ("core/planted_time", "import time\n\nNOW = time.time()", "TID251"),
    "core makes an id": ("core/planted_id", "import uuid\n\nID = uuid.uuid4()", "TID251"),
    "wire makes an id": ("wire/planted_id", "from uuid import uuid4\n\nID = uuid4()", "TID251"),
    "core draws lots": ("core/planted_random", "from random import choice\n\nLOT = choice([1, 2])", "TID251"),
    "wire draws bytes": ("wire/planted_bytes", "from os import urandom\n\nLOT = urandom(8)", "TID251"),
    "wire calls out": ("wire/planted_call", "from urllib.request import urlopen\n\n__all__ = ['urlopen']", "TID251"),
    "core opens a file": ("core/planted_open", "TEXT = open('x').read()", "PTH123"),
    "a rule prints": ("core/planted_print", "print('hello')", "T201"),
    "naive datetimes": ("fleet/planted_naive", "from datetime import datetime\n\nNOW = datetime.now()", "DTZ005"),
    "an ignore without its rule": ("fleet/planted_noqa", "import os  # noqa", "PGH004"),
}  # fmt: skip

# Other packages may use clocks and randomness: the ban must not apply to them.
ALLOWED = {
    "clock reads the time of day": ("planted_clock", "from datetime import UTC, datetime\n\nNOW = datetime.now(UTC)"),
    "fleet makes an id": ("fleet/planted_id", "import uuid\n\nID = uuid.uuid4()"),
    "core derives an id": ("core/planted_uuid5", "import uuid\n\nID = uuid.uuid5(uuid.NAMESPACE_URL, 'x')"),
}


@contextmanager
def planted(tree: Path, sources: Mapping[str, str]) -> Iterator[None]:
    """Add these modules to the tree while the context is open."""
    paths = {tree / "src/forewarn" / f"{module}.py": source for module, source in sources.items()}
    for path, source in paths.items():
        path.write_text(f'"""Planted."""\n\n{source}\n')
    yield
    for path in paths:
        path.unlink()


def run(tree: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a checker of this environment on the tree, importing from it and not from where the package is installed."""
    program, *arguments = command
    environment = os.environ | {"PYTHONPATH": str(tree / "src"), "COLUMNS": "200", "NO_COLOR": "1"}
    return subprocess.run(
        [PROGRAMS / program, *arguments], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def copy(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = tmp_path_factory.mktemp("copy")
    shutil.copytree(root / "src", tree / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(root / "pyproject.toml", tree)
    return tree


@pytest.fixture(scope="module")
def import_report(copy: Path) -> str:
    """The report of import-linter for a tree with all import faults."""
    faults = {module: source for module, source, _ in IMPORT_FAULTS.values()}
    with planted(copy, faults | IMPORTED):
        ended = run(copy, "lint-imports")
    assert ended.returncode == 1, ended.stdout
    return ended.stdout


@pytest.fixture(scope="module")
def lint_report(copy: Path) -> set[tuple[str, str]]:
    """The modules and rules that ruff reports for a tree with all lint faults."""
    faults = {module: source for module, source, _ in LINT_FAULTS.values()}
    with planted(copy, faults | dict(ALLOWED.values())):
        ended = run(copy, "ruff", "check", "--no-cache", "--output-format", "json", "src")
    assert ended.returncode == 1, ended.stderr
    package = copy / "src/forewarn"
    return {
        (Path(found["filename"]).relative_to(package).with_suffix("").as_posix(), found["code"])
        for found in json.loads(ended.stdout)
    }


@pytest.mark.parametrize("fault", IMPORT_FAULTS)
def test_import_linter_finds(fault: str, import_report: str) -> None:
    *_, line = IMPORT_FAULTS[fault]
    assert re.search(rf"^\s*-?\s*{re.escape(line)}\b", import_report, re.MULTILINE), import_report


@pytest.mark.parametrize("fault", LINT_FAULTS)
def test_ruff_finds(fault: str, lint_report: set[tuple[str, str]]) -> None:
    module, _, rule = LINT_FAULTS[fault]
    assert (module, rule) in lint_report


@pytest.mark.parametrize("use", ALLOWED)
def test_ruff_allows(use: str, lint_report: set[tuple[str, str]]) -> None:
    module, _ = ALLOWED[use]
    assert (module, "TID251") not in lint_report


def test_ruff_finds_bad_format(copy: Path, tmp_path: Path) -> None:
    shutil.copy(copy / "pyproject.toml", tmp_path)
    (tmp_path / "planted.py").write_text("x = {  'a':1 }\n")
    ended = run(tmp_path, "ruff", "format", "--no-cache", "--check")
    assert (ended.returncode, "planted.py" in ended.stdout) == (1, True)


def test_mypy_finds_wrong_and_missing_types(copy: Path, tmp_path: Path) -> None:
    shutil.copy(copy / "pyproject.toml", tmp_path)
    (tmp_path / "planted.py").write_text("def add(a, b):\n    return a\n\n\nx: int = 'one'\n")
    ended = run(tmp_path, "mypy", "planted.py")
    codes = set(re.findall(r"\[([a-z-]+)\]$", ended.stdout, re.MULTILINE))
    assert (ended.returncode, codes) == (1, {"assignment", "no-untyped-def"})


def test_make_check_runs_all_four_over_all_code(root: Path) -> None:
    planned = subprocess.run(
        ["make", "--dry-run", "--always-make", "check"], cwd=root, check=True, capture_output=True, text=True
    )
    commands = [
        line for line in planned.stdout.splitlines() if line.startswith(".venv/bin/") and " -m pip " not in line
    ]
    code = " ".join(name for name in ("src", "tests", "bench", "tools") if (root / name).is_dir())
    assert commands == [
        ".venv/bin/ruff format --check",
        ".venv/bin/ruff check",
        f".venv/bin/mypy {code}",
        ".venv/bin/lint-imports",
    ]
