#!/usr/bin/env python3
"""Count the modules of Forewarn that real calls cross, and measure the modules.

    tools/trace_modules.py                  every phase below, as a table
    tools/trace_modules.py --list get       the modules of one phase, in the order of their first call
    tools/trace_modules.py --sizes          number and size of the modules, and how many have one importer
    tools/trace_modules.py --python PATH    the Forewarn of another environment, of an older commit for example

A phase crosses a module if the body of one of its functions, methods, lambdas or comprehensions runs between the
phase's first and last moment, in any thread of the processes that the phase counts. Imports do not count: neither
the bodies of modules and classes, nor functions that these call. A module that only gives constants or types to
others is not crossed, nor is one that does its work in C (a struct that msgspec decodes).

| phase    | from                                            | to                                  | counts           |
|----------|-------------------------------------------------|-------------------------------------|------------------|
| get      | a VM opens a connection, after an event changed | it has read the events              | service          |
| first    | the same, for the first request of a VM         | it has read the events              | service          |
| approval | a VM opens a connection to send its POST        | it has read the response            | service          |
| schedule | `forewarn event schedule` starts                | it has ended                        | service, command |
| due      | an event is scheduled, no VM sends requests     | it was due, and its impact is done  | service          |
| wave     | a campaign waits for its start, no requests     | its first wave is done              | service          |
| agent    | the agent runs; then an event is scheduled      | the agent has recovered             | agent            |
| exam     | `forewarn exam` of a small handler starts       | it has ended, after one scenario    | exam             |
| idle     | no requests, nothing is due                     | two seconds later                   | service          |

The service is `forewarn up` with its usual store and simulated platform, in real time. Its timers keep running: `idle`
shows the modules that they cross. The first three phases take milliseconds and run three times, each with another VM;
only modules that are crossed each time count, which excludes most timers. Counts of two runs differ by one or two.

Nothing here names a module, class or function of Forewarn, so that commits with different names can be compared: only
the command line, keys of TOML files and the guest protocol are used.
"""

import argparse
import ast
import contextlib
import http.client
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

TOOLS = Path(__file__).resolve().parent

EVENTS_PATH = "/metadata/scheduledevents?api-version=2020-07-01"
SCENARIO = "user-restart"
SPEED = 600
"""Divides notices and durations: the usual 15 minutes of notice take 1.5 seconds, a reboot a tenth of a second."""
FAR_AHEAD = "20d"
"""A notice that does not pass while a phase lasts, although SPEED divides it."""
MARGIN = 2.0
"""Seconds for the service to finish due work."""
TIMEOUT = 120.0
REPEATED = [f"{name}-{n}" for name in ("get", "first", "approval") for n in range(3)]
"""The VMs of phases that are run more than once, each in a scope of its own."""

FLEET = """
[[scopes]]
name = "wave"
kind = "availability-set"
update_domains = 2
vms = [{ name = "wave-{n}", count = 2 }]
""" + "".join(
    f'\n[[scopes]]\nname = "{name}"\nkind = "standalone"\n' for name in (*REPEATED, "schedule", "due", "agent")
)

CAMPAIGN = """
name = "kernel"
type = "Reboot"
start_at = {start_at:%Y-%m-%dT%H:%M:%SZ}

[selection]
scopes = ["wave"]

[policy]
gap = "12h"
"""

AGENT = """
endpoint = "{endpoint}"
state = "agent-state"
interval = "0.2s"

[http]
listen = "none"

[handlers.diary]
kind = "exec"
prepare = ["/bin/sh", "-c", "echo prepared >> {diary}"]
recover = ["/bin/sh", "-c", "echo recovered >> {diary}"]

[[rules]]
types = ["Reboot"]
handlers = ["diary", "log"]
"""

HANDLER = f"""
import json, os, time, urllib.request

def send(body=None):
    request = urllib.request.Request(os.environ["FOREWARN_ENDPOINT"] + "{EVENTS_PATH}", body, {{"Metadata": "true"}})
    with urllib.request.urlopen(request) as response:
        return response.read()

while True:
    for event in json.loads(send() or '{{"Events": []}}')["Events"]:
        if event["EventStatus"] == "Scheduled" and "web-0" in event["Resources"]:
            send(json.dumps({{"StartRequests": [{{"EventId": event["EventId"]}}]}}).encode())
    time.sleep(0.5)
"""


class TraceError(Exception):
    """A phase failed, so its count would be meaningless."""


