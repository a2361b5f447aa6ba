"""The workload of a run: operators and guests whose requests follow from a seed, and a record of each outcome."""

import http.client
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.api.errors import ApiError, RequestRefused
from forewarn.core.access import Role
from forewarn.core.event import EventType
from tests.end_to_end.cluster.history import (
    Document,
    Limits,
    Operation,
    OperationKind,
    Outcome,
    SeenEvent,
)
from tests.end_to_end.cluster.processes import HOSTS, RunningCluster, ServiceNode
from tests.support.serve_process import EVENTS

R = TypeVar("R")

PATIENCE_SECONDS = 90.0
"""How long an operation is repeated until its outcome is known."""

PAUSE_SECONDS = 0.05
"""The pause between two operations of one operator, and between two attempts."""

POLL_SECONDS = 0.15
"""The pause after each round of polls."""

CAMPAIGN_SCOPES = "c*"
FLEET = "fleet"
SETS = ("web", "db", "c0", "c1")
GROWING = ("web", "db")
"""The scopes that VMs are added to; the waves of campaigns in others keep their size."""

ADDED = "new-"
"""How the names of added VMs begin."""

STANDALONE = ("s0", "s1", "s2")
ADDRESSES = 6
"""How many addresses the added VMs share, so that they compete for them."""


class Recorder:
    """Repeats operations until their outcome is known, and records it."""

    def __init__(self, cluster: RunningCluster, seed: str) -> None:
        self.nodes: Sequence[ServiceNode] = cluster.controls
        self.apis: dict[str, ApiClient] = {node.name: node.api for node in cluster.controls}
        self._seed = seed
        self._lock = threading.Lock()
        self._count = 0
        self.operations: list[Operation] = []
        self.limits: dict[str, Limits] = {}

    def fresh_api(self, node: str) -> ApiClient:
        """Return a client that asks a node for everything that any node has answered so far."""
        client = next(each for each in self.nodes if each.name == node).api
        for api in self.apis.values():
            for position in (api._transport.positions.header or "").split(", "):
                client._transport.positions.take(position)
        return client

    def next_key(self) -> str:
        """Return a key that no other operation has."""
        with self._lock:
            self._count += 1
            return f"{self._seed}-{self._count}"

    def add(self, operation: Operation) -> None:
        """Record an operation."""
        with self._lock:
            self.operations.append(operation)

    def ask(
        self,
        chance: random.Random,
        kind: OperationKind,
        target: str,
        call: Callable[[ApiClient, str], R],
        *,
        node: str = "",
        key: str = "",
        event_of: Callable[[R], str] = lambda _: "",
        **fields: str,
    ) -> R | None:
        """Send a request with its key to control nodes until one gives a final answer, and record the outcome."""
        key, begun_at = key or self.next_key(), time.time()
        deadline = time.monotonic() + PATIENCE_SECONDS
        outcome, code, result = Outcome.UNKNOWN, "", None
        used = node
        while time.monotonic() < deadline:
            used = node or chance.choice(self.nodes).name
            try:
                result = call(self.apis[used], key)
                outcome = Outcome.SAVED
                break
            except RequestRefused as error:
                if error.status != 503:
                    outcome, code = Outcome.REFUSED, error.code
                    break
            except ApiError:
                pass
            time.sleep(PAUSE_SECONDS)
        if result is not None:
            fields |= {"event": event_of(result) or fields.get("event", "")}
        operation = Operation(
            kind=kind,
            key=key,
            target=target,
            begun_at=begun_at,
            ended_at=time.time(),
            outcome=outcome,
            node=used,
            code=code,
        )
        operation = msgspec.structs.replace(operation, **fields)
        self.add(operation)
        return result

    def remove_vm(self, chance: random.Random, scope: str, vm: str) -> None:
        """Remove a VM."""

        def call(api: ApiClient, key: str) -> None:
            api.remove_vm(f"{scope}/{vm}", force=True, reason=key, key=key)

        self.ask(chance, OperationKind.REMOVE_VM, scope, call, vm=vm)


