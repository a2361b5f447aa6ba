"""Machines in namespaces of their own, and `forewarn up` on one of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.curl import Curl
from tests.clients.service import forewarn_up
from tests.namespaces.lab import FLEET, Lab, Operator, making_lab
from tests.namespaces.network import why_not


@pytest.fixture(scope="package")
def lab() -> Iterator[Lab]:
    """The machines, where they can be made."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    with making_lab() as lab:
        yield lab


@pytest.fixture
def operator(lab: Lab, tmp_path: Path) -> Iterator[Operator]:
    """A service at 169.254.169.254 on the bridge `guests`, with a port per VM on the host's loopback as well."""
    fleet = tmp_path / "fleet.toml"
    fleet.write_text(FLEET, encoding="utf-8")
    options = ("--fleet", str(fleet), "--listen-link-local", "guests")
    with forewarn_up(tmp_path, *options, within=lab.host.within) as started:
        yield Operator(lab.host, started)


@pytest.fixture
def left(lab: Lab, operator: Operator, tmp_path: Path) -> Curl:
    """The curl of a VM."""
    return Curl(tmp_path, *lab.left.within)


@pytest.fixture
def right(lab: Lab, operator: Operator, tmp_path: Path) -> Curl:
    """The curl of a VM in another scope."""
    return Curl(tmp_path, *lab.right.within)