@dataclass(frozen=True, kw_only=True)
class Crossing:
    """The first call of a function in a module, in one process during one phase."""

    process: str
    module: str
    function: str


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One way through the code, and the processes in which its modules count."""

    title: str
    run: "Callable[[Lab], None]"
    processes: tuple[str, ...] = ("service",)
    has_service: bool = True


class Tracer:
    """The shared byte that tells traced processes the current phase, and what they have recorded."""

    def __init__(self, directory: Path, package: Path) -> None:
        self.directory = directory
        self.package = package
        self._byte = directory / "phase"
        self._byte.write_bytes(b"\0")
        self._phases: list[str] = []

    def environment(self, process: str) -> dict[str, str]:
        """Return the environment variables that trace a Python process under this name."""
        return {
            "PYTHONPATH": str(TOOLS / "tracer"),
            "TRACE_MODULES_DIRECTORY": str(self.directory),
            "TRACE_MODULES_PACKAGE": str(self.package),
            "TRACE_MODULES_PROCESS": process,
        }

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Record under this name. The same name can be used again, for a repetition."""
        self._phases.append(name)
        self._set(len(self._phases))
        try:
            yield
        finally:
            self._set(0)

    def _set(self, number: int) -> None:
        # In place: the traced processes have mapped the file.
        with self._byte.open("r+b") as file:
            file.write(bytes([number]))

    def crossings(self, name: str, processes: Sequence[str]) -> list[Crossing]:
        """Return the first call of each module in each process, in order.

        A repeated phase counts only the modules that every repetition has crossed.
        """
        found: dict[tuple[str, str], Crossing] = {}
        crossed_in: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        records = ((process, line) for process in processes for line in self._lines(process))
        for process, line in sorted(records, key=lambda record: int(record[1].partition("\t")[0])):
            _, number, file, function = line.split("\t")
            if self._phases[int(number) - 1] == name:
                module = module_name(self.package, self.package / file)
                crossing = Crossing(process=process, module=module, function=function)
                found.setdefault((process, module), crossing)
                crossed_in[process, module].add(number)
        return [crossing for key, crossing in found.items() if len(crossed_in[key]) == self._phases.count(name)]

    def _lines(self, process: str) -> list[str]:
        path = self.directory / process
        return path.read_text().splitlines() if path.exists() else []

    def wait_until_quiet(self, process: str, seconds: float) -> None:
        """Wait until a process has crossed a module, and then no new one for this long."""
        path = self.directory / process
        deadline = time.monotonic() + TIMEOUT
        size, since = 0, time.monotonic()
        while not size or time.monotonic() < since + seconds:
            if time.monotonic() > deadline:
                raise TraceError(f"the process {process} crosses no module, or never stops crossing new ones")
            time.sleep(0.05)
            now = path.stat().st_size if path.exists() else 0
            if now != size:
                size, since = now, time.monotonic()


