"""What `pip install forewarn` brings along: the wheel is built from the tree and looked into."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.support.inner_pytest import WITHOUT_OTHERS

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZipFile]:
    directory = tmp_path_factory.mktemp("wheel")
    build = (sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(directory))
    ended = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, timeout=250, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (made,) = directory.iterdir()
    with ZipFile(made) as wheel:
        yield wheel


def test_every_module_is_in_the_wheel_and_so_is_the_mark_of_its_types(wheel: ZipFile) -> None:
    source = ROOT / "src"
    modules = {str(file.relative_to(source)) for file in (source / "forewarn").rglob("*.py")}
    assert {"forewarn/py.typed", *modules} <= set(wheel.namelist())


def test_nothing_else_is_installed(wheel: ZipFile) -> None:
    """No tests, no samples: what is in the wheel is the package, or about it."""
    assert {name.split("/")[0].partition("-")[0] for name in wheel.namelist()} == {"forewarn"}


def test_plain_install_needs_three_packages(wheel: ZipFile) -> None:
    (metadata,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    needs = [line for line in wheel.read(metadata).decode().splitlines() if line.startswith("Requires-Dist: ")]
    plain = {line.split()[1].partition(">")[0] for line in needs if "extra ==" not in line}
    assert plain == {"msgspec", "rich", "typer"}


def test_pytest_finds_the_fixtures_of_an_installed_wheel(wheel: ZipFile, tmp_path: Path) -> None:
    """Not those of the tree: pytest rewrites what is installed, and a strict user wants no warning of it."""
    wheel.extractall(tmp_path / "installed")
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\naddopts = --strict-markers\n")
    (tmp_path / "test_handler.py").write_text(
        "import forewarn as package\n\n"
        "def test_handler(forewarn, forewarn_vm):\n"
        f"    assert package.__file__.startswith({str(tmp_path)!r})\n"
        "    assert forewarn_vm.document().events == ()\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    command = (sys.executable, "-m", "pytest", *WITHOUT_OTHERS, "-q", "-p", "no:cacheprovider", "-p", "no:asyncio")
    ended = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=250, check=False)
    assert "1 passed" in ended.stdout, ended.stdout + ended.stderr
