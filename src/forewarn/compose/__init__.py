"""Settings in, running service out: the only place that names concrete parts."""

from forewarn.compose.belonging import NotTheEmulators
from forewarn.compose.filling import ReadFleet, Talk
from forewarn.compose.operators import UnusableCertificate
from forewarn.compose.service import Running, running_service
from forewarn.compose.storing import AlreadyRuns, NotADirectory

__all__ = [
    "AlreadyRuns",
    "NotADirectory",
    "NotTheEmulators",
    "ReadFleet",
    "Running",
    "Talk",
    "UnusableCertificate",
    "running_service",
]
