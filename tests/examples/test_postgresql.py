"""The PostgreSQL example: a primary hands over before its reboot, and the last healthy replica is kept."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.core.event import EventType
from forewarn.core.journal import EntryKind
from tests.examples.example_settings import example_settings
from tests.examples.postgresql_cluster import FAILOVER, Cluster, Node, cluster
from tests.examples.service_with_agents import ServiceWithAgents, run_service_with_agents
from tests.support.processes import wait_until

pytestmark = pytest.mark.process

NOT_NOW = 75

FLEET = """\
[[scopes]]
name = "db"
kind = "availability-set"
update_domains = 3
vms = [{ name = "db-{n}", count = 3 }]
"""


@pytest.fixture(scope="module")
def kept_cluster() -> Iterator[Cluster]:
    with cluster() as made:
        made.primary.ask("create table facts (fact text)")
        yield made


@pytest.fixture
def servers(kept_cluster: Cluster) -> Iterator[Cluster]:
    """A primary and two streaming replicas; stopped servers are started again after each test."""
    yield kept_cluster
    for node in kept_cluster.nodes:
        if node.role == "down":
            node.start()
    kept_cluster.wait_until_whole()


def recover(node: Node) -> None:
    """Run recover until it succeeds."""
    wait_until(lambda: node.failover("recover").returncode == 0, f"{node.name} to be back")


def test_primary_hands_over_all_data_and_returns_as_a_replica(servers: Cluster) -> None:
    node = servers.primary
    node.ask("insert into facts values ('handed over')")
    assert node.failover("prepare").returncode == 0
    assert sorted(servers.roles) == ["down", "primary", "replica"]
    assert servers.primary.ask("select fact from facts where fact = 'handed over'") == "handed over"
    recover(node)
    assert node.role == "replica"


def test_repeated_call_changes_nothing(servers: Cluster) -> None:
    node = servers.primary
    assert node.failover("prepare").returncode == 0
    roles = servers.roles
    assert (node.failover("prepare").returncode, servers.roles) == (0, roles)
    recover(node)
    roles = servers.roles
    assert (node.failover("recover").returncode, servers.roles) == (0, roles)


def test_interrupted_handover_resumes(servers: Cluster) -> None:
    node = servers.primary
    node.stop("fast")
    assert "primary" not in servers.roles
    assert node.failover("prepare").returncode == 0
    assert sorted(servers.roles) == ["down", "primary", "replica"]
    recover(node)


def test_crashed_primary_is_started_before_it_hands_over(servers: Cluster) -> None:
    node = servers.primary
    node.stop("immediate")
    refusal = node.failover("prepare")
    assert (refusal.returncode, refusal.stderr) == (
        NOT_NOW,
        "failover: no replica has everything: this server goes on as the primary\n",
    )
    servers.wait_until_whole()
    assert node.failover("prepare").returncode == 0
    assert sorted(servers.roles) == ["down", "primary", "replica"]
    recover(node)


def test_replica_is_removed_while_another_one_is_healthy(servers: Cluster) -> None:
    one, _ = servers.replicas
    assert one.failover("prepare").returncode == 0
    assert sorted(servers.roles) == ["down", "primary", "replica"]
    recover(one)


def test_last_healthy_replica_is_not_removed(servers: Cluster) -> None:
    primary, (one, other) = servers.primary, servers.replicas
    other.stop()
    wait_until(lambda: servers.streaming == 1, "the primary to notice")
    refusal = one.failover("prepare")
    assert (refusal.returncode, refusal.stderr) == (
        NOT_NOW,
        f"failover: refuses: this is the last healthy replica of {primary.name}\n",
    )
    assert one.role == "replica"


def test_primary_without_a_healthy_replica_is_kept(servers: Cluster) -> None:
    primary = servers.primary
    for replica in servers.replicas:
        replica.stop()
    wait_until(lambda: servers.streaming == 0, "the primary to notice")
    refusal = primary.failover("prepare")
    assert (refusal.returncode, refusal.stderr) == (
        NOT_NOW,
        "failover: refuses: there is no healthy replica to hand over to\n",
    )
    assert primary.role == "primary"


def test_unknown_call_is_refused(servers: Cluster) -> None:
    assert servers.primary.failover("destroy").returncode == 2


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceWithAgents]:
    with run_service_with_agents(tmp_path, FLEET) as made:
        yield made


def settings_for(node: Node) -> tuple[str, dict[str, str]]:
    """Return the example's settings for the agent of a server's VM, and its environment."""
    settings = example_settings(
        "postgresql", {"/etc/forewarn/failover": str(FAILOVER), 'pause = "10s"': 'pause = "0.2s"'}
    )
    return settings, {"FAILOVER_CONF": str(node.conf)}


def test_vm_of_the_primary_is_rebooted_while_another_server_is_primary(
    servers: Cluster, service: ServiceWithAgents
) -> None:
    node = servers.primary
    node.ask("insert into facts values ('before the reboot')")
    settings, environ = settings_for(node)
    with service.agent(f"db/{node.name}", settings, **environ):
        event = service.schedule(EventType.REBOOT, f"db/{node.name}")
        service.wait_for(EntryKind.STARTED, event)
        assert EntryKind.APPROVED in service.journal_kinds(event)
        assert sorted(servers.roles) == ["down", "primary", "replica"]
        servers.primary.ask("insert into facts values ('meanwhile')")
        service.advance("10m")
        service.wait_for(EntryKind.COMPLETED, event)
        wait_until(lambda: node.role == "replica", "the server to be back")
        servers.wait_until_whole()
    facts = "select string_agg(fact, ', ' order by fact) from facts where fact in ('before the reboot', 'meanwhile')"
    wait_until(lambda: node.ask(facts) == "before the reboot, meanwhile", "the replica to have everything")


def test_last_healthy_replica_is_approved_when_another_is_healthy(servers: Cluster, service: ServiceWithAgents) -> None:
    one, other = servers.replicas
    other.stop()
    wait_until(lambda: servers.streaming == 1, "the primary to notice")
    settings, environ = settings_for(one)
    with service.agent(f"db/{one.name}", settings, **environ) as agent:
        event = service.schedule(EventType.REBOOT, f"db/{one.name}")
        wait_until(
            lambda: agent.output().count("this is the last healthy replica") >= 2, "the agent to report the reason"
        )
        assert (one.role, service.journal_kinds(event)) == ("replica", [EntryKind.SCHEDULED])
        other.start()
        service.wait_for(EntryKind.APPROVED, event)
        assert one.role == "down"
        service.advance("10m")
        service.wait_for(EntryKind.COMPLETED, event)
        wait_until(lambda: one.role == "replica", "the server to be back")
