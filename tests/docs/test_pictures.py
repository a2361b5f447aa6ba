"""Pictures of the documentation: current, self-contained, and used on a page."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tools.pictures import main_loop, packages, state_machine
from tools.pictures.catalog import FOLDER, PICTURES
from tools.pictures.svg import PLAIN, Canvas, TextTooWide

ROOT = Path(__file__).parents[2]
ELEMENTS = {"svg", "title", "defs", "marker", "path", "rect", "text", "polyline", "circle"}


@pytest.mark.parametrize("name", PICTURES)
def test_committed_picture_is_up_to_date(name: str) -> None:
    assert (FOLDER / f"{name}.svg").read_text() == PICTURES[name](), "stale: run `make pictures`"


@pytest.mark.parametrize("name", PICTURES)
def test_picture_loads_no_external_resource(name: str) -> None:
    """No script, image, style sheet or font: a page with it works offline and makes no request."""
    picture = (FOLDER / f"{name}.svg").read_text()
    tree = ElementTree.fromstring(picture)
    assert {element.tag.partition("}")[2] for element in tree.iter()} <= ELEMENTS
    assert set(re.findall(r"https?://[^\s\"<]+", picture)) == {"http://www.w3.org/2000/svg"}
    assert tree.findtext("{http://www.w3.org/2000/svg}title")


def test_folder_has_no_other_pictures() -> None:
    assert sorted(file.stem for file in FOLDER.glob("*.svg")) == sorted(PICTURES)


def test_every_picture_is_on_a_page_with_an_alternative_text() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    used = [name for page in pages for name in re.findall(r"!\[.+?\]\([^)]*pictures/([\w-]+)\.svg\)", page.read_text())]
    assert set(used) == set(PICTURES)


def test_text_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(TextTooWide, match="does not fit into 40"):
        Canvas(100, 100, title="test").box(0, 0, 40, 40, "far too long for this box")


def test_every_transition_of_a_state_machine_is_drawn() -> None:
    edges = {("a", "b"): ["next"], ("a", "c"): ["skip"], ("c", "a"): ["back"], ("b", "b"): ["again"]}
    picture = state_machine.draw_states("abc", edges, title="test", colours=dict.fromkeys("abc", PLAIN))
    texts = [element.text for element in ElementTree.fromstring(picture).iter() if element.tag.endswith("}text")]
    assert sorted(text for text in texts if text) == ["a", "again", "b", "back", "c", "next", "skip"]


def test_main_loop_shows_the_observers_of_the_code() -> None:
    picture = main_loop.draw()
    names = ["scheduler", "impacts", "campaigns", "metrics", "logs", "roster changes", "long polls"]
    assert re.findall(r">\d\. ([\w ]+)<", picture) == names


def test_packages_are_drawn_in_the_layers_that_are_checked() -> None:
    drawn = re.findall(r'y="([\d.]+)"[^>]*>([a-z_]+)</text>', packages.draw())
    rows: dict[str, list[str]] = {}
    known = {package for layer in packages.read_layers() for package in layer}
    for y, name in drawn:
        if name in known:
            rows.setdefault(y, []).append(name)
    assert list(rows.values()) == packages.read_layers()