class Lab:
    """A folder with a service, its fleet and everything else that the phases need."""

    def __init__(self, python: Path, directory: Path, tracer: Tracer) -> None:
        self.forewarn = python.with_name("forewarn")
        self.directory = directory
        self.tracer = tracer
        self._guests: dict[str, str] = {}

    def environment(self, process: str | None) -> dict[str, str]:
        """Return the variables of a process, which is traced if it is given a name."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("FOREWARN_", "PYTHON"))}
        traced = self.tracer.environment(process) if process else {}
        own = {"FOREWARN_DATA": str(self.directory / "data"), "FOREWARN_POLICY_SHORTEST_NOTICE": "0s"}
        return kept | own | traced

    def command(self, *words: str, process: str | None = None) -> None:
        """Run a command of Forewarn to its end."""
        ended = subprocess.run(
            [self.forewarn, *words],
            cwd=self.directory,
            env=self.environment(process),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        if ended.returncode:
            output = (ended.stderr or ended.stdout).strip()
            raise TraceError(f"`forewarn {' '.join(words)}` exited with {ended.returncode}: {output}")

    @contextlib.contextmanager
    def background(self, *words: str, process: str) -> Iterator[subprocess.Popen[str]]:
        """Run a traced command of Forewarn until the block ends."""
        log = self.directory / f"{process}.log"
        with log.open("w") as errors:
            running = subprocess.Popen(
                [self.forewarn, *words],
                cwd=self.directory,
                env=self.environment(process),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        with running:
            try:
                yield running
            except TraceError as error:
                raise TraceError(f"{error}\n{log.read_text()}") from error
            finally:
                running.send_signal(signal.SIGTERM)
                try:
                    running.communicate(timeout=TIMEOUT)
                except subprocess.TimeoutExpired:
                    running.kill()

    @contextlib.contextmanager
    def service(self) -> Iterator[None]:
        """Run the service until the block ends."""
        fleet = self.directory / "fleet.toml"
        fleet.write_text(FLEET)
        listen = ("--listen", "127.0.0.1:0", "--operator", "127.0.0.1:0", "--speed", str(SPEED))
        with self.background("up", "--fleet", str(fleet), *listen, "-o", "json", process="service") as running:
            assert running.stdout is not None
            line = running.stdout.readline()
            if not line:
                raise TraceError("the service did not start")
            self._guests = find_guests(json.loads(line))
            yield

    def guest_url(self, vm: str) -> str:
        """Return the endpoint of a VM, which is named as scope/name."""
        if vm not in self._guests:
            raise TraceError(f"the service gives no endpoint for {vm}")
        return self._guests[vm]

    def send(self, vm: str, body: bytes | None = None, *, phase: str | None = None) -> bytes:
        """Send one request on a connection of its own, as the VM does: a POST if there is a body.

        The phase, if one is named, lasts until the response is read; the connection is closed after it.
        """
        connection = http.client.HTTPConnection(urlsplit(self.guest_url(vm)).netloc, timeout=TIMEOUT)
        with contextlib.closing(connection), self.tracer.phase(phase) if phase else contextlib.nullcontext():
            connection.request("GET" if body is None else "POST", EVENTS_PATH, body, {"Metadata": "true"})
            response = connection.getresponse()
            content = response.read()
        if response.status != http.HTTPStatus.OK:
            raise TraceError(f"the endpoint of {vm} answered {response.status}: {content.decode()}")
        return content

    def document(self, vm: str) -> Any:
        """Return what the VM sees of its scope."""
        return json.loads(self.send(vm))

    def event(self, vm: str) -> Any:
        """Return the one event that the VM sees."""
        events = self.document(vm)["Events"]
        if len(events) != 1:
            raise TraceError(f"{vm} should see one event, but sees {events}")
        return events[0]


def find_guests(value: object) -> dict[str, str]:
    """Find the table of endpoints by scope/name anywhere in the output of the service."""
    if not isinstance(value, dict):
        return {}
    here = {name: url for name, url in value.items() if "/" in name and isinstance(url, str)}
    return here or next(filter(None, map(find_guests, value.values())), {})


def sleep_until(moment: datetime) -> None:
    time.sleep(max(0.0, (moment - datetime.now(UTC)).total_seconds()))


def vms_of(phase: str) -> list[str]:
    return [name for name in REPEATED if name.startswith(f"{phase}-")]


def trace_get(lab: Lab) -> None:
    for name in vms_of("get"):
        lab.send(f"{name}/{name}")
    trace_first_request(lab, "get")


def trace_first_request(lab: Lab, phase: str) -> None:
    for name in vms_of(phase):
        lab.command("event", "schedule", "Reboot", name, "--in", FAR_AHEAD)
    time.sleep(MARGIN)
    for name in vms_of(phase):
        lab.send(f"{name}/{name}", phase=phase)


def trace_approval(lab: Lab) -> None:
    requests = {}
    for name in vms_of("approval"):
        lab.command("event", "schedule", "Reboot", name, "--in", FAR_AHEAD)
        requests[name] = {"StartRequests": [{"EventId": lab.event(f"{name}/{name}")["EventId"]}]}
    for name, request in requests.items():
        # The impact of the previous approval has finished by then.
        time.sleep(MARGIN)
        lab.send(f"{name}/{name}", json.dumps(request).encode(), phase="approval")


def trace_schedule(lab: Lab) -> None:
    with lab.tracer.phase("schedule"):
        lab.command("event", "schedule", "Reboot", "schedule", "--in", FAR_AHEAD, process="command")
    lab.event("schedule/schedule")


def trace_due(lab: Lab) -> None:
    lab.command("event", "schedule", "Reboot", "due", "--in", "60m")
    due_at = parsedate_to_datetime(lab.event("due/due")["NotBefore"])
    sleep_until(due_at - timedelta(seconds=1))
    with lab.tracer.phase("due"):
        check_is_early(due_at)
        sleep_until(due_at + timedelta(seconds=MARGIN))
    check_is_over(lab.document("due/due"))


def trace_wave(lab: Lab) -> None:
    vm = "wave/wave-0"
    incarnation = lab.document(vm)["DocumentIncarnation"]
    start_at = (datetime.now(UTC) + timedelta(seconds=6)).replace(microsecond=0)
    file = lab.directory / "campaign.toml"
    file.write_text(CAMPAIGN.format(start_at=start_at))
    lab.command("campaign", "start", str(file))
    sleep_until(start_at - timedelta(seconds=1))
    with lab.tracer.phase("wave"):
        check_is_early(start_at)
        # The notice is 1.5 seconds and ends with a full second; reboot and margin follow.
        sleep_until(start_at + timedelta(seconds=3 + MARGIN))
    document = lab.document(vm)
    check_is_over(document)
    if document["DocumentIncarnation"] < incarnation + 3:
        raise TraceError(f"the wave was not announced, started and settled: {vm} sees {document}")


def check_is_early(moment: datetime) -> None:
    if datetime.now(UTC) > moment:
        raise TraceError(f"the machine is too slow: nothing was traced before {moment:%H:%M:%SZ}")


def check_is_over(document: Any) -> None:
    if document["Events"]:
        raise TraceError(f"the machine is too slow, or work has failed: the event is still there in {document}")


def trace_agent(lab: Lab) -> None:
    diary = lab.directory / "diary"
    settings = lab.directory / "agent.toml"
    settings.write_text(AGENT.format(endpoint=lab.guest_url("agent/agent"), diary=diary))
    with lab.background("agent", "run", "--config", str(settings), process="agent"):
        with lab.tracer.phase("agent starts"):
            lab.tracer.wait_until_quiet("agent", MARGIN)
        with lab.tracer.phase("agent"):
            lab.command("event", "schedule", "Reboot", "agent", "--in", FAR_AHEAD)
            deadline = time.monotonic() + TIMEOUT
            while not diary.exists() or "recovered" not in diary.read_text():
                if time.monotonic() > deadline:
                    raise TraceError("the agent has not recovered")
                time.sleep(0.05)
            lab.tracer.wait_until_quiet("agent", MARGIN)


def trace_exam(lab: Lab) -> None:
    handler = lab.directory / "handler.py"
    handler.write_text(HANDLER)
    options = ("--only", SCENARIO, "--url-variable", "FOREWARN_ENDPOINT")
    with lab.tracer.phase("exam"):
        lab.command("exam", *options, "--", sys.executable, "-I", str(handler), process="exam")


def trace_idle(lab: Lab) -> None:
    with lab.tracer.phase("idle"):
        time.sleep(2)


PHASES = {
    "get": Phase(title="cold GET", run=trace_get),
    "first": Phase(title="(first GET of a VM)", run=lambda lab: trace_first_request(lab, "first")),
    "approval": Phase(title="approval", run=trace_approval),
    "schedule": Phase(title="event schedule", run=trace_schedule, processes=("command", "service")),
    "due": Phase(title="due event", run=trace_due),
    "wave": Phase(title="campaign wave", run=trace_wave),
    "agent": Phase(title="agent's path", run=trace_agent, processes=("agent",)),
    "exam": Phase(title="exam", run=trace_exam, processes=("exam",), has_service=False),
    "idle": Phase(title="(idle service)", run=trace_idle),
}


def trace(python: Path, package: Path, names: Sequence[str]) -> dict[str, list[Crossing]]:
    """Run the phases of these names, and return what each has crossed."""
    with tempfile.TemporaryDirectory(prefix="trace-modules-") as temporary, contextlib.ExitStack() as stack:
        directory = Path(temporary)
        records = directory / "records"
        records.mkdir()
        tracer = Tracer(records, package)
        lab = Lab(python, directory, tracer)
        if any(PHASES[name].has_service for name in names):
            stack.enter_context(lab.service())
        crossed = {}
        for name in names:
            print(f"{PHASES[name].title} …", file=sys.stderr)
            # Work of the previous phase has finished by then.
            time.sleep(MARGIN if PHASES[name].has_service else 0)
            PHASES[name].run(lab)
            crossed[name] = tracer.crossings(name, PHASES[name].processes)
            if not crossed[name] and name != "idle":
                raise TraceError(f"{name}: no module of {package} was crossed")
        return crossed


def module_name(package: Path, path: Path) -> str:
    """Return the dotted name of a file of the package."""
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def measure(package: Path) -> dict[str, float]:
    """Measure the modules of a package, without `__init__` files of one line or none.

    An importer is a module of the package that has an import statement for the module, or for a name in it, anywhere
    in its code. `from package import module` imports the module, not the package.
    """
    texts = {module_name(package, path): path.read_text() for path in sorted(package.rglob("*.py"))}
    files = {module_name(package, path): path.name for path in package.rglob("*.py")}
    lines = {name: len(text.splitlines()) for name, text in texts.items()}
    modules = [name for name in texts if files[name] != "__init__.py" or lines[name] > 1]
    importers = Counter(
        target for name, text in texts.items() for target in imported_modules(ast.parse(text), texts.keys()) - {name}
    )
    return {
        "modules": len(modules),
        "under 60 lines": sum(lines[name] < 60 for name in modules),
        "under 100 lines": sum(lines[name] < 100 for name in modules),
        "with one importer": sum(importers[name] == 1 for name in modules),
        "median lines": statistics.median(lines[name] for name in modules),
        "lines": sum(lines[name] for name in modules),
    }


def imported_modules(tree: ast.AST, modules: Collection[str]) -> set[str]:
    """Return those of the modules that the code imports."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in modules else node.module for name in inner}
    return found & set(modules)


