"""An operator at work: takes the fleet file out of the service, changes every VM in it, and puts it back.

`python -m bench.clerk` says `Worked` when the import has ended.
"""

import re
import time

import msgspec

from bench.process import read_task, say
from forewarn.api.client import ApiClient

HOST = re.compile(rb'host = "hv-')


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """Where the service is, and what marks the hosts of this import."""

    url: str
    token: str
    mark: str


class Worked(msgspec.Struct, frozen=True, kw_only=True):
    """How long export and import took, and how much the import changed."""

    export_seconds: float
    import_seconds: float
    file_bytes: int
    changed: int
    refused: int


def run(task: Task) -> Worked:
    """Export, change, import."""
    client = ApiClient(task.url, task.token)
    began_at = time.monotonic()
    file = b"".join(client.export_fleet("toml"))
    exported_at = time.monotonic()
    result = None
    for progress in client.import_fleet(HOST.sub(f'host = "{task.mark}-'.encode(), file), "toml"):
        result = progress.result
    if result is None:
        raise ValueError("the import has ended without a result")
    return Worked(
        export_seconds=exported_at - began_at,
        import_seconds=time.monotonic() - exported_at,
        file_bytes=len(file),
        changed=len(result.differences),
        refused=result.refused,
    )


if __name__ == "__main__":
    say(run(read_task(Task)))
