"""The operator API, version 1: request and response types. Durations are strings such as "20m"."""

from forewarn.api.v1 import campaigns, common, events, faults, inventory, reports, scenarios, service
from forewarn.api.v1.campaigns import *
from forewarn.api.v1.common import *
from forewarn.api.v1.events import *
from forewarn.api.v1.faults import *
from forewarn.api.v1.inventory import *
from forewarn.api.v1.reports import *
from forewarn.api.v1.scenarios import *
from forewarn.api.v1.service import *

__all__ = [  # noqa: PLE0604 - lists of strings, one per module
    *campaigns.__all__,
    *common.__all__,
    *events.__all__,
    *faults.__all__,
    *inventory.__all__,
    *reports.__all__,
    *scenarios.__all__,
    *service.__all__,
]
