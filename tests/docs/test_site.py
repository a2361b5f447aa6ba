"""The built documentation site: every page, its links, what it loads, and its search."""

import posixpath
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt
from playwright.sync_api import Browser

from tests.docs.built_page import BuiltPage
from tests.support.chromium import Tabs, open_tabs, run_chromium
from tools.docs_site.navigation import Entry, navigation
from tools.docs_site.pages import Page, collect

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
WITHOUT_NETWORK = (("unshare", "--net"), ("unshare", "--user", "--map-root-user", "--net"))
NOT_FOUND = "404.html"
"""The 404 page: its links assume a site at the root of a web server."""

GIT_HOST = MarkdownIt("commonmark").enable("table")


class Site(NamedTuple):
    """The built site and the pages that it was built from."""

    folder: Path
    pages: dict[PurePosixPath, Page]
    built: dict[Path, BuiltPage]
    """The HTML files."""

    def file_of(self, page: Page) -> Path:
        name = page.name.with_name("index.html") if page.name.name == "README.md" else page.name.with_suffix(".html")
        return self.folder / name


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Build the site as `make docs` does, without network access if this user can unshare it."""
    folder = tmp_path_factory.mktemp("docs")
    isolated = (way for way in WITHOUT_NETWORK if not subprocess.run([*way, "true"], check=False).returncode)
    command = [*next(isolated, ()), sys.executable, "-m", "tools.docs_site", str(folder)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout == f"Open {folder}/site/index.html\n"
    pages, _ = collect(ROOT)
    return Site(folder / "site", pages, read_pages(folder / "site"))


def read_pages(folder: Path) -> dict[Path, BuiltPage]:
    return {file: BuiltPage(file.read_text()) for file in sorted(folder.rglob("*.html"))}


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with run_chromium() as chromium:
        yield chromium


@pytest.fixture
def tabs(chromium: Browser) -> Iterator[Tabs]:
    with open_tabs(chromium) as tabs:
        yield tabs


def test_every_page_is_built(site: Site) -> None:
    assert set(site.built) == {site.file_of(page) for page in site.pages.values()} | {site.folder / NOT_FOUND}


def target_of(file: Path, link: str) -> Path | None:
    """Return the file that a link leads to; None if it leaves the site."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    return file if not parts.path else Path(posixpath.normpath(file.parent / unquote(parts.path)))


def broken_links(built: dict[Path, BuiltPage]) -> list[str]:
    """Return the links within the site, and the files that its pages load, that do not exist or lack the anchor."""
    broken = []
    for file, page in built.items():
        for link in page.links:
            if (target := target_of(file, link.target)) is None:
                continue
            anchors = built[target].anchors if target in built else set()
            fragment = unquote(urlsplit(link.target).fragment)
            if not target.is_file() or (fragment and fragment not in anchors):
                broken.append(f"{file.name}: {link.target}")
    return broken


def test_links_and_anchors_exist(site: Site) -> None:
    assert broken_links({file: page for file, page in site.built.items() if file.name != NOT_FOUND}) == []


def test_broken_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<h1 id="top">A</h1><a href="#top"><a href="b.html#there"><a href="https://example.org/#x"><img src="a.html">'
        '<a href="#gone"><a href="b.html#gone"><a href="c.html"><img src="c.svg"><script src="c.js"></script>'
    )
    (tmp_path / "b.html").write_text('<h1 id="there">B</h1>')
    gone = ["#gone", "b.html#gone", "c.html", "c.svg", "c.js"]
    assert broken_links(read_pages(tmp_path)) == [f"a.html: {target}" for target in gone]


def difference(page: Page, built: BuiltPage) -> list[str]:
    """Return the first difference between a page on a git host and in the site: both texts."""
    expected = BuiltPage(GIT_HOST.render(page.text), is_article=True).outline
    for place, (there, here) in enumerate(zip_longest(expected, built.outline)):
        if there != here:
            return [" ".join(side[max(0, place - 3) : place + 3]) for side in (expected, built.outline)]
    return []


def test_pages_read_as_on_a_git_host(site: Site) -> None:
    different = {
        str(source): parts
        for source, page in site.pages.items()
        if (parts := difference(page, site.built[site.file_of(page)]))
    }
    assert different == {}


def test_difference_between_renderers_is_found() -> None:
    page = Page(PurePosixPath("a.md"), "# A\n\n1. one\n\n   ```\n   code\n   ```\n2. two\n")
    built = "<article><h1>A</h1><ol><li>one</li></ol><pre><code>code</code></pre><ol><li>two</li></ol></article>"
    assert difference(page, BuiltPage(built)) == [
        "<ol> <li> one <pre> <code> code",
        "<ol> <li> one </li> </ol> <pre>",
    ]


def test_pages_load_no_external_resource(site: Site) -> None:
    loaded = {link.target for page in site.built.values() for link in page.links if link.is_loaded}
    assert [target for target in loaded if urlsplit(target).scheme or urlsplit(target).netloc] == []


