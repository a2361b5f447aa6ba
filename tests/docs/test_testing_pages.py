"""The testing pages contain complete tests in several languages: each is saved to a file and passes."""

import configparser
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]  # its stubs are in a separate package, not worth it for one call

from forewarn import __version__
from tests.docs.console import normal, programs, steps
from tests.support.emulator import plain_environment
from tests.support.inner_pytest import WITHOUT_OTHERS

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
HOWTO = ROOT / "docs/howto"
FILE = re.compile(
    r"^```\w+\n((?:#|//) ([\w.-]+\.(?:py|toml|sh|mjs|go|yml|ini|mk))\n.*?)^```$", re.MULTILINE | re.DOTALL
)
OTHERS = HOWTO / "test-from-other-languages.md"
CI = HOWTO / "test-in-ci.md"
WHEEL = f"forewarn-{__version__}-py3-none-any.whl"


def saved(page: Path, directory: Path) -> list[str]:
    """Save the files of a page whose first line names them, and return their names."""
    files = FILE.findall(page.read_text(encoding="utf-8"))
    for text, name in files:
        assert not (directory / name).exists(), f"{page.name} has two files {name}"
        (directory / name).write_text(text, encoding="utf-8")
    return [name for _, name in files]


def output_of(directory: Path, *command: str, **environ: str) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=directory,
        env=plain_environment(PATH=path, **environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def need(*programs: str) -> None:
    if missing := [program for program in programs if shutil.which(program) is None]:
        pytest.skip(f"the page's code needs {', '.join(missing)}: install them, and add them to the PATH")


def test_shell(tmp_path: Path) -> None:
    need("bash", "curl", "jq")
    saved(OTHERS, tmp_path)
    (step,) = steps(OTHERS)
    assert normal(output_of(tmp_path, "bash", "-c", step.command)) == normal(step.prints)


def test_node(tmp_path: Path) -> None:
    need("node")
    saved(OTHERS, tmp_path)
    output = output_of(tmp_path, "node", "--test", "--test-reporter=tap")
    assert re.search(r"^# pass 3$", output, re.MULTILINE), output


def test_go(tmp_path: Path) -> None:
    need("go")
    saved(OTHERS, tmp_path)
    own = {"GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"}
    output_of(tmp_path, "go", "mod", "init", "example.org/handler", **own)
    assert output_of(tmp_path, "gofmt", "-l", ".") == ""
    output = output_of(tmp_path, "go", "test", "-v", **own)
    assert output.count("--- PASS: ") == 2, output


PYTEST = (sys.executable, "-m", "pytest", *WITHOUT_OTHERS, "-q", "-p", "no:cacheprovider", "--assert=plain")
"""Plain assertions: no test fails here, and pytest need not recompile Forewarn to rewrite them."""


def test_pytest_page(tmp_path: Path) -> None:
    files = saved(HOWTO / "test-in-pytest.md", tmp_path)
    (tmp_path / "unchanged.py").write_text(programs(ROOT / "README.md")["handler.py"])
    tests = [name for name in files if name.startswith("test_")]
    assert len(tests) == 6
    asyncio = ("-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function", "async_example.py")
    output = output_of(tmp_path, *PYTEST, *tests, *asyncio)
    assert re.search(r"^13 passed in", output, re.MULTILINE), output


def test_without_pytest_on_the_pytest_page(tmp_path: Path) -> None:
    saved(HOWTO / "test-in-pytest.md", tmp_path)
    assert output_of(tmp_path, sys.executable, "without_pytest.py") == "Scheduled\nStarted\n"


class TestContinuousIntegration:
    @pytest.fixture
    def directory(self, tmp_path: Path) -> Path:
        """The files of the page, and a project that they test."""
        assert saved(CI, tmp_path) == ["handler.yml", "tox.ini", "handler.mk"]
        (tmp_path / "test_handler.py").write_text("def test_handler(forewarn):\n    assert forewarn.events == []\n")
        return tmp_path

    def test_workflow_installs_and_tests(self, directory: Path) -> None:
        workflow = yaml.safe_load((directory / "handler.yml").read_text())
        steps_ = workflow["jobs"]["test"]["steps"]
        commands = [step["run"] for step in steps_ if "run" in step]
        assert commands == [
            f"pip install './vendor/{WHEEL}[testing]' pytest-xdist",
            "pytest -n auto --junitxml=handler.xml",
        ]
        command = commands[1].replace("auto", "0").split()[1:]
        output_of(directory, *PYTEST, "-p", "no:asyncio", *command)
        assert 'tests="1"' in (directory / "handler.xml").read_text()

    def test_tox_runs_the_same(self, directory: Path) -> None:
        settings = configparser.ConfigParser()
        settings.read(directory / "tox.ini")
        assert settings["testenv"]["deps"].split() == [f"{{toxinidir}}/vendor/{WHEEL}[testing]", "pytest-xdist"]
        assert settings["testenv"]["commands"] == "pytest -n auto {posargs}"

    def test_make_creates_the_environment_and_runs_pytest(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        need("make")
        for name in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PYTHON"):
            monkeypatch.delenv(name, raising=False)  # of the make that runs the tests
        planned = output_of(directory, "make", "--dry-run", "-f", "handler.mk", "ARGS=-x").splitlines()
        assert planned == [
            "python3 -m venv .venv",
            f".venv/bin/pip install --quiet './vendor/{WHEEL}[testing]'",
            "touch .venv/.installed",
            ".venv/bin/pytest -x",
        ]
        (directory / ".venv").mkdir()
        (directory / ".venv/bin").symlink_to(Path(sys.executable).parent)
        (directory / ".venv/.installed").touch()
        output = output_of(directory, "make", "--silent", "-f", "handler.mk", "ARGS=--version")
        assert output == f"pytest {pytest.__version__}\n"
