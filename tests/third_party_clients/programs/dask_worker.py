"""A Dask worker with the unmodified preemption plug-in, which polls 169.254.169.254. Prints the worker's state."""

import asyncio
import sys
from typing import Any

from dask_cloudprovider.azure import AzurePreemptibleWorkerPlugin  # type: ignore[import-untyped]  # it has no types
from distributed import Scheduler, Worker


async def main(directory: str) -> None:
    """Run until the plug-in closes the worker."""
    place: dict[str, Any] = {"host": "127.0.0.1", "port": 0, "dashboard": False, "dashboard_address": "127.0.0.1:0"}
    async with (
        Scheduler(**place) as scheduler,
        Worker(
            scheduler.address,
            nthreads=1,
            local_directory=directory,
            plugins=(AzurePreemptibleWorkerPlugin(),),
            **place,
        ) as worker,
    ):
        sys.stdout.write("running\n")
        sys.stdout.flush()
        await worker.finished()
        sys.stdout.write(f"{worker.status.value}\n")


asyncio.run(main(*sys.argv[1:]))
