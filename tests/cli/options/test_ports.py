"""The option --reach."""

import click
import pytest
from click.testing import CliRunner

from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.options.ports import read_ports


@click.command()
@click.option("--reach", callback=read_ports)
def command(reach: tuple[int, ...]) -> None:
    click.echo(repr(reach))


@pytest.mark.parametrize(("arguments", "ports"), [((), "()"), (("--reach", "6443,5432"), "(6443, 5432)")])
def test_ports_are_read(arguments: tuple[str, ...], ports: str) -> None:
    assert CliRunner().invoke(command, arguments).output == f"{ports}\n"


def test_wrong_port_names_the_option() -> None:
    with pytest.raises(CliError, match="--reach: 'x' is not a port from 1 to 65535") as refused:
        CliRunner().invoke(command, ("--reach", "x"), catch_exceptions=False)
    assert refused.value.code is ExitCode.USAGE
