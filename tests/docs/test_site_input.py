"""The input of the documentation site: pages, navigation, and Markdown for Python-Markdown."""

from pathlib import Path, PurePosixPath

import pytest

from tools.docs_site.dialect import translate
from tools.docs_site.navigation import Entry, navigation
from tools.docs_site.pages import DocsError, Page, collect

FILES = {
    "README.md": "# Forewarn\n[docs](docs/README.md) [license](LICENSE)",
    "LICENSE": "Apache",
    "docs/README.md": "# Documentation\n[guides](howto/README.md) [words](glossary.md)",
    "docs/glossary.md": "# Glossary\n[elsewhere](https://example.org) [above](#glossary)",
    "docs/howto/README.md": "# Guides\n[run](run.md) [command](cli.md)",
    "docs/howto/cli.md": "# The `forewarn` [command](run.md)\n[event](cli/event.md)",
    "docs/howto/cli/event.md": "# forewarn event\n![drawing](../../pictures/event.svg)",
    "docs/howto/run.md": "# Run it\n[sample](../../samples/run.py), `[code](none.md)`\n```\n[code](none.md)\n```\n",
    "docs/pictures/event.svg": "<svg/>",
    "samples/run.py": 'print("```")\n',
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        write(tmp_path, name, text)
    return tmp_path


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def entry(title: str, page: str, *entries: Entry) -> Entry:
    return Entry(title, PurePosixPath(page), entries)


def test_navigation_follows_folders_and_links(root: Path) -> None:
    pages, _ = collect(root)
    command = entry("The forewarn command", "docs/howto/cli.md", entry("forewarn event", "docs/howto/cli/event.md"))
    assert navigation(pages) == [
        entry("Home", "README.md"),
        entry("Documentation", "docs/README.md"),
        entry("Guides", "docs/howto/README.md", entry("Run it", "docs/howto/run.md"), command),
        entry("Glossary", "docs/glossary.md"),
    ]


def test_section_starts_with_its_index() -> None:
    assert entry("Guides", "howto/README.md", entry("Run", "howto/run.md")).as_toml() == (
        '{ "Guides" = ["howto/README.md", { "Run" = "howto/run.md" }] }'
    )
    assert entry("Command", "cli.md", entry("Event", "cli/event.md")).as_toml() == (
        '{ "Command" = [{ "Overview" = "cli.md" }, { "Event" = "cli/event.md" }] }'
    )


def test_page_that_no_index_links_to_is_an_error(root: Path) -> None:
    write(root, "docs/howto/lost.md", "# Lost")
    pages, _ = collect(root)
    with pytest.raises(DocsError, match=r"docs/howto/README\.md must link to docs/howto/lost\.md"):
        navigation(pages)


def test_linked_files_are_pages_or_pictures(root: Path) -> None:
    pages, pictures = collect(root)
    assert {str(page) for page in pages} == set(FILES) - {"docs/pictures/event.svg"}
    assert pictures == {PurePosixPath("docs/pictures/event.svg")}


def test_file_that_is_not_markdown_is_shown_by_a_page(root: Path) -> None:
    pages, _ = collect(root)
    page = pages[PurePosixPath("samples/run.py")]
    assert (str(page.name), page.text) == (
        "samples/run.py.md",
        '# samples/run.py\n\n````python\nprint("```")\n````\n',
    )
    assert pages[PurePosixPath("docs/howto/run.md")].site_text() == FILES["docs/howto/run.md"].replace(
        "run.py", "run.py.md"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("# A\n[b](b.md)", r"links to docs/b\.md, which is not a file"),
        ("# A\n![b](b.svg)", r"links to docs/b\.svg, which is not a file"),
        ("# A\n[b](../../b.md)", "which is not a file of this repository"),
        ("# A\n<img src='x' srcset=\"b.png\">", r"links to docs/b\.png, which is not a file"),
        ("# A\n```mermaid\nx\n```\n", "has a Mermaid diagram"),
    ],
    ids=["page", "picture", "outside", "html", "mermaid"],
)
def test_page_that_the_site_cannot_have_is_an_error(root: Path, text: str, problem: str) -> None:
    write(root, "docs/glossary.md", text)
    with pytest.raises(DocsError, match=rf"docs/glossary\.md .*{problem}"):
        collect(root)


def test_page_without_a_title_is_an_error() -> None:
    with pytest.raises(DocsError, match=r"a\.md has no title"):
        _ = Page(PurePosixPath("a.md"), "```\n# comment\n```\n").title


@pytest.mark.parametrize(
    ("text", "translated"),
    [
        ("a\n- b\n- c\n", "a\n\n- b\n- c\n"),
        ("1. a\n\n   b\n2. c\n", "1. a\n\n    b\n\n2. c\n"),
        ("1. a:\n   ```\n   b\n     c\n   ```\n2. d\n", "1. a:\n\n    ```\n    b\n      c\n    ```\n\n2. d\n"),
        ("- a\n  - b\n    - c\n- d\n", "- a\n    - b\n        - c\n- d\n"),
        ("- a\n\n  | x |\n  |---|\n", "- a\n\n    | x |\n    |---|\n"),
        ("<!-- a -->\n| x |\n|---|\n| `b\\|c` d\\|e |\n", "<!-- a -->\n\n| x |\n|---|\n| `b|c` d\\|e |\n"),
        ("```\n- a\n  - b\n```\n", "```\n- a\n  - b\n```\n"),
        ("````\n```\n- a\n````\n\n- b\n", "````\n```\n- a\n````\n\n- b\n"),
    ],
    ids=["paragraph", "continued", "code", "nested", "table", "bar", "in code", "long fence"],
)
def test_markdown_is_translated(text: str, translated: str) -> None:
    assert translate(text) == translated
