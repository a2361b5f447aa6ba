"""NATS servers for the tests of the NATS store: one alone and a cluster, each shared by the tests of a worker."""

from collections.abc import Iterator

import pytest

from tests.support.nats_servers import NatsCluster, run_nats


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    """Return one server, which is shared: a test must not stop it."""
    with run_nats(tmp_path_factory.mktemp("nats")) as cluster:
        yield cluster


@pytest.fixture
def nats_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    """Return three servers for one test."""
    with run_nats(tmp_path_factory.mktemp("nats"), servers=3) as cluster:
        yield cluster
