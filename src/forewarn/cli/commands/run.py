"""`forewarn run`: run any program as a VM in a sandbox, without root."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.options.common import option, usage_errors, with_options
from forewarn.cli.options.completion import complete_vms
from forewarn.cli.options.connection import SERVICE_OPTIONS, connect
from forewarn.cli.options.ports import REACH_HELP, read_ports
from forewarn.cli.output import write_message
from forewarn.testing import sandbox
from forewarn.testing.sandbox.errors import SANDBOX_EXIT_CODE, NamespacesUnavailable
from forewarn.testing.sandbox.ports import parse_listener


def _read_listeners(_: click.Context, __: click.Parameter, texts: Sequence[str]) -> tuple[tuple[str, int], ...]:
    with usage_errors("--listen-also", ValueError):
        return tuple(dict.fromkeys(parse_listener(text) for text in texts))


# Without interspersed arguments, options after the program's name belong to the program, with or without `--`.
@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("command", metavar="COMMAND...", nargs=-1, required=True)
@click.option("--vm", metavar="VM", required=True, help="Run as this VM.", shell_complete=complete_vms)
@option(
    "--net",
    is_flag=True,
    envvar="FOREWARN_NET",
    help="Let it reach other machines, with slirp4netns or pasta, but never this machine's loopback.",
)
@option("--reach", metavar="PORT[,PORT]", envvar="FOREWARN_REACH", callback=read_ports, help=REACH_HELP)
@option(
    "--listen-also",
    metavar="ADDRESS:PORT",
    envvar="FOREWARN_LISTEN_ALSO",
    multiple=True,
    callback=_read_listeners,
    help="Serve the VM's endpoint here, too, inside the sandbox; repeatable. Example: 127.0.0.1:80.",
)
@with_options(SERVICE_OPTIONS.values())
def run(
    command: Sequence[str],
    vm: str,
    net: bool,
    reach: Sequence[int],
    listen_also: Sequence[tuple[str, int]],
    **service_options: Any,
) -> None:
    """Run a program as a VM, without root. It sees the VM's endpoint at 169.254.169.254 and the VM's host name.

    Signals are passed to the program. The exit code is that of the program: 128 plus the signal's number if a signal
    ended it, 125 if the sandbox could not be created, 126 if the program cannot be run, 127 if it is not found.

    Example: forewarn run --vm web-0 -- ./my-handler --verbose
    """
    if sys.platform != "linux":
        write_message(f"forewarn: {NamespacesUnavailable(sys.platform)}")
        raise click.exceptions.Exit(SANDBOX_EXIT_CODE)
    opened = connect(**service_options).open_socket(vm)
    program, *arguments = sandbox.supervisor_command(
        command,
        socket=_local_socket(Path(opened.path)),
        hostname=opened.vm,
        net=net,
        reach=reach,
        listen_also=listen_also,
    )
    # Replace this process by the command's supervisor, so that our parent process controls the command directly.
    os.execv(program, [program, *arguments])  # noqa: S606 - the user's own command


def _local_socket(path: Path) -> Path:
    """Return the path if it is a socket on this machine, else raise an error."""
    if not path.is_socket():
        raise CliError(
            ExitCode.USAGE,
            f"--url: `forewarn run` works only on the machine of the service: there is no socket {path} here",
        )
    return path
