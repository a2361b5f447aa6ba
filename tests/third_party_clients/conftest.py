"""One service per test file; each test uses separate scopes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.core.scope import ScopeKind
from tests.support.emulator import EmulatorProcess, Vm, run_emulator


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatorProcess]:
    """A running `forewarn up`."""
    with run_emulator(tmp_path_factory.mktemp("service")) as service:
        yield service


@pytest.fixture
def availability_set(service: EmulatorProcess) -> tuple[Vm, ...]:
    """Three VMs in three update domains."""
    return service.scope_to_itself(ScopeKind.AVAILABILITY_SET)


@pytest.fixture
def vm(availability_set: tuple[Vm, ...]) -> Vm:
    """The first VM of an availability set."""
    return availability_set[0]


@pytest.fixture
def role_instance(service: EmulatorProcess) -> Vm:
    """An instance of a cloud service's role."""
    return service.scope_to_itself(ScopeKind.CLOUD_SERVICE)[0]


@pytest.fixture
def scale_set(service: EmulatorProcess) -> tuple[Vm, ...]:
    """Two low-priority VMs of a scale set."""
    return service.scope_to_itself(ScopeKind.PLACEMENT_GROUP)


@pytest.fixture
def another_scale_set(service: EmulatorProcess) -> tuple[Vm, ...]:
    """Two low-priority VMs of another scale set."""
    return service.scope_to_itself(ScopeKind.PLACEMENT_GROUP)


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder of clients that run as separate programs."""
    return Path(__file__).with_name("programs")
