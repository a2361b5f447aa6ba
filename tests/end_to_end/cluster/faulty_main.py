"""`forewarn serve` in a process that kills or stops itself at a point when a file asks for it.

The file `fault` in the working directory has the name of a point and of a signal. The process removes it when it
reaches the point, so that it happens once.

At SIGUSR1 the buffer of every follower of the stream overflows. The file `format` has the newest format of records
that the process knows, as if it were another version. The file `expired` has a position: journal lines up to it are
beyond the retention, and are pruned at once instead of within an hour.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from weakref import WeakSet

from forewarn.cli import main
from forewarn.fleet import journal
from forewarn.platform.command import CommandPlatform
from forewarn.store.nats import host_store, stream
from forewarn.store.nats.connection import NatsConnection
from forewarn.store.nats.follower import Follower
from forewarn.store.nats.save_queue import SaveQueue
from forewarn.store.port import PRUNE_BATCH, RecordKind
from forewarn.store.sqlite.writer import Writer

FILE = Path("fault")
FORMAT_FILE = Path("format")
EXPIRED_FILE = Path("expired")
PRUNE_SECONDS = 0.1

AsyncMethod = Callable[..., Awaitable[Any]]


def reach(point: str) -> None:
    """End or stop this process if the file names the point."""
    try:
        wanted, _, name = FILE.read_text().partition(" ")
    except OSError:
        return
    if wanted == point:
        FILE.unlink(missing_ok=True)
        os.kill(os.getpid(), signal.Signals[name])


def instrument() -> None:
    """Add the points."""
    save: AsyncMethod = SaveQueue.save
    carry_out: AsyncMethod = CommandPlatform.carry_out

    async def save_later(queue: SaveQueue, key: Any, *rest: Any) -> Any:
        if key.kind is RecordKind.SCOPE:
            reach("save")
        return await save(queue, key, *rest)

    async def carry_out_later(platform: CommandPlatform, work: Any) -> Any:
        reach("carry-out")
        return await carry_out(platform, work)

    subscribe: AsyncMethod = NatsConnection.subscribe
    subscriptions: WeakSet[Any] = WeakSet()

    async def subscribe_and_keep(
        connection: NatsConnection, subject: str, callback: Any, *rest: Any, **more: Any
    ) -> Any:
        subscription = await subscribe(connection, subject, callback, *rest, **more)
        if isinstance(getattr(callback, "__self__", None), Follower):
            subscriptions.add(subscription)
        return subscription

    def overflow(*_: object) -> None:
        for subscription in subscriptions:
            subscription._pending_queue = asyncio.Queue(1)

    def remove_expired(writer: Writer, *_: object) -> list[int]:
        position = int(EXPIRED_FILE.read_text()) if EXPIRED_FILE.exists() else 0
        return writer._remove("position <= ? ORDER BY position LIMIT ?", position, PRUNE_BATCH)

    setattr(journal, "PRUNE_INTERVAL", PRUNE_SECONDS)  # noqa: B010 - it is final
    setattr(Writer, "_remove_expired", remove_expired)  # noqa: B010 - the types differ
    signal.signal(signal.SIGUSR1, overflow)
    if FORMAT_FILE.exists():
        for module in (stream, host_store):
            setattr(module, "FORMAT", int(FORMAT_FILE.read_text()))  # noqa: B010 - it is imported there
    setattr(NatsConnection, "subscribe", subscribe_and_keep)  # noqa: B010 - the types differ
    setattr(SaveQueue, "save", save_later)  # noqa: B010 - the types differ
    setattr(CommandPlatform, "carry_out", carry_out_later)  # noqa: B010 - the types differ


if __name__ == "__main__":
    instrument()
    sys.argv[0] = "forewarn"
    main()
