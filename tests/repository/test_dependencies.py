"""Every imported package is declared in the right extra, and every declared package is used."""

import ast
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from forewarn.cli.extras import SERVER_PACKAGES

PLAIN = ""
EXTRA_OF_PART = {
    "agent/handlers/apprise_main.py": "notify",
    "cli/process/ready_message.py": "server",
    "cli/process/serve_main.py": "server",
    "cli/process/up_main.py": "server",
    "compose": "server",
    "fleet": "server",
    "guest": "server",
    "operator": "server",
    "platform": "server",
    "store": "server",
    "store/nats": "cluster",
    "testing": "testing",
}
"""The extra that a part of the package needs; all other parts have to work with a plain install."""

WITHOUT_IMPORT = {"tzdata"}
"""Declared, but never imported: time zone data for machines without it."""

FOREIGN_PROGRAMS = "tests/third_party_clients/programs"
"""Programs that use packages of environments of their own."""

TYPES_ONLY = {"_typeshed"}
"""Imported under TYPE_CHECKING only."""


def imported_packages(source: str) -> set[str]:
    """Return the third-party top-level packages that a module imports, anywhere in its code."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found.update(alias.name.partition(".")[0] for alias in names)
            case ast.ImportFrom(module=str(module), level=0):
                found.add(module.partition(".")[0])
            case _:
                pass
    return found - sys.stdlib_module_names - TYPES_ONLY - {"forewarn"}


def extra_of(path: Path) -> str:
    """Return the extra that a module may use, by its path below the package."""
    parts = (path.as_posix(), *(parent.as_posix() for parent in path.parents))
    return next((EXTRA_OF_PART[part] for part in parts if part in EXTRA_OF_PART), PLAIN)


def declared(project: dict[str, Any], extra: str) -> set[str]:
    """Return the distributions of a plain install, or of an extra alone."""
    extras = project["project"]["optional-dependencies"]
    lines = project["project"]["dependencies"] if extra == PLAIN else extras[extra]
    return {str(canonicalize_name(Requirement(line).name)) for line in lines} - {"forewarn"}


def allowed(project: dict[str, Any], extra: str) -> set[str]:
    """Return the distributions that a module of this extra may use."""
    others = {"server", extra} if extra in {"testing", "cluster"} else {extra}
    return set().union(*(declared(project, each) for each in {PLAIN, *others}))


def imports(root: Path) -> Iterator[tuple[str, str, str]]:
    """Yield the module, its extra and the distribution of every import."""
    distributions = packages_distributions()
    package = root / "src/forewarn"
    for path in sorted(package.rglob("*.py")):
        module = path.relative_to(package)
        for name in imported_packages(path.read_text()):
            yield module.as_posix(), extra_of(module), canonicalize_name(distributions[name][0])


def test_imported_packages_are_declared(root: Path, project: dict[str, Any]) -> None:
    undeclared = {(module, name) for module, extra, name in imports(root) if name not in allowed(project, extra)}
    assert undeclared == set()


def test_declared_packages_are_imported(root: Path, project: dict[str, Any]) -> None:
    used = {name for _, _, name in imports(root)}
    every = set().union(*(declared(project, extra) for extra in (PLAIN, "server", "testing", "notify", "cluster")))
    assert every - used == WITHOUT_IMPORT


def test_commands_check_every_package_of_the_server_extra(project: dict[str, Any]) -> None:
    """A package that they do not check would be missed only after the emulator has created its data directory."""
    distributions = packages_distributions()
    checked = {canonicalize_name(distributions[name][0]) for name in SERVER_PACKAGES}
    assert checked == declared(project, "server") - WITHOUT_IMPORT


def test_packages_of_tests_and_tools_are_declared(root: Path, project: dict[str, Any]) -> None:
    extras = project["project"]["optional-dependencies"]
    lines = [*project["build-system"]["requires"]]
    lines += [line for file in ("dev", "docs") for line in (root / f"requirements-{file}.txt").read_text().splitlines()]
    known = {str(canonicalize_name(Requirement(line).name)) for line in lines}
    known |= set().union(*(declared(project, extra) for extra in (PLAIN, *extras)))
    distributions = packages_distributions()
    undeclared = {
        (path.relative_to(root).as_posix(), name)
        for folder in ("tests", "bench", "tools")
        for path in (root / folder).rglob("*.py")
        if not path.is_relative_to(root / FOREIGN_PROGRAMS)
        for name in imported_packages(path.read_text())
        if name not in {"tests", "bench", "tools"} and not path.with_name(f"{name}.py").exists()
        if not {canonicalize_name(each) for each in distributions.get(name, [name])} & known
    }
    assert undeclared == set()


def test_parts_with_an_extra_exist(root: Path) -> None:
    assert [part for part in EXTRA_OF_PART if not (root / "src/forewarn" / part).exists()] == []


def installed_with(names: set[str]) -> set[str]:
    """Return these distributions and their requirements, from the metadata of the installed ones."""
    found: set[str] = set()
    waiting = set(names)
    while waiting:
        name = waiting.pop()
        found.add(name)
        needs = [Requirement(line) for line in requires(name) or ()]
        without_extra = (need for need in needs if need.marker is None or need.marker.evaluate({"extra": ""}))
        waiting |= {canonicalize_name(need.name) for need in without_extra} - found
    return found


def test_plain_install_needs_few_packages(project: dict[str, Any]) -> None:
    """`tests/packaging` installs the wheel in a clean environment."""
    plain = installed_with(declared(project, PLAIN))
    assert plain == {"click", "markdown-it-py", "mdurl", "msgspec", "pygments", "rich"}


def test_server_extra_has_no_package_that_litestar_loads_needlessly(project: dict[str, Any]) -> None:
    """Litestar loads these if installed, which takes longer than loading the rest of the operator API."""
    assert installed_with(declared(project, "server")) & {"attrs", "pydantic"} == set()


def test_imports_are_found_wherever_they_are() -> None:
    source = (
        "import os, yaml.nodes\nfrom forewarn.core import text\ndef f():\n    from a.b import c\n    from . import d\n"
    )
    assert imported_packages(source) == {"yaml", "a"}


def test_extra_of_a_module_is_that_of_the_nearest_part() -> None:
    modules = ("agent/handlers/apprise_main.py", "operator/routes/events.py", "cli/app.py", "cli/process/up_main.py")
    assert [extra_of(Path(module)) for module in modules] == ["notify", "server", PLAIN, "server"]
