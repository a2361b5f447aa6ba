"""Size limits of records. None of them may depend on settings."""

from datetime import timedelta

MAX_RECORD_BYTES = 768 * 1024
"""The largest encoded record; every store must be able to hold one of this size."""

MAX_VMS_PER_SCOPE = 1_000
MAX_DOMAIN = 1_000
"""Update domains and fault domains are counted from 0 to this."""

MAX_RECENT_ITEMS = 256
MAX_RECENT_AGE = timedelta(hours=24)
MAX_NAME_LENGTH = 128
MAX_TEXT_LENGTH = 512
"""Descriptions, reasons, and what a platform says about a failure."""

MAX_IMPACT_TEXT_BYTES = 96
"""What a record keeps of such a text per impact; the journal has the longer form."""

MAX_KEY_LENGTH = 64
"""Request keys (`Idempotency-Key`)."""

DIGEST_LENGTH = 16
"""What is kept of the request that a key stands for."""

MAX_OUTPUT_BYTES = 4096
"""What the journal keeps of a program's output: the end of it."""
