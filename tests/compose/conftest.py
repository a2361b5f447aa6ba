"""A NATS server for the tests of cells and migrations, shared by the tests of a worker."""

from collections.abc import Iterator

import pytest

from tests.support.nats_servers import NatsCluster, run_nats


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    """Return one server, which is shared: a test must not stop it."""
    with run_nats(tmp_path_factory.mktemp("nats")) as cluster:
        yield cluster
