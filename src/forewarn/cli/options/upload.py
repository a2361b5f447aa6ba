"""Option --upload of commands that make a report: add it to the pages of a running emulator."""

import os
from pathlib import Path

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.cli.options.common import config_errors, option
from forewarn.cli.options.connection import connect
from forewarn.cli.output import write_message
from forewarn.settings.types import variable_name

upload_option = option(
    "--upload",
    is_flag=True,
    envvar="FOREWARN_UPLOAD",
    help="Also add the report to the dashboard of the running emulator, or of the one that FOREWARN_URL and "
    "FOREWARN_TOKEN name.",
)


OPTIONS = ("url", "token", "token_file", "ca", "data", "config")
"""The options of a connection whose variables are used: an emulator is in no cell."""


def find_upload_target() -> ApiClient:
    """Return the emulator that will get the report; raise an error at once if it would not accept one."""
    url, token, token_file, ca, data, config = (os.environ.get(variable_name(name)) or None for name in OPTIONS)
    with config_errors(config):
        api = connect(
            url, token, Path(token_file) if token_file else None, Path(ca) if ca else None, data=data, config=config
        )
        api.reports()
        return api


def upload_report(api: ApiClient, report: v1.AddReport) -> None:
    """Add the report, and write where it is shown."""
    added = api.add_report(report)
    write_message(f"Report: {api.url}/ui/emulator/reports/{added.id}")
