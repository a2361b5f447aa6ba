"""Machines in separate network namespaces, and `forewarn up` on one of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.namespaces.lab import Lab, Operator, create_lab, link_local_service
from tests.namespaces.network import why_not
from tests.third_party_clients.curl import Curl


@pytest.fixture(scope="package")
def lab() -> Iterator[Lab]:
    """The machines; skip if this system cannot create them."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    with create_lab() as lab:
        yield lab


@pytest.fixture
def operator(lab: Lab, tmp_path: Path) -> Iterator[Operator]:
    """The operator of a running service."""
    with link_local_service(lab, tmp_path) as started:
        yield Operator(lab.host, started)


@pytest.fixture
def left(lab: Lab, operator: Operator, tmp_path: Path) -> Curl:
    """curl in the VM left-0."""
    return Curl(tmp_path, *lab.left.within)


@pytest.fixture
def right(lab: Lab, operator: Operator, tmp_path: Path) -> Curl:
    """curl in a VM of another scope."""
    return Curl(tmp_path, *lab.right.within)
