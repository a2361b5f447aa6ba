"""Errors of the operator API, raised before the fleet is called.

OperatorError
├── TokenNotAllowed       the token's role is not sufficient, or it is limited to scopes
├── ScopeNotAllowed       the token is limited to other scopes
├── HostNotAllowed        the host has VMs of scopes that the token is not for
├── TokenVmNotFound       no VM has this bare name in the token's scopes
├── JournalEventNotFound  the event never existed in the token's scopes, or the journal was pruned
├── VmNameNotFound        no VM has this bare name, and none had it when it was removed
├── TooManyStreams        the limit of open journal streams is reached
├── ImportConflict        another import is running
├── ImportFailed          an import ended before it was complete
├── ImportCanceled        an operator has canceled the import
├── ImportNotFound        no import is running
├── SocketUnavailable     the system cannot open a VM's socket
├── SocketNotAllowed      VM sockets exist only in the emulator, and not on Windows
├── FaultNotAllowed       faults exist only in the emulator
├── EmulatorNotRunning    the request is only for an emulator
├── TimeNotVirtual        the emulator runs in real time
├── ScenarioNotFound      no such scenario ships with Forewarn
├── ScenarioRunNotFound   there is no such run, or it is too old
├── ScenarioConflict      another scenario is playing
├── ScenarioRefused       the service cannot play this scenario
├── InvalidScenario       the text of a scenario is invalid
├── ReportNotFound        there is no such report, or it is too old
├── ReportNotSaved        the report could not be written
├── InvalidFleetFile      the fleet file is invalid
├── GateNotAllowed        a gate with its own URL needs the role admin
├── SelectionNotAllowed   a campaign could select VMs outside the token's scopes
└── PlanFailed            the process that made a plan died
"""

from forewarn.core.access import Role
from forewarn.core.base_error import CodedError
from forewarn.fleet.errors import VmNotFound


class OperatorError(CodedError):
    """The operator API refuses the request."""

    code = "refused"
    template = "the request was refused"


class TokenNotAllowed(OperatorError):
    """The token's role is not sufficient, or the token is limited to scopes."""

    code = "forbidden"
    template = "token {token_name} {problem}"
    hidden_fields = frozenset({"is_limited"})
    token_name: str
    role: Role
    required_role: Role
    is_limited: bool

    @property
    def problem(self) -> str:
        """What the token lacks."""
        if self.is_limited:
            return "is limited to some scopes, but this request affects all; use a token without scopes"
        return (
            f"has the role {self.role.value}, but this request requires {self.required_role.value}; use another token"
        )


class ScopeNotAllowed(OperatorError):
    """The token is limited to other scopes."""

    code = "scope-forbidden"
    template = "token {token_name} is limited to {scopes}, which does not include scope {scope}; use another token"
    token_name: str
    scope: str
    scopes: tuple[str, ...]


class HostNotAllowed(OperatorError):
    """The host has VMs of scopes that the token is not for; the response does not say which."""

    code = "scope-forbidden"
    template = (
        "token {token_name} is limited to {scopes}, but host {host} also has VMs of other scopes; "
        "specify VMs instead of the host, or use another token"
    )
    token_name: str
    host: str
    scopes: tuple[str, ...]


class TokenVmNotFound(OperatorError, VmNotFound):
    """No VM has this bare name in the token's scopes; the response does not say whether another scope has one."""

    code = "vm-not-found"
    template = "there is no VM {vm} in {scopes}, and token {token_name} is limited to these scopes"
    token_name: str
    scopes: tuple[str, ...]


class JournalEventNotFound(OperatorError):
    """The event never existed in the token's scopes, or the journal was pruned."""

    code = "event-not-found"
    template = "there is no event {event}{place}"
    hidden_fields = frozenset({"scopes"})
    event: str
    scopes: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """Where the event was searched."""
        return f" in {', '.join(self.scopes)}, and the token is limited to these" if self.scopes else " in the journal"


class VmNameNotFound(OperatorError):
    """No VM has this bare name, and none had it when it was removed."""

    code = "vm-not-found"
    template = "there is no VM {vm}, and the journal has no removal of one; specify a VM of long ago as SCOPE/{vm}"
    vm: str


class TooManyStreams(OperatorError):
    """The limit of open journal streams is reached."""

    template = "the limit of {limit} open journal streams is reached; close one, or read the journal in pages"
    limit: int


class ImportConflict(OperatorError):
    """Another import is running."""

    code = "import-in-progress"
    template = "an import by {created_by} is running, {done} of {total} scopes are done; wait until it ends, then retry"
    created_by: str
    done: int
    total: int


