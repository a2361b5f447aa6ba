"""Option --upload of commands that make a report: add it to the pages of a running emulator."""

import os
from pathlib import Path

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.cli.options.common import option
from forewarn.cli.options.connection import connect
from forewarn.cli.output import write_message

upload_option = option(
    "--upload",
    is_flag=True,
    envvar="FOREWARN_UPLOAD",
    help="Also add the report to the dashboard of the running emulator, or of the one that FOREWARN_URL and "
    "FOREWARN_TOKEN name.",
)


def find_upload_target() -> ApiClient:
    """Return the emulator that will get the report; raise an error at once if it would not accept one."""
    given, token_file, ca = os.environ, os.environ.get("FOREWARN_TOKEN_FILE"), os.environ.get("FOREWARN_CA")
    api = connect(
        given.get("FOREWARN_URL"),
        given.get("FOREWARN_TOKEN"),
        None if token_file is None else Path(token_file),
        None if ca is None else Path(ca),
        given.get("FOREWARN_DATA"),
        given.get("FOREWARN_CONFIG"),
    )
    api.reports()
    return api


def upload_report(api: ApiClient, report: v1.AddReport) -> None:
    """Add the report, and write where it is shown."""
    added = api.add_report(report)
    write_message(f"Report: {api.url}/ui/emulator/reports/{added.id}")
