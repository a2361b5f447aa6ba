"""Test folders mirror the packages, and tests of core import nothing above core."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ALLOWED = ("forewarn.core", "forewarn.testing.scenario")
"""What tests of the rules may import of Forewarn: the rules, and the runner of the scenario files."""


def imported_modules(file: Path) -> Iterator[str]:
    """Yield every module that a file imports, wherever in the file; also what may be a module in `from x import y`."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def helpers_of(file: Path, root: Path) -> dict[Path, Path]:
    """Return the files below tests/ that a file imports, directly or through others, each with its importer."""
    found: dict[Path, Path] = {}
    todo = [file]
    while todo:
        importer = todo.pop()
        for module in imported_modules(importer):
            helper = root / (module.replace(".", "/") + ".py")
            if module.startswith("tests.") and helper.is_file() and helper not in found:
                found[helper] = importer
                todo.append(helper)
    return found


def is_within(module: str, package: str) -> bool:
    return f"{module}.".startswith(f"{package}.")


def imports_above_core(root: Path) -> list[str]:
    """Return every import of tests/core that is neither core, nor the scenario runner, nor foreign."""
    wrong = []
    for test in sorted((root / "tests/core").rglob("*.py")):
        for file in (test, *helpers_of(test, root)):
            modules = {module for module in imported_modules(file) if is_within(module, "forewarn")} - {"forewarn"}
            wrong += [
                f"{test.relative_to(root)}: {module} (in {file.relative_to(root)})"
                for module in sorted(modules)
                if module.rpartition(".")[0] not in modules and not any(is_within(module, part) for part in ALLOWED)
            ]
    return wrong


def test_tests_of_core_import_nothing_above_core_except_the_scenario_runner() -> None:
    assert imports_above_core(ROOT) == []


@pytest.mark.parametrize(
    ("statement", "module"),
    [
        ("import forewarn.wire.document", "forewarn.wire.document"),
        ("from forewarn import wire", "forewarn.wire"),
        ("from forewarn.fleet.service import Fleet", "forewarn.fleet.service"),
        ("from tests" + ".fleet.planted import run_fleet", "forewarn.fleet.service"),
        ("def test() -> None:\n    import forewarn.clock", "forewarn.clock"),
    ],
    ids=["plain", "package", "module", "by a helper", "inside a function"],
)
def test_import_above_core_is_found(tmp_path: Path, statement: str, module: str) -> None:
    for name, source in {
        "core/test_planted.py": statement,
        "fleet/planted.py": "import forewarn.fleet.service",
    }.items():
        file = tmp_path / "tests" / name
        file.parent.mkdir(parents=True)
        file.write_text(source)
    assert any(line.startswith(f"tests/core/test_planted.py: {module} ") for line in imports_above_core(tmp_path))


NO_MIRROR = {
    "docs": "pages of docs/",
    "end_to_end": "real processes of several packages",
    "examples": "programs of examples/",
    "namespaces": "VMs in network namespaces",
    "packaging": "the wheel and the files of packaging/",
    "repository": "the repository itself",
    "stored": "data that older commits have written",
    "support": "helpers, no tests",
    "third_party_clients": "clients that know nothing of Forewarn",
}
"""Folders of tests/ that mirror no package."""

NO_MODULE = {
    "client/test_client_public_names.py": "the package forewarn.client itself",
    "client/test_client_types.py": "the package forewarn.client itself, as type checkers see it",
    "core/test_scenarios.py": "one scenario file per rule, over all modules of core",
    "wire/test_golden.py": "golden files of every kind of response, over all modules of wire",
}
"""Test files in mirrored folders that test no single module."""


def misplaced_tests(root: Path) -> list[str]:
    """Return the test files that are not named after a module or package of the folder that theirs mirrors."""
    tests = root / "tests"
    names = (file.relative_to(tests) for file in sorted(tests.rglob("test_*.py")))
    return [
        str(name)
        for name in names
        if name.parts[0] not in NO_MIRROR and str(name) not in NO_MODULE and not _has_module(root, name)
    ]


def _has_module(root: Path, test: Path) -> bool:
    return module_of(root, test) is not None


def module_of(root: Path, test: Path) -> Path | None:
    """Return the module or package that a test file is named after, the one with the longest name; both relative."""
    source = root if test.parts[0] == "bench" else root / "src/forewarn"
    modules = {file.stem for file in (source / test.parent).glob("*.py")} - {"__init__"}
    packages = {file.parent.name for file in (source / test.parent).glob("*/__init__.py")}
    named = [name for name in modules | packages if f"{test.stem}_".startswith(f"test_{name}_")]
    return test.parent / max(named, key=len) if named else None


def test_tests_are_named_after_the_modules_they_test() -> None:
    assert misplaced_tests(ROOT) == []


def test_every_exception_to_the_layout_is_needed() -> None:
    tests = ROOT / "tests"
    assert {name for name in NO_MIRROR if not (tests / name).is_dir()} == set()
    assert {name for name in NO_MODULE if not (tests / name).is_file() or _has_module(ROOT, Path(name))} == set()


def test_misplaced_test_is_found(tmp_path: Path) -> None:
    for name in (
        "src/forewarn/guest/__init__.py",
        "src/forewarn/guest/long_poll.py",
        "src/forewarn/store/sqlite/__init__.py",
        "tests/guest/test_long_poll.py",
        "tests/guest/test_long_poll_limits.py",
        "tests/guest/test_long.py",
        "tests/guest/test_long_polling.py",
        "tests/guest/running_endpoint.py",
        "tests/guests/test_long_poll.py",
        "tests/store/test_sqlite.py",
        "tests/docs/test_anything.py",
    ):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    assert misplaced_tests(tmp_path) == [
        "guest/test_long.py",
        "guest/test_long_polling.py",
        "guests/test_long_poll.py",
    ]


def modules_without_a_test_file(root: Path) -> list[str]:
    """Return the modules after which, and after whose package, no test file is named."""
    tests = root / "tests"
    tested = {module_of(root, test.relative_to(tests)) for test in tests.rglob("test_*.py")}
    source = root / "src/forewarn"
    modules = (file.relative_to(source).with_suffix("") for file in sorted(source.rglob("*.py")))
    return [
        str(module)
        for module in modules
        if not module.name.startswith("__") and module not in tested and module.parent not in tested
    ]


def test_every_module_has_a_test_file_of_its_name() -> None:
    assert modules_without_a_test_file(ROOT) == []


def test_module_without_a_test_file_is_found(tmp_path: Path) -> None:
    for name in (
        "src/forewarn/core/__init__.py",
        "src/forewarn/core/__main__.py",
        "src/forewarn/core/event.py",
        "src/forewarn/core/impact.py",
        "src/forewarn/core/impact_lifecycle.py",
        "src/forewarn/core/rules/__init__.py",
        "src/forewarn/core/rules/approval.py",
        "src/forewarn/wire/__init__.py",
        "src/forewarn/wire/event.py",
        "tests/core/test_event_values.py",
        "tests/core/test_impact_lifecycle.py",
        "tests/core/test_rules.py",
    ):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    assert modules_without_a_test_file(tmp_path) == ["core/impact", "wire/event"]
