"""Size limits of records. None of them may depend on settings."""

from datetime import timedelta

MAX_RECORD_BYTES = 768 * 1024
"""The largest encoded record; every store must be able to hold one of this size."""

MAX_VMS_PER_SCOPE = 1_000
MAX_DOMAIN = 1_000
"""Update domains and fault domains are numbered from 0 to this."""

MAX_RECENT_ITEMS = 256
MAX_RECENT_AGE = timedelta(hours=24)
MAX_NAME_LENGTH = 128
MAX_TEXT_LENGTH = 512
"""Descriptions, reasons, and a platform's messages about a failure."""

MAX_IMPACT_TEXT_BYTES = 96
"""How much of such a text a record keeps per impact; the journal has the longer form."""

MAX_KEY_LENGTH = 64
"""Idempotency keys (`Idempotency-Key`)."""

MAX_CALLER_LENGTH = 16
"""The id of the token that an idempotency key belongs to."""

DIGEST_LENGTH = 16
"""The digest of the request that an idempotency key belongs to."""

MAX_OUTPUT_BYTES = 4096
"""How much of a program's output the journal keeps: the end of it."""

MAX_SPEED = 1_000_000
"""The largest number by which notices and durations can be divided."""