class ImportFailed(OperatorError):
    """An import ended before it was complete; the scopes that it had changed stay changed."""

    template = "the import ended after {done} of {total} scopes: {reason}; retry, and it continues with the differences"
    done: int
    total: int
    reason: str


class ImportCanceled(OperatorError):
    """An operator has canceled the import; the scopes that it had changed stay changed."""

    template = "{by} has canceled the import after {done} of {total} scopes; {kept}"
    by: str
    done: int
    total: int
    dry_run: bool = False
    hidden_fields = frozenset({"dry_run"})

    @property
    def kept(self) -> str:
        """What has changed."""
        if self.dry_run or not self.done:
            return "nothing has changed"
        return "these stay changed; import the file again to continue with the differences"


class ImportNotFound(OperatorError):
    """No import is running."""

    template = "no import is running"


class SocketUnavailable(OperatorError):
    """The system cannot open a VM's socket."""

    template = "cannot open a socket for VM {vm}: {reason}"
    vm: str
    reason: str


class SocketNotAllowed(OperatorError):
    """VM sockets exist only in the emulator, and not on Windows."""

    code = "emulator-only"
    template = "only the emulator (`forewarn up`, not on Windows) lets a program on its machine act as a VM"


class FaultNotAllowed(OperatorError):
    """Faults exist only in the emulator."""

    code = "emulator-only"
    template = "this service is for real VMs; faults can be set only in the emulator (`forewarn up`)"


class EmulatorNotRunning(OperatorError):
    """The request is only for an emulator."""

    code = "emulator-only"
    template = "this service is for real VMs; only the emulator (`forewarn up`) does this"


class TimeNotVirtual(OperatorError):
    """The emulator runs in real time."""

    template = (
        "the emulator runs in real time, in which this would take too long: start it with --manual-time or --speed, "
        "or set its speed (`forewarn clock speed 60`)"
    )


class ScenarioNotFound(OperatorError):
    """No such scenario ships with Forewarn."""

    template = "there is no scenario {scenario}; GET /v1/scenarios lists them"
    scenario: str


class ScenarioRunNotFound(OperatorError):
    """There is no such run, or it is too old."""

    template = "there is no scenario run {run}; the last {limit} since the start of the service are kept"
    run: str
    limit: int


class ScenarioConflict(OperatorError):
    """Another scenario is playing."""

    code = "scenario-in-progress"
    template = "scenario {scenario} by {created_by} is playing (run {run}); wait until it ends, or cancel it"
    scenario: str
    created_by: str
    run: str


class ScenarioRefused(OperatorError):
    """The service cannot play this scenario."""

    template = "this service cannot play scenario {scenario}: {problem}"
    scenario: str
    problem: str


class InvalidScenario(OperatorError):
    """The text of a scenario is invalid; `line` and `column` have the place."""

    template = "line {line}, column {column}: {shown}{problem}"
    line: int
    column: int
    word: str
    problem: str

    @property
    def shown(self) -> str:
        """The wrong word, if there is one."""
        return f"{self.word!r}: " if self.word else ""


class ReportNotFound(OperatorError):
    """There is no such report, or it is too old."""

    template = "there is no report {report}; the last {limit} are kept"
    report: str
    limit: int


class ReportNotSaved(OperatorError):
    """The report could not be written to the data directory."""

    template = "the report could not be saved: {reason}; nothing has changed"
    reason: str


class InvalidFleetFile(OperatorError):
    """The fleet file is invalid; `key` and `problem` describe the error. Nothing has changed."""

    template = "{place}{problem}"
    key: str
    problem: str
    line: str = ""

    @property
    def place(self) -> str:
        """The line and the key, as far as they are known."""
        return "".join(f"{part}: " for part in (f"line {self.line}" if self.line else "", self.key) if part)


class GateNotAllowed(OperatorError):
    """A gate with its own URL needs the role admin, because the service sends requests to that URL."""

    code = "forbidden"
    template = (
        "token {token_name} has the role {role}, but a gate with its own url requires {required_role}; "
        "use a gate of the settings, or another token"
    )
    token_name: str
    role: Role
    required_role: Role = Role.ADMIN


class SelectionNotAllowed(OperatorError):
    """A campaign could select VMs outside the token's scopes; the response does not say whether there are any."""

    code = "scope-forbidden"
    template = (
        "token {token_name} is limited to {scopes}, but the selection could include other scopes; select these scopes "
        "by name, without all, hosts and tags, or use another token"
    )
    token_name: str
    scopes: tuple[str, ...]


class PlanFailed(OperatorError):
    """The process that made a plan died."""

    template = "the planning process died; it may have run out of memory"
