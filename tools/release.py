"""Build and check a release: sdist, wheel, SBOM and checksums, in dist/.

The wheel is installed in a clean environment, from hash-checked packages, and the commands of the README run with it.
Nothing is uploaded.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCKS = ("server", "notify", "cluster")
"""The files in requirements/ with everything that the service and the agent need at run time."""


class ReleaseError(Exception):
    """A step of the release failed."""


def main() -> None:
    """Build and check a release."""
    parser = argparse.ArgumentParser(prog="make release", description=__doc__.splitlines()[0])
    parser.add_argument("--directory", type=Path, default=ROOT / "dist", help="where to write the files")
    parser.add_argument(
        "--final",
        action="store_true",
        help="refuse uncommitted changes and a version without a section in CHANGELOG.md",
    )
    arguments = parser.parse_args()
    try:
        release(arguments.directory.resolve(), final=arguments.final)
    except ReleaseError as error:
        sys.exit(f"release: {error}")


def release(directory: Path, *, final: bool) -> None:
    """Build and check the files of a release; replace those of an earlier run."""
    version = read_version()
    if final:
        check_source(version)
    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.glob("forewarn-*"):
        old.unlink()
    step("Building sdist and wheel")
    run(
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "--directory",
        str(directory),
        "--target",
        "sdist",
        "--target",
        "wheel",
    )
    wheel = directory / f"forewarn-{version}-py3-none-any.whl"
    files = [directory / f"forewarn-{version}.tar.gz", wheel]
    if missing := [file.name for file in files if not file.is_file()]:
        raise ReleaseError(f"hatchling did not build {', '.join(missing)}")
    step("Checking their metadata with twine")
    run(sys.executable, "-m", "twine", "check", "--strict", *map(str, files))
    with tempfile.TemporaryDirectory(prefix="forewarn-release-") as temporary:
        environment = Path(temporary)
        step("Installing the wheel in a clean environment")
        install(wheel, environment)
        step("Writing the SBOM")
        files.append(write_sbom(directory / f"forewarn-{version}.cdx.json", environment, version))
        step("Running the commands of README.md with the installed wheel")
        test = ("tests/docs/test_pages.py", "-k", "README", "-q", "-p", "no:cacheprovider")
        run(sys.executable, "-m", "pytest", *test, PROGRAMS_OF_PAGES=str(environment / "bin"))
    sums = "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)
    (directory / f"forewarn-{version}.sha256").write_text(sums)
    step(f"Done. Files in {directory}:")
    print(sums, end="")


def read_version() -> str:
    """Return the version in the code."""
    found = re.search(r'^__version__ = "(.+)"$', (ROOT / "src/forewarn/__init__.py").read_text(), re.MULTILINE)
    if found is None:
        raise ReleaseError("src/forewarn/__init__.py has no __version__")
    return found[1]


def check_source(version: str) -> None:
    """Refuse to release what is not committed, or a version that the changelog does not describe."""
    if changed := run("git", "status", "--porcelain"):
        raise ReleaseError(f"uncommitted changes: commit them, or remove the files.\n{changed.rstrip()}")
    if f"\n## [{version}]" not in (ROOT / "CHANGELOG.md").read_text():
        raise ReleaseError(f"CHANGELOG.md has no section {version}: rename the section Unreleased to [{version}]")


def install(wheel: Path, environment: Path) -> None:
    """Install the wheel and its hash-checked dependencies in a new virtual environment."""
    venv.create(environment)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(environment / "bin/python"))
    locks = [word for name in LOCKS for word in ("--requirement", str(ROOT / "requirements" / f"{name}.txt"))]
    run(*pip, "install", "--quiet", "--require-hashes", *locks)
    run(*pip, "install", "--quiet", "--no-deps", str(wheel))
    run(*pip, "check")


def write_sbom(file: Path, environment: Path, version: str) -> Path:
    """Write a CycloneDX description of what is installed: packages, versions, licences, dependencies."""
    generator = (sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible", "--of", "JSON")
    project = ("--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "application")
    run(*generator, *project, "--output-file", str(file), str(environment / "bin/python"))
    document = json.loads(file.read_text())
    # The version is in the code, where the generator does not look.
    document["metadata"]["component"]["version"] = version
    file.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    return file


def step(text: str) -> None:
    """Tell what happens next."""
    print(text, file=sys.stderr, flush=True)


def run(*command: str, **environ: str) -> str:
    """Run a program in the root of the repository; return its output."""
    program = shutil.which(command[0]) or command[0]
    variables = os.environ | environ
    ended = subprocess.run(
        [program, *command[1:]], cwd=ROOT, env=variables, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        raise ReleaseError(f"`{' '.join(command)}` failed:\n{ended.stdout}{ended.stderr}".rstrip())
    return ended.stdout


if __name__ == "__main__":
    main()
