"""The option for ports that a program in a sandbox may reach, shared by `run` and `exam`."""

import click

from forewarn.cli.options.common import usage_errors
from forewarn.testing.sandbox.ports import parse_ports

REACH_HELP = "Let it reach these ports of this machine's loopback, at the same ports of its own 127.0.0.1."


def read_ports(_: click.Context, __: click.Parameter, text: str | None) -> tuple[int, ...]:
    """Return the ports that the user typed."""
    with usage_errors("--reach", ValueError):
        return () if text is None else parse_ports(text)
