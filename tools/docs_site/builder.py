"""The input of Zensical, and its run."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tools.docs_site.dialect import translate
from tools.docs_site.navigation import navigation
from tools.docs_site.pages import DocsError, collect

HERE = Path(__file__).parent
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def build(root: Path, folder: Path) -> None:
    """Write the site into `site` in a folder, which is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    write_input(root, folder)
    zensical = (sys.executable, "-m", "zensical", "build", "--strict")
    ended = subprocess.run(zensical, cwd=folder, capture_output=True, text=True, check=False)
    if ended.returncode:
        report, _, _ = COLOUR.sub("", ended.stdout + ended.stderr).partition("Traceback")
        raise DocsError(f"zensical build --strict failed:\n{report.rstrip()}")


def write_input(root: Path, folder: Path) -> None:
    """Write the pages, the pictures and the configuration into a folder."""
    pages, pictures = collect(root)
    shutil.copytree(HERE / "static", folder / "pages")
    for page in pages.values():
        file = folder / "pages" / page.name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(translate(page.site_text()))
    for picture in pictures:
        file = folder / "pages" / picture
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / picture, file)
    before, project, after = (HERE / "zensical.toml").read_text().partition("[project]\n")
    entries = ", ".join(entry.as_toml() for entry in navigation(pages))
    (folder / "zensical.toml").write_text(f"{before}{project}nav = [{entries}]\n{after}")
