"""Machines in namespaces of their own, and `forewarn up` on one of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.namespaces.lab import Lab, Operator, create_lab, link_local_service
from tests.namespaces.network import why_not
from tests.third_party_clients.curl import Curl


@pytest.fixture(scope="package")
def lab() -> Iterator[Lab]:
    """The machines, where they can be made."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    with create_lab() as lab:
        yield lab


@pytest.fixture
def operator(lab: Lab, tmp_path: Path) -> Iterator[Operator]:
    """Those who run a service that the VMs can ask."""
    with link_local_service(lab, tmp_path) as started:
        yield Operator(lab.host, started)


@pytest.fixture
def left(lab: Lab, operator: Operator, tmp_path: Path) -> Curl:
    """The curl of a VM."""
    return Curl(tmp_path, *lab.left.within)


@pytest.fixture
def right(lab: Lab, operator: Operator, tmp_path: Path) -> Curl:
    """The curl of a VM in another scope."""
    return Curl(tmp_path, *lab.right.within)
