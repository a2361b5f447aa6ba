"""Fixtures: user accounts that can run sandboxes, and a VM's socket."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from forewarn.testing import sandbox
from tests.testing.sandbox.accounts import Account, current_account, unprivileged_account
from tests.testing.sandbox.vm_socket import VmSocket, listen_as_vm


@pytest.fixture(scope="session")
def sandboxes() -> None:
    """Skip the test, with the reason, if this system cannot create sandboxes."""
    if (reason := sandbox.unavailable_reason()) is not None:
        pytest.skip(reason)


@pytest.fixture(scope="module", params=[current_account, unprivileged_account], ids=["current user", "ordinary user"])
def account(sandboxes: None, request: pytest.FixtureRequest) -> Iterator[Account]:
    """The user that runs the tests, and an unprivileged user."""
    with TemporaryDirectory(prefix="forewarn-") as home:  # other users cannot access pytest's own directories
        made: Account | str = request.param(Path(home))
        if isinstance(made, str):
            pytest.skip(made)
        yield made


@pytest.fixture
def vm(sandboxes: None, tmp_path: Path) -> Iterator[VmSocket]:
    """The socket of a VM, on which the test itself answers."""
    with listen_as_vm(tmp_path) as made:
        yield made
