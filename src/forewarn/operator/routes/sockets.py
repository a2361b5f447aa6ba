"""Socket route: open the Unix socket through which a local program acts as a VM."""

from litestar import post
from litestar.params import JSONBody

from forewarn.api import v1
from forewarn.core.access import Role
from forewarn.operator.auth import CallerDep, requires
from forewarn.operator.errors import SocketNotAllowed, SocketUnavailable
from forewarn.operator.lookup import find_vm
from forewarn.operator.parameters import VM_ERRORS, change_error_specs
from forewarn.operator.state import AppState


@post(
    "/v1/sockets",
    operation_id="openSocket",
    summary="Open a VM's socket",
    status_code=200,
    tags=("inventory",),
    opt=requires(Role.OPERATOR),
    responses=change_error_specs(*VM_ERRORS, SocketNotAllowed, SocketUnavailable),
)
async def open_socket(state: AppState, caller: CallerDep, data: JSONBody[v1.OpenSocket]) -> v1.Socket:
    """Return the Unix socket on the service's machine through which a program acts as a VM; repeatable.

    Only the user that runs the service can connect. The path stays the same for a data directory.
    """
    view, vm = find_vm(state.fleet, caller, data.vm)
    if state.guests.sockets is None:
        raise SocketNotAllowed
    try:
        path = await state.guests.sockets.open(f"{view.id}/{vm.name}")
    except OSError as error:
        raise SocketUnavailable(f"{view.id}/{vm.name}", error.strerror or str(error)) from error
    return v1.Socket(scope=view.id, vm=vm.name, path=str(path))
