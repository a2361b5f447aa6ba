"""Serves the VM of a fleet file at a given address and port, as on a host outside a virtual network."""

import sys
from pathlib import Path

from forewarn.cli.output import Output
from forewarn.cli.process.up_main import run
from forewarn.settings.schema import EMULATOR, Settings
from forewarn.settings.types import ListenAddress


def main(fleet: str, address: str, port: str) -> None:
    """Run the service until Ctrl-C. The command `forewarn up` would serve only this machine."""
    settings = Settings(
        ephemeral=True,
        fleet=Path(fleet),
        listen=ListenAddress(address, int(port)),
        operator=ListenAddress("127.0.0.1", 0),
        policy=EMULATOR.settings.policy,
    )
    run(settings, Output.JSON, None)


main(*sys.argv[1:])
