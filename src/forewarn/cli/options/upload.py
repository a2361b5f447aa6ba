"""Option --upload of commands that make a report: add it to the pages of a running emulator."""

import click

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.cli.options.common import option, with_options
from forewarn.cli.options.connection import SERVICE_OPTIONS, connect
from forewarn.cli.output import write_message

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
    command = click.command("upload")(with_options(SERVICE_OPTIONS[name] for name in OPTIONS)(lambda **_: None))
    api = connect(**command.make_context("upload", []).params)
    api.reports()
    return api


def upload_report(api: ApiClient, report: v1.AddReport) -> None:
    """Add the report, and write where it is shown."""
    added = api.add_report(report)
    write_message(f"Report: {api.url}/ui/emulator/reports/{added.id}")