class Operators:
    """What one operator asks for, one request after the other."""

    def __init__(self, recorder: Recorder, chance: random.Random, name: str) -> None:
        self._recorder = recorder
        self._chance = chance
        self._name = name
        self._events: list[tuple[str, str]] = []
        self._added: list[tuple[str, str]] = []
        self._campaign: str | None = None
        self._weights: dict[Callable[[], None], int] = {
            self._schedule: 10,
            self._cancel: 3,
            self._hold_and_release: 3,
            self._read_hold: 4,
            self._change_vm: 3,
            self._add_vm: 2,
            self._remove_vm: 1,
            self._create_token: 1,
            self._run_campaign: 1,
        }

    def step(self) -> None:
        """Do one thing."""
        self._chance.choices(list(self._weights), list(self._weights.values()))[0]()

    def _pick_vm(self) -> tuple[str, str]:
        scope = self._chance.choice((*SETS, *STANDALONE))
        if scope in STANDALONE:
            return scope, scope
        return scope, f"{scope}-{self._chance.randrange(2)}"

    def _schedule(self) -> None:
        scope, vm = self._pick_vm()
        # A short notice, one that lasts until a guest approves, and one that lasts until the end.
        notice = self._chance.choice(("1s", "2s", "3s", "30s", "30s", "20m"))
        type_ = EventType.REDEPLOY if scope in STANDALONE and self._chance.random() < 0.3 else EventType.REBOOT

        def call(api: ApiClient, key: str) -> v1.ScheduleResponse:
            request = v1.ScheduleEvents(type=type_, vms=(f"{scope}/{vm}",), notice=notice, reason=key)
            return api.schedule(request, key=key)

        result = self._recorder.ask(
            self._chance, OperationKind.SCHEDULE, scope, call, vm=vm, event_of=lambda result: result.created[0].id
        )
        if result is not None:
            self._events.append((scope, result.created[0].id))

    def _cancel(self) -> None:
        if not self._events:
            return self._schedule()
        scope, event = self._events.pop(self._chance.randrange(len(self._events)))
        self._recorder.ask(
            self._chance,
            OperationKind.CANCEL,
            scope,
            lambda api, key: api.cancel(event, v1.CancelEvent(reason=key), key=key),
            event=event,
        )
        return None

    def _hold_and_release(self) -> None:
        scope = self._chance.choice((None, *SETS))
        target = scope or FLEET
        self._recorder.ask(
            self._chance,
            OperationKind.HOLD,
            target,
            lambda api, key: api.hold(v1.CreateHold(reason=key, scope=scope), key=key),
        )
        for _ in range(3):
            self._chance.choice((self._schedule, self._read_hold, self._change_vm))()
        self._recorder.ask(
            self._chance,
            OperationKind.RELEASE,
            target,
            lambda api, key: api.release(v1.ReleaseHold(scope=scope, reason=key), key=key),
        )

    def _read_hold(self) -> None:
        scope, node = self._chance.choice((None, *SETS)), self._chance.choice(self._recorder.nodes).name
        is_fresh = self._chance.random() < 0.5
        begun_at = time.time()
        try:
            hold = (self._recorder.fresh_api(node) if is_fresh else self._recorder.apis[node]).holds().of(scope)
        except ApiError:
            return
        operation = Operation(
            kind=OperationKind.READ_HOLD,
            key=self._recorder.next_key(),
            target=scope or FLEET,
            begun_at=begun_at,
            ended_at=time.time(),
            outcome=Outcome.SAVED,
            node=node,
            value="" if hold is None else hold.reason,
            is_fresh=is_fresh,
        )
        self._recorder.add(operation)

    def _change_vm(self) -> None:
        scope, vm = self._pick_vm()
        value = self._recorder.next_key()
        self._recorder.ask(
            self._chance,
            OperationKind.CHANGE_VM,
            scope,
            lambda api, key: api.change_vm(f"{scope}/{vm}", v1.ChangeVm(tags={"n": value}), key=key),
            vm=vm,
            value=value,
        )

    def _add_vm(self) -> None:
        scope, vm = self._chance.choice(GROWING), f"{ADDED}{self._recorder.next_key()}"
        address = f"10.1.0.{1 + self._chance.randrange(ADDRESSES)}"
        request = v1.AddVm(
            name=vm,
            scope=scope,
            host=self._chance.choice(HOSTS),
            update_domain=self._chance.randrange(3),
            addresses=(v1.NewAddress(ip=address),),
        )
        result = self._recorder.ask(
            self._chance,
            OperationKind.ADD_VM,
            scope,
            lambda api, key: api.add_vm(request, key=key),
            vm=vm,
            value=address,
        )
        if result is not None:
            self._added.append((scope, vm))

    def _remove_vm(self) -> None:
        if not self._added:
            return self._add_vm()
        self._recorder.remove_vm(self._chance, *self._added.pop(0))
        return None

    def _create_token(self) -> None:
        name = f"token-{self._chance.randrange(20)}"
        request = v1.CreateToken(name=name, role=Role.VIEWER)
        self._recorder.ask(
            self._chance, OperationKind.CREATE_TOKEN, name, lambda api, key: api.create_token(request, key=key)
        )

    def _run_campaign(self) -> None:
        """Start a campaign, or pause and resume, or abort the running one."""
        if self._campaign is None:
            name = f"{self._name}-{self._recorder.next_key()}"
            limits = Limits(scopes=self._chance.choice((1, 2)), vms=self._chance.choice((1, 2)))
            request = v1.StartCampaign(
                name=name,
                type=v1.CampaignType.REBOOT,
                selection=v1.CampaignSelection(scopes=(CAMPAIGN_SCOPES,)),
                duration="1s",
                policy=v1.CampaignPolicy(
                    scopes_at_once=limits.scopes, vms_at_once=limits.vms, notice="1s", gap="0s", advance=True
                ),
                reason="",
            )

            def start(api: ApiClient, key: str) -> v1.Campaign:
                return api.start_campaign(msgspec.structs.replace(request, reason=key), key=key)

            result = self._recorder.ask(self._chance, OperationKind.START_CAMPAIGN, name, start)
            if result is not None:
                self._recorder.limits[result.id] = limits
                self._campaign = name
            return
        name = self._campaign
        if self._chance.random() < 0.3:
            self._campaign = None
            self._recorder.ask(
                self._chance,
                OperationKind.ABORT_CAMPAIGN,
                name,
                lambda api, key: api.abort_campaign(name, v1.AbortCampaign(reason=key), key=key),
            )
            return
        self._recorder.ask(
            self._chance,
            OperationKind.PAUSE_CAMPAIGN,
            name,
            lambda api, key: api.pause_campaign(name, v1.PauseCampaign(reason=key), key=key),
        )
        for _ in range(3):
            self._schedule()
        self._recorder.ask(
            self._chance,
            OperationKind.RESUME_CAMPAIGN,
            name,
            lambda api, key: api.resume_campaign(name, v1.ResumeCampaign(reason=key), key=key),
        )


