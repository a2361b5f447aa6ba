"""Faults, by name: each is done to a running cluster under a workload, and leaves the repair to `heal`."""

import random
import signal
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec

from forewarn.api import v1
from forewarn.core.access import Role
from tests.end_to_end.cluster.history import OperationKind
from tests.end_to_end.cluster.lab import Lab
from tests.end_to_end.cluster.links import CUT, LinkState
from tests.end_to_end.cluster.processes import ServiceNode
from tests.end_to_end.cluster.purge import run_purges
from tests.end_to_end.cluster.workload import ADDED
from tests.support.nats_servers import NatsServer
from tests.support.processes import free_ports, wait_until

Fault = Callable[[Lab, random.Random], None]
Target = Callable[[Lab], NatsServer | ServiceNode]

STOP_SECONDS = 20.0
"""Longer than a lease: what was suspended is replaced meanwhile."""

SHORT_STOP_SECONDS = 1.0
"""Shorter than an election: what was sent meanwhile takes effect late."""

PARTITION_SECONDS = 6.0
PURGES = 5


def _leader(lab: Lab) -> NatsServer:
    return lab.leader()


def _follower(lab: Lab) -> NatsServer:
    return lab.follower()


def _holder(lab: Lab) -> ServiceNode:
    return lab.cluster.holder()


def _host(lab: Lab) -> ServiceNode:
    return lab.cluster.hosts[0]


def _choose_moment(lab: Lab, target: NatsServer | ServiceNode) -> None:
    """Return at once, or for a host when its platform is at work."""
    if target in lab.cluster.hosts:
        lab.wait_for_work(target.name)


def kill(target: Target) -> Fault:
    """Kill a process with SIGKILL; it starts again when the workload has gone on without it."""

    def fault(lab: Lab, _: random.Random) -> None:
        found = target(lab)
        _choose_moment(lab, found)
        found.kill()
        lab.work()

    return fault


def kill_holder(lab: Lab, _: random.Random) -> None:
    """Kill the lease holder; the other control node takes over."""
    holder = lab.cluster.holder()
    holder.kill()
    lab.work()
    wait_until(lambda: lab.cluster.holder() is not holder, "the other control node holds the lease")
    lab.work()


def suspend(target: Target, seconds: float = STOP_SECONDS) -> Fault:
    """Suspend a process with SIGSTOP for a time."""

    def fault(lab: Lab, _: random.Random) -> None:
        found = target(lab)
        _choose_moment(lab, found)
        found.send_signal(signal.SIGSTOP)
        time.sleep(seconds)  # the fault itself
        found.send_signal(signal.SIGCONT)

    return fault


def at_point(point: str, number: signal.Signals, nodes: Callable[[Lab], ServiceNode]) -> Fault:
    """Let a process kill or suspend itself exactly between two steps."""

    def fault(lab: Lab, _: random.Random) -> None:
        node = nodes(lab)
        node.arm(point, number)
        if number is signal.SIGKILL:
            node.wait_until_ended()
            lab.work()
        else:
            node.wait_until_suspended()
            time.sleep(STOP_SECONDS)  # the fault itself
            node.send_signal(signal.SIGCONT)

    return fault


def partition(state: LinkState, names: Callable[[Lab, random.Random], set[str]], seconds: float) -> Fault:
    """Cut or slow the links between some programs and all others."""

    def fault(lab: Lab, chance: random.Random) -> None:
        assert lab.cluster.network is not None
        lab.cluster.network.set(state, names(lab, chance))
        time.sleep(seconds)  # the fault itself
        lab.cluster.network.heal()

    return fault


def _stream_leader_name(lab: Lab, _: random.Random) -> set[str]:
    return {lab.leader().name}


def _holder_name(lab: Lab, _: random.Random) -> set[str]:
    return {lab.cluster.holder().name}


def _host_name(_: Lab, chance: random.Random) -> set[str]:
    return {chance.choice(("hv-0", "hv-1", "hv-2"))}


def _minority(lab: Lab, chance: random.Random) -> set[str]:
    """A host with half of the control nodes and one NATS server."""
    return {lab.leader().name, lab.cluster.holder().name, chance.choice(("hv-0", "hv-1", "hv-2"))}


