"""Somebody who can run programs in sandboxes, and a VM's socket to run them with."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from forewarn.testing import sandbox
from tests.sandbox.people import Person, ordinary_user, ourselves
from tests.sandbox.sockets import Vm, vm_at


@pytest.fixture(scope="session")
def sandboxes() -> None:
    """Skip where no sandbox can be made, and say why."""
    if (reason := sandbox.unavailable_reason()) is not None:
        pytest.skip(reason)


@pytest.fixture(scope="module", params=[ourselves, ordinary_user], ids=["whoever runs the tests", "ordinary user"])
def person(sandboxes: None, request: pytest.FixtureRequest) -> Iterator[Person]:
    """Whoever runs the tests, and somebody without any rights."""
    with TemporaryDirectory(prefix="forewarn-") as home:  # pytest's own are closed to others
        made: Person | str = request.param(Path(home))
        if isinstance(made, str):
            pytest.skip(made)
        yield made


@pytest.fixture
def vm(sandboxes: None, tmp_path: Path) -> Iterator[Vm]:
    """A VM's socket, and what a test has it say."""
    with vm_at(tmp_path) as made:
        yield made