def pages_of(entries: tuple[Entry, ...] | list[Entry]) -> list[PurePosixPath]:
    return [page for entry in entries for page in (entry.page, *pages_of(entry.entries))]


LINKS = "[...document.querySelectorAll('a[href]')].map(link => link.href.split('#')[0])"


def test_navigation_has_every_markdown_page(site: Site, tabs: Tabs) -> None:
    tabs.page.goto((site.folder / "index.html").as_uri())
    links = tabs.page.evaluate(LINKS.replace("a[href]", ".md-nav--primary a[href]"))
    markdown = {site.file_of(page).as_uri() for page in site.pages.values() if page.is_markdown}
    assert set(links) == markdown
    assert {site.file_of(site.pages[page]).as_uri() for page in pages_of(navigation(site.pages))} == markdown


def test_links_lead_to_every_page(site: Site) -> None:
    waiting, seen = [site.folder / "index.html"], set[Path]()
    while waiting:
        seen.add(file := waiting.pop())
        linked = {target_of(file, link.target) for link in site.built[file].links if not link.is_loaded}
        waiting += [target for target in site.built if target in linked - seen - set(waiting)]
    assert seen == {site.file_of(page) for page in site.pages.values()}


def open_pages(site: Site, files: Iterable[Path], tabs: Tabs) -> None:
    """Open pages from a web server, which takes half as long: search then starts in another thread."""
    with serve(site.folder) as site_url:
        for file in files:
            tabs.page.goto(f"{site_url}/{file.relative_to(site.folder)}")
            tabs.page.evaluate("new Promise(done => requestIdleCallback(done))")
        tabs.page.goto("about:blank")
    assert outside(tabs, site_url) == set()
    assert tabs.errors == []


def test_page_of_each_folder_opens_without_outside_request_or_error(site: Site, tabs: Tabs) -> None:
    """The page with the most HTML of each folder: all pages have the same scripts."""
    files = sorted((site.file_of(page) for page in site.pages.values()), key=lambda file: file.stat().st_size)
    open_pages(site, {file.parent: file for file in files}.values(), tabs)


@pytest.mark.long
def test_every_page_opens_without_outside_request_or_error(site: Site, tabs: Tabs) -> None:
    open_pages(site, [site.file_of(page) for page in site.pages.values()], tabs)


def outside(tabs: Tabs, site_url: str) -> set[str]:
    """Return the requests that left the site."""
    return {url for url in tabs.requests if not url.startswith((site_url, "data:", "blob:", "about:"))}


def test_outside_requests_and_errors_are_recorded(tabs: Tabs, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(
        """<!doctype html><img src="http://192.0.2.1/picture.png"><script>
        new Worker(URL.createObjectURL(new Blob(['fetch("http://192.0.2.1/worker")'])))
        console.error("seen in the console")
        setTimeout(() => { throw new Error("caught by nothing") })
        </script>"""
    )
    tabs.page.goto(page.as_uri(), wait_until="commit")
    wanted = {"http://192.0.2.1/picture.png", "http://192.0.2.1/worker"}
    texts = ("seen in the console", "caught by nothing")
    while outside(tabs, tmp_path.as_uri()) != wanted or not all(text in " ".join(tabs.errors) for text in texts):
        tabs.page.evaluate("new Promise(done => setTimeout(done, 10))")


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """Serve a folder; yield its URL."""

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Write nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(params=["file", "http"])
def site_url(request: pytest.FixtureRequest, site: Site) -> Iterator[str]:
    """The URL of the site, on the file system or on a web server."""
    if request.param == "file":
        yield site.folder.as_uri()
    else:
        with serve(site.folder) as url:
            yield url


SEARCH = "[...document.querySelectorAll('body > *')].find(element => element.shadowRoot)?.shadowRoot"


def test_search_finds_pages_without_a_network(tabs: Tabs, site_url: str) -> None:
    tabs.page.goto(f"{site_url}/docs/glossary.html")
    tabs.page.evaluate("document.querySelector('.md-search__button').click()")
    tabs.page.wait_for_function(f"{SEARCH}?.querySelector('input')")
    tabs.page.evaluate(f"{SEARCH}.querySelector('input').focus()")
    tabs.page.keyboard.insert_text("incarnation")
    tabs.page.wait_for_function(f"{SEARCH}.querySelector('[role=listbox] a[href]')")
    found = tabs.page.evaluate(f"[...{SEARCH}.querySelectorAll('[role=listbox] a[href]')].map(link => link.href)")
    assert any(link.startswith(f"{site_url}/docs/explanation/event-life.html") for link in found), found
    assert outside(tabs, site_url) == set()
    assert tabs.errors == []


def test_copied_terminal_session_has_commands_only(site: Site, tabs: Tabs) -> None:
    tabs.page.goto((site.folder / "docs/tutorial/first-event.html").as_uri())
    session = "[...document.querySelectorAll('.highlight code')].find(code => code.querySelector('.go'))"
    tabs.page.evaluate(f"{session}.setAttribute('data-md-copying', '')")
    copied = tabs.page.evaluate(f"{session}.innerText.trim()")
    assert copied
    assert "$ " not in copied