def restart_all(kind: Callable[[Lab], list[ServiceNode]]) -> Fault:
    """Stop and start one process after the other, in order."""

    def fault(lab: Lab, _: random.Random) -> None:
        for node in kind(lab):
            node.restart(signal.SIGTERM)
            node.wait_until_ready()

    return fault


def rolling_restart_of_servers(lab: Lab, _: random.Random) -> None:
    """Stop and start one NATS server after the other, in order."""
    for server in lab.cluster.nats.servers:
        server.stop()
        lab.cluster.nats.start(server)
        lab.work(3)


def kill_all_servers(lab: Lab, _: random.Random) -> None:
    """Kill all NATS servers at once, and start them again."""
    for server in lab.cluster.nats.servers:
        server.kill()
    time.sleep(2)  # the fault itself
    for server in lab.cluster.nats.servers:
        lab.cluster.nats.start(server)


def skew(seconds: int, duration: float = 8.0) -> Fault:
    """Let the clock of the lease holder be wrong."""

    def fault(lab: Lab, _: random.Random) -> None:
        lab.skew(lab.cluster.holder(), seconds)
        time.sleep(duration)  # the fault itself
        lab.work(5)

    return fault


def second_process_of_a_host(lab: Lab, _: random.Random) -> None:
    """Start a second process for a host: it waits, and takes over when the first one is killed."""
    first = lab.cluster.hosts[0]
    (port,) = free_ports(1)
    spare = lab.cluster.create_node(f"hv-0-spare-{len(lab.spares)}", port, environ={}, is_faulty=True, host=first.name)
    lab.spares.append(spare)
    spare.start()
    wait_until(lambda: "host hv-0 is served by" in spare.log, "the second process waits")
    lab.work()
    first.send_signal(signal.SIGSTOP)
    spare.wait_until_ready()
    lab.work()
    first.send_signal(signal.SIGCONT)  # it finds out that it was replaced
    lab.work()


def same_names_at_once(lab: Lab, chance: random.Random) -> None:
    """Let both control nodes add the same VM, address, token, campaign and key at once."""
    recorder = lab.recorder
    for number in range(6):
        name, address = f"{ADDED}twin-{recorder.next_key()}", f"10.2.0.{chance.randrange(1, 250)}"
        both = [(node.name, n) for n, node in enumerate(lab.cluster.controls)]
        request = v1.AddVm(name=name, scope="db", update_domain=1, addresses=(v1.NewAddress(ip=address),))

        def add_vm(node: str, vm: str, key: str = "", request: v1.AddVm = request, address: str = address) -> None:
            own = msgspec.structs.replace(request, name=vm)
            recorder.ask(
                chance,
                OperationKind.ADD_VM,
                "db",
                lambda api, key: api.add_vm(own, key=key),
                node=node,
                key=key,
                vm=vm,
                value=address,
            )

        def create_token(node: str, name: str = name) -> None:
            token = v1.CreateToken(name=name, role=Role.VIEWER)
            recorder.ask(
                chance, OperationKind.CREATE_TOKEN, name, lambda api, key: api.create_token(token, key=key), node=node
            )

        match number % 4:
            case 0:  # the same VM
                at_once(partial(add_vm, node, name) for node, _ in both)
            case 1:  # the same address
                at_once(partial(add_vm, node, f"{name}-{n}") for node, n in both)
            case 2:  # the same request
                at_once(partial(add_vm, node, name, f"{name}-key") for node, _ in both)
            case _:
                at_once(partial(create_token, node) for node, _ in both)
    lab.work()


def at_once(calls: Iterable[Callable[[], None]]) -> None:
    """Do things at the same moment, in threads."""
    todo = list(calls)
    barrier = threading.Barrier(len(todo))

    def run(call: Callable[[], None]) -> None:
        barrier.wait()
        call()

    with ThreadPoolExecutor(len(todo)) as pool:
        for done in [pool.submit(run, call) for call in todo]:
            done.result()


