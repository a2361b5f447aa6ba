"""A copy of the package with one more line: shows that a new key needs no change elsewhere."""

import json
import urllib.request
from pathlib import Path
from typing import Any

import forewarn
from tests.support.program import UpProcess


def extended_package(folder: Path, module: str, line: str, *, before: str) -> Path:
    """Return a folder with the package as it is, except for one more line in a module, before the given text."""
    package, copy = Path(forewarn.__file__).parent, folder / "forewarn"
    copy.mkdir(parents=True)
    for part in Path(module).parts:
        for each in {*package.iterdir()} - {package / part}:
            (copy / each.name).symlink_to(each)
        package, copy = package / part, copy / part
        if package.is_dir():
            copy.mkdir()
    start, found, end = package.read_text().partition(before)
    assert found
    copy.write_text(start + line + found + end)
    return folder


def schemas_with_property(service: UpProcess, name: str) -> list[str]:
    """Return the schemas of the OpenAPI document that have a property."""
    token = Path(service.ready["token_file"]).read_text().strip()
    request = urllib.request.Request(
        f"{service.ready['operator_url']}/openapi.json", headers={"Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(request) as response:
        schemas: dict[str, Any] = json.load(response)["components"]["schemas"]
    return [each for each in schemas if name in schemas[each].get("properties", {})]
