"""Keeping the journal within its bounds for as long as the service runs."""

import asyncio
import logging
from datetime import timedelta

from forewarn.clock import Clock
from forewarn.store.port import Retention, Store, StoreError

log = logging.getLogger(__name__)

RETENTION = Retention(age=timedelta(days=400), rows=1_000_000)
"""How much of the journal is kept unless a setting says otherwise."""

INTERVAL = 3600.0
"""How often, in seconds, the journal is pruned."""


async def prune(store: Store, retention: Retention, clock: Clock) -> None:
    """Remove what is beyond the retention, a small batch at a time, now and every hour. This does not return."""
    while True:
        try:
            while await store.prune(retention, now=clock.now()):  # noqa: ASYNC110 - batch by batch
                await asyncio.sleep(0)
        except StoreError as error:
            log.warning("the journal was not pruned: %s", error)
        await asyncio.sleep(INTERVAL)
