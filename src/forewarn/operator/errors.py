"""Why the operator side said no before the fleet was asked.

OperatorError
├── Forbidden        the token's role does not go that far, or it is limited to scopes
├── ScopeForbidden   the token is limited to other scopes
├── HostForbidden    VMs of scopes are on the host that the token is not for
├── NotSeen          no VM bears that bare name in the scopes that the token is for
├── NeverKnown       there never was such an event, or the journal has forgotten it
├── NoSuchVmNow      no VM bears that bare name now, so the journal cannot be asked for it
├── TooManyWatchers  as many follow the journal as may
├── ImportRuns       one import at a time
├── NotInProduction  the service is for real VMs, and this is for the emulator alone
└── WrongFleetFile   the file cannot be taken
"""

from forewarn.core.access import Role
from forewarn.fleet.errors import NoSuchVm


class OperatorError(Exception):
    """It was not done. `code` is stable and meant for programs; the message is meant for people."""

    code = "refused"


class Forbidden(OperatorError):
    """The token does not go that far."""

    code = "forbidden"

    def __init__(self, name: str, role: Role, needed: Role, *, is_limited: bool) -> None:
        self.name, self.role, self.needed = name, role.value, needed.value
        why = (
            f"token {name} is limited to some scopes, and this is about all: use a token without scopes"
            if is_limited
            else f"token {name} has the role {role.value}, and this needs {needed.value}: use another token"
        )
        super().__init__(why)


class ScopeForbidden(OperatorError):
    """The token is limited to other scopes."""

    code = "scope-forbidden"

    def __init__(self, name: str, scope: str, scopes: tuple[str, ...]) -> None:
        self.name, self.scope, self.scopes = name, scope, scopes
        super().__init__(f"token {name} is for {', '.join(scopes)} only, not for scope {scope}: use another token")


class HostForbidden(OperatorError):
    """VMs of scopes are on the host that the token is not for; which ones is not told."""

    code = "scope-forbidden"

    def __init__(self, name: str, host: str, scopes: tuple[str, ...]) -> None:
        self.name, self.host, self.scopes = name, host, scopes
        super().__init__(
            f"token {name} is for {', '.join(scopes)} only, and others are on host {host}: "
            "name the VMs that are meant, or use another token"
        )


class NotSeen(OperatorError, NoSuchVm):
    """No VM bears that bare name in the scopes that the token is for; whether another scope has one is not told."""

    code = "unknown-vm"

    def __init__(self, vm: str, name: str, scopes: tuple[str, ...]) -> None:
        self.vm, self.name, self.scopes = vm, name, scopes
        Exception.__init__(self, f"there is no VM {vm} in {', '.join(scopes)}, and token {name} is for nothing else")


class NeverKnown(OperatorError):
    """There never was such an event in any scope that the token is for, or the journal has forgotten it."""

    code = "unknown-event"

    def __init__(self, event: str, scopes: tuple[str, ...] = ()) -> None:
        self.event = event
        where = f" in {', '.join(scopes)}, and the token is for nothing else" if scopes else ""
        super().__init__(f"there is no event {event}{where or ', and the journal knows of none'}")


class NoSuchVmNow(OperatorError):
    """No VM bears that bare name now, so the journal cannot be asked for it."""

    code = "unknown-vm"

    def __init__(self, vm: str) -> None:
        self.vm = vm
        super().__init__(f"there is no VM {vm} now: one that is gone is named as SCOPE/{vm}")


class TooManyWatchers(OperatorError):
    """As many follow the journal as may."""

    code = "too-many-watchers"

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(f"{limit} follow the journal already, and no more may: end one of them, or ask for history")


class ImportRuns(OperatorError):
    """One import runs at a time."""

    code = "import-runs"

    def __init__(self, by: str, done: int, total: int) -> None:
        self.by, self.done, self.total = by, done, total
        super().__init__(f"an import of {by} runs, {done} of {total} scopes are done: wait for its end, then ask again")


class NotInProduction(OperatorError):
    """The service is for real VMs, whose endpoint does nothing wrong on purpose."""

    code = "not-in-production"

    def __init__(self) -> None:
        super().__init__("this service is for real VMs: faults can be set in the emulator alone (`forewarn up`)")


class WrongFleetFile(OperatorError):
    """The file cannot be taken; nothing has changed."""

    code = "wrong-fleet-file"

    def __init__(self, key: str, problem: str) -> None:
        self.key, self.problem = key, problem
        super().__init__(f"{key}: {problem}" if key else problem)
