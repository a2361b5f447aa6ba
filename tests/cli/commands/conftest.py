"""Machines for the tests of commands."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.service_machine import INVENTORY, ServiceMachine, run_service_machine


@pytest.fixture(scope="module")
def service_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceMachine]:
    """Run a service for the tests of a file; each test uses its own VMs."""
    with run_service_machine(tmp_path_factory.mktemp("service")) as machine:
        yield machine


@pytest.fixture
def inventory_machine(tmp_path: Path) -> Iterator[ServiceMachine]:
    """Run a service for one test, which may change the whole fleet."""
    with run_service_machine(tmp_path, INVENTORY) as machine:
        yield machine