class Guests:
    """The guests of all VMs: they poll, record each new document, and approve some events."""

    def __init__(self, recorder: Recorder, cluster: RunningCluster, chance: random.Random) -> None:
        self._recorder = recorder
        self._cluster = cluster
        self._chance = chance
        self._places: dict[str, tuple[str, str]] = {}
        """The host and URL of each `scope/name`, as far as a control node has told."""
        self._last: dict[tuple[str, str], str] = {}
        self._decided: set[str] = set()
        self.documents: list[Document] = []
        self.answered: Counter[str] = Counter()
        """How many polls each host has answered."""

    def find_places(self) -> None:
        """Ask a control node where each VM has its endpoint."""
        for node in self._cluster.controls:
            with suppress(ApiError):
                found = list(node.api.vms())
                self._places = {
                    f"{vm.scope}/{vm.name}": (vm.host, vm.guest_url)
                    for vm in found
                    if vm.guest_url is not None and vm.host is not None
                }
                return

    def step(self) -> None:
        """Poll for each VM once."""
        for vm, (host, url) in list(self._places.items()):
            self._poll(vm, host, url)

    def _poll(self, vm: str, host: str, url: str) -> None:
        try:
            status, etag, body = _request(url, "GET")
        except (OSError, http.client.HTTPException):
            return
        self.answered[host] += 1
        if status != 200 or self._last.get((host, vm)) == etag:
            return
        self._last[host, vm] = etag
        epoch, incarnation, _ = etag.strip('"').split(".")
        scope, _, name = vm.partition("/")
        content = json.loads(body)
        assert content["DocumentIncarnation"] == int(incarnation)
        events = tuple(
            SeenEvent(event["EventId"], event["EventStatus"], tuple(event["Resources"])) for event in content["Events"]
        )
        self.documents.append(
            Document(
                host=host,
                scope=scope,
                vm=name,
                at=time.time(),
                epoch=epoch,
                incarnation=int(incarnation),
                events=events,
            )
        )
        for event in events:
            if event.status == "Scheduled" and name in event.vms and event.id not in self._decided:
                self._decided.add(event.id)
                if self._chance.random() < 0.5:
                    self._approve(scope, name, host, url, event.id)

    def _approve(self, scope: str, vm: str, host: str, url: str, event: str) -> None:
        """Approve an event. A guest has no key, so a refusal after an attempt without an answer proves nothing."""
        begun_at, deadline = time.time(), time.monotonic() + 3
        outcome, is_uncertain = Outcome.UNKNOWN, False
        while time.monotonic() < deadline:
            try:
                status, _, body = _request(url, "POST", json.dumps({"StartRequests": [{"EventId": event}]}))
            except (OSError, http.client.HTTPException):
                is_uncertain = True
                time.sleep(PAUSE_SECONDS)
                continue
            if status == 200:
                outcome = Outcome.SAVED
                break
            if status != 503:
                outcome = Outcome.UNKNOWN if is_uncertain else Outcome.REFUSED
                break
            is_uncertain = is_uncertain or b"no effect" not in body
            time.sleep(PAUSE_SECONDS)
        else:
            outcome = Outcome.UNKNOWN
        self._recorder.add(
            Operation(
                kind=OperationKind.APPROVE,
                key=self._recorder.next_key(),
                target=scope,
                begun_at=begun_at,
                ended_at=time.time(),
                outcome=outcome,
                node=host,
                vm=vm,
                event=event,
            )
        )


