"""What every test shares."""

import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A busy machine must not fail a test: no deadlines, and no complaint about slow drawing.
settings.register_profile("forewarn", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("forewarn")


# Its assertions tell what they compared; said here, because several folders use it.
pytest.register_assert_rewrite("tests.store.contract")

TESTS = Path(__file__).parent
SLOW_FOLDERS = (
    "docs",
    "testing",
    "examples",
    "third_party_clients",
    "end_to_end",
    "agent",
    "cli",
    "operator",
    "client",
)
"""Folders whose files take long, because they wait for programs. Files are dealt out to processes one by one: begun
last, one of these would keep all but one process waiting."""


def pytest_configure() -> None:
    """Have Ctrl-C end programs: what a shell begins in the background ignores it, and so does all that it begins."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest; what is short fills the gaps at the end."""
    items.sort(key=lambda item: _position(item.path))


def _position(file: Path) -> int:
    return next((turn for turn, folder in enumerate(SLOW_FOLDERS) if TESTS / folder in file.parents), len(SLOW_FOLDERS))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write what the code says into scenario files and generated documentation; then review the difference",
    )


@pytest.fixture(scope="session")
def rewrite(pytestconfig: pytest.Config) -> bool:
    """Whether expectations that are kept in files are to be written anew."""
    return bool(pytestconfig.getoption("rewrite"))
