"""Contents and dependencies of the wheel that is built from this repository."""

import os
import re
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.support.inner_pytest import WITHOUT_OTHERS

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
LOCKS = ROOT / "requirements"


PLAIN_DISTRIBUTIONS = {"click", "forewarn", "markdown-it-py", "mdurl", "msgspec", "pygments", "rich"}


@pytest.fixture(scope="module")
def wheel_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    build = (sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(directory))
    ended = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, timeout=250, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (made,) = directory.iterdir()
    return made


@pytest.fixture(scope="module")
def wheel(wheel_file: Path) -> Iterator[ZipFile]:
    with ZipFile(wheel_file) as opened:
        yield opened


@pytest.fixture(scope="module")
def plain_python(wheel_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python environment with the wheel and its required dependencies only."""
    environment = tmp_path_factory.mktemp("plain")
    venv.create(environment)
    python = environment / "bin/python"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python))
    tried = _run(*pip, "install", "--dry-run", "--ignore-installed", "click")
    if tried.returncode and "CI" not in os.environ:
        pytest.skip("no package can be installed here")
    assert tried.returncode == 0, tried.stdout + tried.stderr
    for arguments in (
        ("install", "--quiet", "--require-hashes", "--requirement", str(ROOT / "requirements/plain.txt")),
        ("install", "--quiet", "--no-deps", str(wheel_file)),
        ("check",),
    ):
        ended = _run(*pip, *arguments)
        assert ended.returncode == 0, ended.stdout + ended.stderr
    return python


def test_package_with_another_hash_is_refused(plain_python: Path, tmp_path: Path) -> None:
    """Of a package that somebody has replaced, nothing is installed."""
    locked = (ROOT / "requirements/plain.txt").read_text()
    (tmp_path / "plain.txt").write_text(re.sub("sha256:[0-9a-f]{8}", "sha256:00000000", locked))
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--target", str(tmp_path / "target"))
    ended = _run(*pip, "--require-hashes", "--requirement", str(tmp_path / "plain.txt"))
    assert (ended.returncode, "DO NOT MATCH THE HASHES" in ended.stderr) == (1, True), ended.stderr
    assert not (tmp_path / "target").exists()


@pytest.mark.long
@pytest.mark.parametrize("name", sorted({file.stem for file in LOCKS.glob("*.txt")} - {"development", "plain"}))
def test_every_lock_file_is_enough_for_a_clean_environment(name: str, tmp_path: Path) -> None:
    """pip refuses a package that a locked one needs and that has no hash. Other tests use `plain` and `development`."""
    venv.create(tmp_path)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(tmp_path / "bin/python"))
    ended = _run(*pip, "install", "--require-hashes", "--requirement", str(LOCKS / f"{name}.txt"))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert _run(*pip, "check").returncode == 0


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)


def test_wheel_has_every_module_and_py_typed(wheel: ZipFile) -> None:
    source = ROOT / "src"
    modules = {str(file.relative_to(source)) for file in (source / "forewarn").rglob("*.py")}
    assert {"forewarn/py.typed", *modules} <= set(wheel.namelist())


def test_wheel_has_every_file_of_the_dashboard_and_their_licences(wheel: ZipFile) -> None:
    source = ROOT / "src"
    folder = source / "forewarn/operator/dashboard"
    files = {str(file.relative_to(source)) for part in ("static", "templates") for file in (folder / part).iterdir()}
    assert {"forewarn/operator/dashboard/static/htmx.LICENSE", *files} <= set(wheel.namelist())
    (notice,) = (name for name in wheel.namelist() if name.endswith("/NOTICE"))
    assert "htmx 2.0.11" in wheel.read(notice).decode()


def test_nothing_else_is_installed(wheel: ZipFile) -> None:
    """The wheel has the package and its metadata: no tests, no samples."""
    assert {name.split("/")[0].partition("-")[0] for name in wheel.namelist()} == {"forewarn"}


def test_plain_install_has_only_the_expected_distributions(plain_python: Path) -> None:
    script = "import importlib.metadata as m; print(*(d.metadata['Name'].lower() for d in m.distributions()))"
    assert set(_run(str(plain_python), "-c", script).stdout.split()) == PLAIN_DISTRIBUTIONS


@pytest.mark.parametrize("arguments", [("--help",), ("vm", "list", "--help"), ("guest", "list"), ("agent", "check")])
def test_commands_of_a_plain_install_import_what_they_need(plain_python: Path, arguments: tuple[str, ...]) -> None:
    elsewhere = ("--endpoint", "http://127.0.0.1:1") if arguments[0] in {"guest", "agent"} else ()
    at_once = ("--retry-for", "0s") if arguments[0] == "guest" else ()
    ended = _run(str(plain_python.with_name("forewarn")), *arguments, *elsewhere, *at_once)
    assert "Traceback" not in ended.stderr
    assert ended.returncode == (5 if arguments[0] == "guest" else 0), ended.stderr


def test_emulator_of_a_plain_install_names_the_extra_and_creates_nothing(plain_python: Path, tmp_path: Path) -> None:
    ended = _run("env", "-i", f"HOME={tmp_path}", str(plain_python.with_name("forewarn")), "up")
    assert (ended.returncode, ended.stdout, list(tmp_path.iterdir())) == (2, "", [])
    assert "extra [server]" in ended.stderr


def test_plain_install_needs_three_packages(wheel: ZipFile) -> None:
    (metadata,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    needs = [line for line in wheel.read(metadata).decode().splitlines() if line.startswith("Requires-Dist: ")]
    plain = {line.split()[1].partition(">")[0] for line in needs if "extra ==" not in line}
    assert plain == {"click", "msgspec", "rich"}


def test_pytest_finds_the_fixtures_of_an_installed_wheel(wheel: ZipFile, tmp_path: Path) -> None:
    """The wheel's fixtures, not the repository's, load without warnings, even with filterwarnings = error."""
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
