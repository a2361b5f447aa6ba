"""Public names of the packages that users import, and of the pytest fixtures.

`expected/public-names.json` is what `python public_names.py` printed with commit 450409b installed.
"""

import ast
import inspect
import json
import sys
from importlib import import_module
from types import ModuleType

PACKAGES = (
    "forewarn.client",
    "forewarn.testing",
    "forewarn.testing.conformance",
    "forewarn.testing.exam",
    "forewarn.testing.sandbox",
)
PLUGIN = "forewarn.testing.plugin"


def public_names() -> dict[str, list[str]]:
    """Return the names by package; those of the plugin are its fixtures."""
    modules = {package: import_module(package) for package in PACKAGES}
    names = {package: sorted(getattr(module, "__all__", own_names(module))) for package, module in modules.items()}
    return names | {PLUGIN: sorted(fixtures(import_module(PLUGIN)))}


def own_names(module: ModuleType) -> set[str]:
    """Return names without underscore that a package without `__all__` defines or imports from its own modules."""
    names: set[str] = set()
    for node in ast.parse(inspect.getsource(module)).body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Assign(targets=[ast.Name(id=name)]):
                names.add(name)
            case ast.ImportFrom(module=str(source), names=imported) if source.startswith(f"{module.__name__}."):
                names.update(alias.asname or alias.name for alias in imported)
            case _:
                pass
    return {name for name in names if not name.startswith("_")}


def fixtures(module: ModuleType) -> set[str]:
    """Return the names of the fixtures that a module defines."""
    return {
        node.name
        for node in ast.parse(inspect.getsource(module)).body
        if isinstance(node, ast.FunctionDef) and any(ast.unparse(d) == "pytest.fixture" for d in node.decorator_list)
    }


if __name__ == "__main__":
    sys.stdout.write(f"{json.dumps(public_names(), indent=1)}\n")
