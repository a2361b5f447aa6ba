"""Fleet import load: export the fleet file, change every VM, import it.

`python -m bench.fleet_import` writes `ImportFinished` when the import has ended."""

import re
import time

import msgspec

from bench.process import read_task, send_to_parent
from forewarn.api.client import ApiClient

HOST = re.compile(rb'host = "hv-')


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """The address of the service, and the marker in the host names of this import."""

    url: str
    token: str
    mark: str


class ImportFinished(msgspec.Struct, frozen=True, kw_only=True):
    """Durations of export and import, and the number of changes."""

    export_seconds: float
    import_seconds: float
    file_bytes: int
    changed: int
    refused: int


def run(task: Task) -> ImportFinished:
    """Export, change, import."""
    client = ApiClient(task.url, task.token)
    began_at = time.monotonic()
    file = b"".join(client.export_fleet("toml"))
    exported_at = time.monotonic()
    *_, last = client.import_fleet(HOST.sub(f'host = "{task.mark}-'.encode(), file), "toml")
    result = last.result
    if result is None:
        raise ValueError(f"the import has ended without a result: {last}")
    return ImportFinished(
        export_seconds=exported_at - began_at,
        import_seconds=time.monotonic() - exported_at,
        file_bytes=len(file),
        changed=len(result.differences),
        refused=result.refused_count,
    )


if __name__ == "__main__":
    send_to_parent(run(read_task(Task)))
