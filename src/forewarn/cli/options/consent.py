"""Consent to maintenance that VMs will not hear of: the options, and the question on a terminal."""

import sys
from collections.abc import Callable
from typing import TypeVar

import click

from forewarn.api.errors import RequestRefused
from forewarn.cli.errors import CliError, ExitCode, error_message
from forewarn.cli.output import write_message
from forewarn.core.errors import NotAnnounced

R = TypeVar("R")

now_option = click.option(
    "--now", is_flag=True, help="Start without notice. Refused in a scope whose VMs poll for events."
)
unannounced_option = click.option(
    "--unannounced", is_flag=True, help="Go ahead even if VMs will not hear of it, without asking."
)


def send_with_consent(send: Callable[[bool], R], *, unannounced: bool) -> R:
    """Send a request with the given consent; if it is missing, ask on a terminal, and send it again."""
    try:
        return send(unannounced)
    except RequestRefused as refusal:
        if refusal.code != NotAnnounced.code or not sys.stdin.isatty():
            raise
        write_message(error_message(refusal))
    if not click.confirm("Go ahead anyway?", err=True):
        raise CliError(ExitCode.FAILED, "aborted; nothing has happened")
    return send(True)
