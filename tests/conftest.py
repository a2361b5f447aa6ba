"""Options, hooks and fixtures shared by all tests."""

import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support import process_starts

# A busy machine must not fail a test: no deadlines, and no health check for slow data generation.
settings.register_profile("forewarn", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("fast", settings.get_profile("forewarn"), max_examples=10)
settings.load_profile("forewarn")


# Rewrite its assertions to show the compared values; registered here because several folders use it.
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
"""Folders with slow files. Files are distributed to workers one by one: started last, a slow file would leave the
other workers idle."""

PROCESS_FOLDERS = {
    "end_to_end": "real services and agents",
    "namespaces": "programs in network namespaces",
    "stored": "a real service and a real agent continue with stored data",
    "testing/sandbox": "programs that run as a VM",
    "third_party_clients": "foreign programs, and a service for them",
}
"""Folders in which every test needs a process; elsewhere a test that does is marked `process`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="rewrite expected output in scenario files and generated documentation; then review the diff",
    )
    parser.addoption(
        "--fast",
        action="store_true",
        help="leave out the tests that are marked long or process, fail any other test that starts a process, and "
        "draw few examples",
    )


def pytest_configure(config: pytest.Config) -> None:
    let_programs_be_interrupted()
    if config.getoption("fast"):
        settings.load_profile("fast")
        process_starts.watch()


def let_programs_be_interrupted() -> None:
    """Let SIGINT end child processes: background jobs of a shell inherit that it is ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the slowest files first, those that start processes; short ones fill the gaps at the end."""
    files = {item.path for item in items}
    process_files = {file for file in files if any(TESTS / folder in file.parents for folder in PROCESS_FOLDERS)}
    for item in items:
        if item.path in process_files:
            item.add_marker("process")
    slow_files = {item.path for item in items if item.get_closest_marker("process")}
    positions = {file: (file not in slow_files, _position(file)) for file in files}
    items.sort(key=lambda item: positions[item.path])
    if config.getoption("fast"):
        slow = [item for item in items if item.get_closest_marker("process") or item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=slow)
        left_out = set(slow)
        items[:] = [item for item in items if item not in left_out]


def _position(file: Path) -> int:
    return next((turn for turn, folder in enumerate(SLOW_FOLDERS) if TESTS / folder in file.parents), len(SLOW_FOLDERS))


def pytest_collection_finish() -> None:
    """Discard processes started before the first test: a plug-in runs a program to get the host name."""
    process_starts.take()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test in a fast run that starts a process without the mark `process`."""
    report = yield
    if started := process_starts.take():
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} starts a process: mark it with pytest.mark.process\n" + "\n".join(started)
    return report


@pytest.fixture(scope="session")
def rewrite(pytestconfig: pytest.Config) -> bool:
    """Whether to rewrite the expected output that is stored in files."""
    return bool(pytestconfig.getoption("rewrite"))
