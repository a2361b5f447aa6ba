"""The command `make docs`."""

import sys
from pathlib import Path

from tools.docs_site.builder import build
from tools.docs_site.pages import DocsError

ROOT = Path(__file__).parents[2]


def main(arguments: list[str]) -> None:
    folder = Path(*arguments).absolute() if arguments else ROOT / "build/docs"
    try:
        build(ROOT, folder)
    except DocsError as error:
        sys.exit(f"docs: {error}")
    print(f"Open {folder / 'site/index.html'}")


main(sys.argv[1:])
