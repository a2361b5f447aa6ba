"""Golden files: the exact bytes on the wire, readable and reviewable as text."""

from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-golden", action="store_true", help="rewrite tests/wire/golden instead of comparing with it"
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, bytes], None]:
    """Compare bytes with a golden file. The option is known only to runs that name tests/wire."""
    rewrite = request.config.getoption("--rewrite-golden", default=False)

    def compare(name: str, got: bytes) -> None:
        path = GOLDEN / name
        if rewrite:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(got)
        assert got == path.read_bytes()

    return compare
