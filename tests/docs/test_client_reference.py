"""The reference of the client library is generated from the code and complete."""

from pathlib import Path

import forewarn.client as client
from tests.docs.client_reference import CHAPTERS, reference

PAGE = Path(__file__).parents[2] / "docs/reference/client.md"
BEGIN, END = "<!-- from the code -->\n", "<!-- end of the code -->\n"


def made(page: str) -> str:
    """Return the page with the generated part up to date."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{reference()}\n{END}{after}"


def test_page_is_up_to_date(rewrite: bool) -> None:
    page = PAGE.read_text(encoding="utf-8")
    if rewrite:
        PAGE.write_text(made(page), encoding="utf-8")
    else:
        assert page == made(page), "stale: make test ARGS='tests/docs/test_client_reference.py --rewrite'"


def test_stale_page_is_detected() -> None:
    page = PAGE.read_text(encoding="utf-8")
    stale = page.replace("timeout: float = 10.0", "timeout: float = 20.0")
    assert stale != page
    assert made(stale) == page


def test_every_public_name_is_in_a_chapter() -> None:
    named = [name for names in CHAPTERS.values() for name in names]
    assert sorted(named) == sorted(client.__all__)


def test_page_has_signatures_and_sentences() -> None:
    """Check samples of the text, so that an empty page cannot pass."""
    page = PAGE.read_text(encoding="utf-8")
    for text in (
        "def get(*, retry_for: float | None = None) -> Document",
        "async def get(*, retry_for: float | None = None) -> Document",
        '| `WITHDRAWN` | `"withdrawn"` | The event disappeared before it started, so it was cancelled. |',
        "def interruptible(*types: str) -> AbstractContextManager[Interruption]",
        "| `Closed` | The client was closed. | create another client",
        "└── EndpointUnavailable",
    ):
        assert text in page
