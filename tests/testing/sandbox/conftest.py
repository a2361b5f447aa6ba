"""Somebody who can run programs in sandboxes, and a VM's socket to run them with."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from forewarn.testing import sandbox
from tests.testing.sandbox.accounts import Account, current_account, unprivileged_account
from tests.testing.sandbox.vm_socket import VmSocket, listen_as_vm


@pytest.fixture(scope="session")
def sandboxes() -> None:
    """Skip where no sandbox can be made, and say why."""
    if (reason := sandbox.unavailable_reason()) is not None:
        pytest.skip(reason)


@pytest.fixture(
    scope="module", params=[current_account, unprivileged_account], ids=["whoever runs the tests", "ordinary user"]
)
def account(sandboxes: None, request: pytest.FixtureRequest) -> Iterator[Account]:
    """Whoever runs the tests, and somebody without any rights."""
    with TemporaryDirectory(prefix="forewarn-") as home:  # pytest's own are closed to others
        made: Account | str = request.param(Path(home))
        if isinstance(made, str):
            pytest.skip(made)
        yield made


@pytest.fixture
def vm(sandboxes: None, tmp_path: Path) -> Iterator[VmSocket]:
    """A VM's socket, and what a test has it say."""
    with listen_as_vm(tmp_path) as made:
        yield made
