"""`make release`: sdist, wheel, SBOM and checksums, checked and tried in a clean environment."""

import hashlib
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn import __version__
from tools import release

pytestmark = pytest.mark.process


@pytest.mark.long
@pytest.mark.timeout(900)  # it installs packages and runs the README; on a busy machine that takes minutes
def test_release_is_built_checked_and_tried(tmp_path: Path) -> None:
    """It installs the wheel with hash-checked packages, and runs the commands of the README with it."""
    from cyclonedx.schema import SchemaVersion  # here, because this import takes two seconds
    from cyclonedx.validation.json import JsonStrictValidator

    (tmp_path / "forewarn-0.0.1.tar.gz").touch()
    command = (sys.executable, "-m", "tools.release", "--directory", str(tmp_path))
    ended = subprocess.run(command, cwd=release.ROOT, capture_output=True, text=True, timeout=890, check=False)
    assert ended.returncode == 0, ended.stderr
    name = f"forewarn-{__version__}"
    built = (f"{name}.tar.gz", f"{name}-py3-none-any.whl", f"{name}.cdx.json")
    assert {file.name for file in tmp_path.iterdir()} == {*built, f"{name}.sha256"}
    sums = {file: hashlib.sha256((tmp_path / file).read_bytes()).hexdigest() for file in built}
    assert (tmp_path / f"{name}.sha256").read_text() == "".join(f"{sums[file]}  {file}\n" for file in built)
    sbom = (tmp_path / f"{name}.cdx.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(sbom) is None
    assert described(sbom) == {("forewarn", __version__), *runtime_packages()}


def test_release_has_the_packages_of_every_extra_for_production() -> None:
    project = tomllib.loads((release.ROOT / "pyproject.toml").read_text())["project"]
    assert {*release.LOCKS, "testing"} == set(project["optional-dependencies"])


def described(sbom: str) -> set[tuple[str, str]]:
    """Return the packages that an SBOM describes."""
    document = json.loads(sbom)
    components = [document["metadata"]["component"], *document["components"]]
    return {(each["name"].lower().replace("_", "-"), each["version"]) for each in components}


def runtime_packages() -> Iterator[tuple[str, str]]:
    """Yield the packages of the lock files of a release that are installed on Linux."""
    for lock in release.LOCKS:
        for line in (release.ROOT / f"requirements/{lock}.txt").read_text().splitlines():
            if "==" in line and "win32" not in line.replace("!= 'win32'", ""):
                name, _, version = line.split()[0].partition("==")
                yield name, version


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of which everything is committed."""
    monkeypatch.setattr(release, "ROOT", tmp_path)
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n\n## [1.2.0] - 2030-01-01\n")
    author = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.org")
    for arguments in (("init", "-q"), ("add", "CHANGELOG.md"), (*author, "commit", "-q", "-m", "start")):
        subprocess.run(("git", *arguments), cwd=tmp_path, check=True)
    return tmp_path


def test_final_release_needs_everything_committed(repository: Path) -> None:
    release.check_source("1.2.0")
    (repository / "forgotten.py").touch()
    with pytest.raises(release.ReleaseError, match=r"uncommitted changes(.|\n)*forgotten\.py"):
        release.check_source("1.2.0")


def test_final_release_needs_a_section_in_the_changelog(repository: Path) -> None:
    with pytest.raises(release.ReleaseError, match=r"CHANGELOG.md has no section 1\.3\.0"):
        release.check_source("1.3.0")


def test_failed_step_names_its_command_and_output() -> None:
    with pytest.raises(release.ReleaseError, match=r"`sh -c echo no; exit 3` failed:\nno"):
        release.run("sh", "-c", "echo no; exit 3")


def test_version_is_that_of_the_code() -> None:
    assert release.read_version() == __version__
