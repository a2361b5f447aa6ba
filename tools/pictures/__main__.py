"""Render every picture of the documentation: `make pictures` writes docs/pictures/*.svg."""

import sys

from tools.pictures.catalog import FOLDER, PICTURES


def main() -> int:
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw())
        print(f"docs/pictures/{name}.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