def restart_host_without_servers(lab: Lab, _: random.Random) -> None:
    """Restart a host that reaches no NATS server, right after its guests have seen a new incarnation."""
    assert lab.cluster.network is not None
    assert lab.workload is not None
    host, seen = lab.cluster.hosts[0], lab.workload.guests.documents
    count = len(seen)
    wait_until(lambda: any(each.host == host.name for each in seen[count:]), "a guest has seen a new incarnation")
    lab.cluster.network.set(CUT, {host.name})
    host.restart()
    host.wait_until_ready()
    answered = lab.workload.guests.answered
    polls = answered[host.name]
    wait_until(lambda: answered[host.name] > polls + 20, "guests are answered")
    lab.work()


def overflow(lab: Lab, chance: random.Random) -> None:
    """Let the clients of a control node and of a host lose messages, because their buffers are full."""
    nodes = (chance.choice(lab.cluster.controls), chance.choice(lab.cluster.hosts))
    for _ in range(3):
        for node in nodes:
            node.send_signal(signal.SIGUSR1)
        lab.work(10)
    wait_until(lambda: all("messages were dropped" in node.log for node in nodes), "messages were dropped")


def purge(lab: Lab, _: random.Random) -> None:
    """Purge the journal again and again, while the workload makes progress."""
    with run_purges(lab) as purges:
        for _round in range(PURGES):
            lab.work(5)
            purges.wait()
    assert purges.lines > 0


def while_purging(fault: Fault) -> Fault:
    """Purge the journal before, during and after another fault."""

    def both(lab: Lab, chance: random.Random) -> None:
        with run_purges(lab) as purges:
            purges.wait()
            fault(lab, chance)
            purges.wait()
        assert purges.lines > 0

    return both


SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
TARGETS: dict[str, Target] = {
    "stream leader": _leader,
    "follower": _follower,
    "lease holder": _holder,
    "host": _host,
}
PARTITIONS: dict[str, Callable[[Lab, random.Random], set[str]]] = {
    "NATS node": _stream_leader_name,
    "control node": _holder_name,
    "host": _host_name,
    "host and half of the control nodes": _minority,
}
STATES = {
    "cut": CUT,
    "one-way out": LinkState(up=False),
    "one-way in": LinkState(down=False),
    "slow": LinkState(delay=0.3),
}

FAULTS: dict[str, Fault] = {
    **{f"kill {name}": kill(target) for name, target in TARGETS.items()},
    "kill lease holder": kill_holder,
    **{f"stop {name} for 20 s": suspend(target) for name, target in TARGETS.items()},
    "stop stream leader for 1 s": suspend(_leader, SHORT_STOP_SECONDS),
    **{
        f"{name} control node between decide and save": at_point("save", number, _holder)
        for name, number in SIGNALS.items()
    },
    **{
        f"{name} host between begun and program": at_point("carry-out", number, _host)
        for name, number in SIGNALS.items()
    },
    **{
        f"{state_name}: {name}": partition(state, names, PARTITION_SECONDS if state_name == "slow" else 2 * 8.0)
        for state_name, state in STATES.items()
        for name, names in PARTITIONS.items()
    },
    "rolling restart of control nodes": restart_all(lambda lab: lab.cluster.controls),
    "rolling restart of hosts": restart_all(lambda lab: lab.cluster.hosts),
    "rolling restart of NATS": rolling_restart_of_servers,
    "kill all NATS nodes": kill_all_servers,
    "two processes with one host": second_process_of_a_host,
    "same names on two control nodes": same_names_at_once,
    "restart of a host without NATS": restart_host_without_servers,
    "overflow of slow consumers": overflow,
    **{f"clock of the lease holder {seconds:+d} s": skew(seconds) for seconds in (30, -30, 3600, -3600)},
    "purge": purge,
}
BESIDE_PURGES = (
    "kill stream leader",
    "kill lease holder",
    "stop lease holder for 20 s",
    "cut: NATS node",
    "cut: control node",
    "rolling restart of control nodes",
    "kill all NATS nodes",
    "overflow of slow consumers",
)
FAULTS |= {f"purge, {name}": while_purging(FAULTS[name]) for name in BESIDE_PURGES}
"""Every fault."""
