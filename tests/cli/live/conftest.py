"""The machine for the tests of live views."""

from collections.abc import Iterator

import pytest

from tests.cli.service_machine import ServiceMachine, run_service_machine


@pytest.fixture(scope="module")
def service_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceMachine]:
    with run_service_machine(tmp_path_factory.mktemp("following")) as machine:
        yield machine
