"""What `pip install forewarn` brings along: the wheel is built from the tree and looked into."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

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