def print_table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(heading, *rows, strict=True)]
    for row in (heading, *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def count(name: str, crossings: Sequence[Crossing]) -> dict[str, Any]:
    """Count the modules that a phase has crossed, in all of its processes and in each."""
    each = Counter(crossing.process for crossing in crossings)
    return {
        "title": PHASES[name].title,
        "modules": len({crossing.module for crossing in crossings}),
        "processes": {process: each[process] for process in PHASES[name].processes},
        "crossings": [asdict(crossing) for crossing in crossings],
    }


def print_counts(counts: dict[str, dict[str, Any]]) -> None:
    processes = sorted({process for counted in counts.values() for process in counted["processes"]})
    rows = [
        [
            name,
            counted["title"],
            str(counted["modules"]),
            *(str(counted["processes"].get(each, "")) for each in processes),
        ]
        for name, counted in counts.items()
    ]
    print_table(["PHASE", "OF", "MODULES", *(process.upper() for process in processes)], rows)


def find_package(python: Path) -> Path:
    """Return the folder of the package that a Python imports as forewarn."""
    program = "import importlib.util; print(importlib.util.find_spec('forewarn').origin)"
    found = subprocess.run([python, "-P", "-c", program], capture_output=True, text=True, check=False)
    if found.returncode:
        raise TraceError(f"{python} cannot import forewarn: name one that can with --python")
    return Path(found.stdout.strip()).parent


def main() -> int:
    here = TOOLS.parent / ".venv/bin/python"
    parser = argparse.ArgumentParser(description="Count the modules of Forewarn that real calls cross.")
    parser.add_argument("--python", type=Path, metavar="PATH", help="the Python whose Forewarn is traced")
    parser.add_argument("--only", action="append", choices=PHASES, help="trace only this phase; can be repeated")
    parser.add_argument("--list", choices=PHASES, metavar="PHASE", help="list the modules of a phase in order")
    parser.add_argument("--sizes", action="store_true", help="measure the modules; trace nothing")
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table", help="how results are shown")
    options = parser.parse_args()
    python = options.python or (here if here.exists() else Path(sys.executable))
    try:
        package = find_package(python.absolute())
        if options.sizes:
            sizes = measure(package)
            if options.output == "json":
                print(json.dumps(sizes, indent=2))
            else:
                print_table(["MODULES", "COUNT"], [[name, f"{value:g}"] for name, value in sizes.items()])
            return 0
        crossed = trace(python.absolute(), package, [options.list] if options.list else options.only or list(PHASES))
    except (TraceError, OSError, subprocess.TimeoutExpired) as error:
        print(f"trace_modules: {error}", file=sys.stderr)
        return 1
    counts = {name: count(name, crossings) for name, crossings in crossed.items()}
    if options.output == "json":
        print(json.dumps(counts, indent=2))
    elif options.list:
        rows = [[str(n), each.process, each.module, each.function] for n, each in enumerate(crossed[options.list], 1)]
        print_table(["", "PROCESS", "MODULE", "FIRST CALL"], rows)
    else:
        print_counts(counts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
