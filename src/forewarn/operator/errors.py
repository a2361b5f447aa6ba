"""Errors of the operator API, raised before the fleet is called.

OperatorError
├── TokenNotAllowed       the token's role is not sufficient, or it is limited to scopes
├── ScopeNotAllowed       the token is limited to other scopes
├── HostNotAllowed        the host has VMs of scopes that the token is not for
├── TokenVmNotFound       no VM has this bare name in the token's scopes
├── JournalEventNotFound  the event never existed in the token's scopes, or the journal was pruned
├── VmNameNotFound        no VM has this bare name now, so the journal cannot be filtered by it
├── TooManyStreams        the limit of open journal streams is reached
├── ImportConflict        another import is running
├── ImportFailed          an import ended before it was complete
├── SocketUnavailable     the system cannot open a VM's socket
├── SocketNotAllowed      VM sockets exist only in the emulator, and not on Windows
├── FaultNotAllowed       faults exist only in the emulator
├── InvalidFleetFile      the fleet file is invalid
├── GateNotAllowed        a gate with its own URL needs the role admin
├── SelectionNotAllowed   a campaign could select VMs outside the token's scopes
└── PlanFailed            the process that made a plan died
"""

from forewarn.core.access import Role
from forewarn.fleet.errors import VmNotFound


class OperatorError(Exception):
    """It was not done. `code` is stable and meant for programs; the message is meant for people."""

    code = "refused"


class TokenNotAllowed(OperatorError):
    """The token does not go that far."""

    code = "forbidden"

    def __init__(self, name: str, role: Role, needed: Role, *, is_limited: bool) -> None:
        self.token_name, self.role, self.required_role = name, role.value, needed.value
        why = (
            f"token {name} is limited to some scopes, and this is about all: use a token without scopes"
            if is_limited
            else f"token {name} has the role {role.value}, and this needs {needed.value}: use another token"
        )
        super().__init__(why)


class ScopeNotAllowed(OperatorError):
    """The token is limited to other scopes."""

    code = "scope-forbidden"

    def __init__(self, name: str, scope: str, scopes: tuple[str, ...]) -> None:
        self.token_name, self.scope, self.scopes = name, scope, scopes
        super().__init__(f"token {name} is for {', '.join(scopes)} only, not for scope {scope}: use another token")


class HostNotAllowed(OperatorError):
    """VMs of scopes are on the host that the token is not for; which ones is not told."""

    code = "scope-forbidden"

    def __init__(self, name: str, host: str, scopes: tuple[str, ...]) -> None:
        self.token_name, self.host, self.scopes = name, host, scopes
        super().__init__(
            f"token {name} is for {', '.join(scopes)} only, and others are on host {host}: "
            "name the VMs that are meant, or use another token"
        )


class TokenVmNotFound(OperatorError, VmNotFound):
    """No VM bears that bare name in the scopes that the token is for; whether another scope has one is not told."""

    code = "vm-not-found"

    def __init__(self, vm: str, name: str, scopes: tuple[str, ...]) -> None:
        self.vm, self.token_name, self.scopes = vm, name, scopes
        Exception.__init__(self, f"there is no VM {vm} in {', '.join(scopes)}, and token {name} is for nothing else")


class JournalEventNotFound(OperatorError):
    """There never was such an event in any scope that the token is for, or the journal has forgotten it."""

    code = "event-not-found"

    def __init__(self, event: str, scopes: tuple[str, ...] = ()) -> None:
        self.event = event
        where = f" in {', '.join(scopes)}, and the token is for nothing else" if scopes else ""
        super().__init__(f"there is no event {event}{where or ', and the journal knows of none'}")


class VmNameNotFound(OperatorError):
    """No VM bears that bare name now, so the journal cannot be asked for it."""

    code = "vm-not-found"

    def __init__(self, vm: str) -> None:
        self.vm = vm
        super().__init__(f"there is no VM {vm} now: one that is gone is named as SCOPE/{vm}")


class TooManyStreams(OperatorError):
    """As many follow the journal as may."""

    code = "too-many-streams"

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(
            f"{limit} follow the journal already, and no more may: end one of them, or read the journal in pages"
        )


class ImportConflict(OperatorError):
    """One import runs at a time."""

    code = "import-in-progress"

    def __init__(self, by: str, done: int, total: int) -> None:
        self.created_by, self.done, self.total = by, done, total
        super().__init__(f"an import of {by} runs, {done} of {total} scopes are done: wait for its end, then ask again")


class ImportFailed(OperatorError):
    """An import has ended in the middle; what was done until then stays."""

    code = "import-failed"

    def __init__(self, done: int, total: int, why: str) -> None:
        self.done, self.total, self.reason = done, total, why
        super().__init__(
            f"the import has ended after {done} of {total} scopes: {why}; ask again, and it goes on with what differs"
        )


class SocketUnavailable(OperatorError):
    """The system does not let a VM's socket be opened."""

    code = "socket-unavailable"

    def __init__(self, vm: str, why: str) -> None:
        self.vm, self.reason = vm, why
        super().__init__(f"no socket can be opened for VM {vm}: {why}")


class SocketNotAllowed(OperatorError):
    """The service is for real VMs, for which nobody on this machine is to be taken; or the system has no sockets."""

    code = "emulator-only"

    def __init__(self) -> None:
        super().__init__("only the emulator (`forewarn up`, not on Windows) takes a program on its machine for a VM")


class FaultNotAllowed(OperatorError):
    """The service is for real VMs, whose endpoint does nothing wrong on purpose."""

    code = "emulator-only"

    def __init__(self) -> None:
        super().__init__("this service is for real VMs: faults can be set in the emulator alone (`forewarn up`)")


class InvalidFleetFile(OperatorError):
    """The file cannot be taken; nothing has changed."""

    code = "invalid-fleet-file"

    def __init__(self, key: str, problem: str) -> None:
        self.key, self.problem = key, problem
        super().__init__(f"{key}: {problem}" if key else problem)


class GateNotAllowed(OperatorError):
    """A campaign brings a gate along, and its caller is no admin: the service would ask on their behalf."""

    code = "forbidden"

    def __init__(self, name: str, role: Role) -> None:
        self.token_name, self.role, self.required_role = name, role.value, Role.ADMIN.value
        super().__init__(
            f"token {name} has the role {role.value}, and a gate with a url of its own needs {Role.ADMIN.value}: "
            "name a gate of the settings, or use another token"
        )


class SelectionNotAllowed(OperatorError):
    """A campaign could select VMs of scopes that the token is not for; whether there are any is not told."""

    code = "scope-forbidden"

    def __init__(self, name: str, scopes: tuple[str, ...]) -> None:
        self.token_name, self.scopes = name, scopes
        super().__init__(
            f"token {name} is for {', '.join(scopes)} only, and the selection could reach further: select these scopes "
            "by name, without all, hosts and tags, or use another token"
        )


class PlanFailed(OperatorError):
    """The process that made a plan has ended without one."""

    code = "plan-failed"

    def __init__(self) -> None:
        super().__init__("the process that made the plan has ended: perhaps there is too little memory")
