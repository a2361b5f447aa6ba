"""`forewarn serve`: run the service in production."""

import os
from pathlib import Path

import click

from forewarn.cli.extras import require_cluster, require_server
from forewarn.cli.options.common import config_option, given_settings, setting_option, shared_setting_option
from forewarn.settings.load import find_settings_file, load_settings
from forewarn.settings.schema import PRODUCTION, Settings
from forewarn.settings.types import StoreName


@click.command()
@config_option
@shared_setting_option("data")
@shared_setting_option("fleet")
@setting_option("listen_link_local", "Serve 169.254.169.254:80 on these interfaces.", "INTERFACE[=NETWORK],…")
@shared_setting_option("network")
@shared_setting_option("operator")
@setting_option("role", "What this process does in a cluster.", "single|control|host")
@setting_option("host", "The host whose VMs this process serves, with --role host.", "NAME")
@setting_option("platform", "What carries out maintenance; no default.", "command|simulated")
def serve(config: str | None, **flags: object) -> None:
    """Run the service for real VMs, until SIGTERM or Ctrl-C. SIGHUP reloads the settings.

    The settings are in forewarn.toml; `forewarn config --for serve` shows the effective ones. Logs go to stderr.
    """
    file = find_settings_file(config, os.environ, Path.cwd())

    def read() -> Settings:
        return load_settings(PRODUCTION, flags=given_settings(flags), environ=os.environ, file=file).settings

    settings = read()
    with require_cluster() if settings.store is StoreName.NATS else require_server():
        from forewarn.cli.process.serve_main import run
    run(settings, read, file)