def _request(url: str, method: str, body: str | None = None) -> tuple[int, str, bytes]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=10)
    try:
        connection.request(method, EVENTS, body, {"Metadata": "true"})
        answer = connection.getresponse()
        return answer.status, answer.getheader("ETag", ""), answer.read()
    finally:
        connection.close()


class Workload:
    """Operators and guests in threads, until they are stopped."""

    def __init__(self, cluster: RunningCluster, seed: str, operators: int = 2) -> None:
        self.recorder = Recorder(cluster, seed)
        self.guests = Guests(self.recorder, cluster, random.Random(f"{seed} guests"))
        self._operators = [
            Operators(self.recorder, random.Random(f"{seed} operator {n}"), f"op-{n}") for n in range(operators)
        ]
        self._is_over, self._is_quiet = threading.Event(), threading.Event()
        self._errors: list[BaseException] = []
        self._operator_threads = [
            threading.Thread(target=self._run, args=(self._operate, operator)) for operator in self._operators
        ]
        self._guest_thread = threading.Thread(target=self._run, args=(self._poll, self.guests))

    def start(self) -> None:
        """Start all."""
        for thread in (*self._operator_threads, self._guest_thread):
            thread.start()

    def stop_operators(self) -> None:
        """Let every operator finish what it does."""
        self._is_quiet.set()
        for thread in self._operator_threads:
            if thread.ident is not None:
                thread.join()

    def stop(self) -> None:
        """End everything, and raise the first error of a thread."""
        self.stop_operators()
        self._is_over.set()
        if self._guest_thread.ident is not None:
            self._guest_thread.join()
        if self._errors:
            raise self._errors[0]

    def wait_for(self, operations: int) -> None:
        """Return when so many more operations have an outcome, or none has had one for a while."""
        target = len(self.recorder.operations) + operations
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(self.recorder.operations) < target and time.monotonic() < deadline and not self._errors:
            time.sleep(0.02)

    def _operate(self, operator: Operators) -> None:
        while not self._is_quiet.is_set():
            operator.step()
            time.sleep(PAUSE_SECONDS)

    def _poll(self, guests: Guests) -> None:
        rounds = 0
        while not self._is_over.is_set():
            if rounds % 8 == 0:
                guests.find_places()
            rounds += 1
            guests.step()
            time.sleep(POLL_SECONDS)

    def _run(self, work: Callable[..., None], subject: object) -> None:
        try:
            work(subject)
        except BaseException as error:  # noqa: BLE001 - `stop` raises it
            self._errors.append(error)
