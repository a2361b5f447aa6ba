"""The files in .github: workflows that actionlint accepts, with the project's own commands, and valid templates."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # its stubs are in a separate package, not worth it for two calls

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = sorted(file for file in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if file.name != "config.yml")
ACTIONLINT = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"


@pytest.fixture(scope="module")
def actionlint() -> tuple[str, ...]:
    """The command of actionlint: an installed one, or the pinned version, which Go downloads, checks and builds."""
    if installed := shutil.which("actionlint"):
        return (installed,)
    if shutil.which("go") is None:
        pytest.skip("install actionlint, or Go, which builds it")
    command = ("go", "run", ACTIONLINT)
    built = subprocess.run((*command, "-version"), capture_output=True, text=True, timeout=280, check=False)
    if built.returncode:
        pytest.skip(f"Go cannot build actionlint: {built.stderr.strip().splitlines()[-1]}")
    return command


def lint(actionlint: tuple[str, ...], *files: Path) -> tuple[int, str]:
    ended = subprocess.run(
        (*actionlint, "-no-color", *map(str, files)), cwd=ROOT, capture_output=True, text=True, timeout=280, check=False
    )
    return ended.returncode, ended.stdout + ended.stderr


@pytest.mark.process
def test_actionlint_accepts_the_workflows(actionlint: tuple[str, ...]) -> None:
    assert WORKFLOWS
    assert lint(actionlint, *WORKFLOWS) == (0, "")


@pytest.mark.process
def test_actionlint_finds_a_fault(actionlint: tuple[str, ...], tmp_path: Path) -> None:
    planted = tmp_path / "ci.yml"
    planted.write_text((GITHUB / "workflows/ci.yml").read_text().replace("matrix.python", "matrix.pyhton"))
    code, output = lint(actionlint, planted)
    assert (code, 'property "pyhton" is not defined' in output) == (1, True), output


def jobs(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(file.read_text())["jobs"]
    return found


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_workflow_has_limits_and_no_rights(file: Path) -> None:
    assert yaml.safe_load(file.read_text())["permissions"] == {"contents": "read"}
    assert [name for name, job in jobs(file).items() if "timeout-minutes" not in job] == []
    assert "secrets." not in file.read_text()


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_workflow_runs_commands_of_the_makefile(file: Path) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    commands = [step["run"] for job in jobs(file).values() for step in job["steps"] if "run" in step]
    used = [command.split()[1] for command in commands if command.startswith("make ")]
    assert used
    assert set(used) <= set(targets)


def test_tests_run_on_every_supported_python(project: dict[str, Any]) -> None:
    prefix = "Programming Language :: Python :: "
    classifiers = (line.removeprefix(prefix) for line in project["project"]["classifiers"] if line.startswith(prefix))
    supported = [version for version in classifiers if "." in version]
    assert jobs(GITHUB / "workflows/ci.yml")["test"]["strategy"]["matrix"]["python"] == supported


def test_ci_checks_tests_builds_docs_and_wheel() -> None:
    assert set(jobs(GITHUB / "workflows/ci.yml")) == {"check", "test", "docs", "wheel"}


@pytest.mark.parametrize("file", FORMS, ids=lambda file: file.stem)
def test_issue_form_is_complete(file: Path) -> None:
    form = yaml.safe_load(file.read_text())
    assert {"name", "description", "body"} <= form.keys()
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert {field["type"] for field in fields} <= {"textarea", "input", "dropdown", "checkboxes"}
    assert len({field["id"] for field in fields}) == len(fields)
    assert all(field["attributes"]["label"] for field in fields)


def test_pull_request_template_names_commands_that_exist() -> None:
    text = (GITHUB / "PULL_REQUEST_TEMPLATE.md").read_text()
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = [word for command in re.findall("`make ([^`]+)`", text) for word in command.split()]
    assert named
    assert set(named) <= set(targets)
