"""Every row of the guest protocol that a client can check, in the order of the page that it cites."""

from collections.abc import Sequence

from forewarn.testing.conformance.row import Row
from forewarn.testing.conformance.rows import approving, document, instance, refusals, requests, versions, waiting

ROWS: Sequence[Row] = (
    *requests.ROWS,
    *versions.ROWS,
    *document.ROWS,
    *approving.ROWS,
    *refusals.ROWS,
    *instance.ROWS,
    *waiting.ROWS,
)
