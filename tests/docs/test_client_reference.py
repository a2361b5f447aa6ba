"""The reference of the client library is what its code says, and leaves nothing out."""

from pathlib import Path

import forewarn.client as client
from tests.docs.client_reference import CHAPTERS, reference

PAGE = Path(__file__).parents[2] / "docs/reference/client.md"
BEGIN, END = "<!-- from the code -->\n", "<!-- end of the code -->\n"


def made(page: str) -> str:
    """Return the page as it should be."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{reference()}\n{END}{after}"


def test_page_says_what_the_code_says(rewrite: bool) -> None:
    page = PAGE.read_text(encoding="utf-8")
    if rewrite:
        PAGE.write_text(made(page), encoding="utf-8")
    else:
        assert page == made(page), "stale: make test ARGS='tests/docs/test_client_reference.py --rewrite'"


def test_stale_page_is_seen() -> None:
    page = PAGE.read_text(encoding="utf-8")
    stale = page.replace("timeout: float = 10.0", "timeout: float = 20.0")
    assert stale != page
    assert made(stale) == page


def test_every_public_name_has_its_place() -> None:
    named = [name for names in CHAPTERS.values() for name in names]
    assert sorted(named) == sorted(client.__all__)


def test_every_sign_and_sentence_of_a_client_is_there() -> None:
    """One look with the eyes of a reader, so that an empty page could not pass."""
    page = PAGE.read_text(encoding="utf-8")
    for text in (
        "def get(*, retry_for: float | None = None) -> Document",
        "async def get(*, retry_for: float | None = None) -> Document",
        '| `WITHDRAWN` | `"withdrawn"` | It was still Scheduled: it does not happen after all. |',
        "def interruptible(*types: str) -> AbstractContextManager[Interruption]",
        "| `Closed` | The client was closed before the answer came. | create another client",
        "└── EndpointUnavailable",
    ):
        assert text in page
