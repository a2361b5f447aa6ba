"""Test tools for software that handles Scheduled Events: a whole service inside a test, pytest fixtures, scenarios,
exam and conformance kit.

from forewarn.testing import Forewarn

with Forewarn() as forewarn:
    event = forewarn.schedule("Reboot", "web-0", notice="15m")
    forewarn.advance("15m")
"""

from typing import TYPE_CHECKING

__all__ = [
    "AlreadyStarted",
    "BadStart",
    "Event",
    "Forewarn",
    "InvalidEventType",
    "InvalidStart",
    "NoEndpoint",
    "NoSuchType",
    "NotRunning",
    "NotSeen",
    "Observed",
    "TooManyRequests",
    "TooMuchSeen",
    "Vm",
    "VmEndpointNotFound",
    "WaitTimeout",
]

# Imports are lazy: parts of this package work without the server's dependencies, and pytest imports the package in
# every run, even if no test uses the service.
if TYPE_CHECKING:
    from forewarn.guest.observer import Observed
    from forewarn.testing.errors import (
        AlreadyStarted,
        BadStart,
        InvalidEventType,
        InvalidStart,
        NoEndpoint,
        NoSuchType,
        NotRunning,
        NotSeen,
        TooManyRequests,
        TooMuchSeen,
        VmEndpointNotFound,
        WaitTimeout,
    )
    from forewarn.testing.event import Event
    from forewarn.testing.service import Forewarn
    from forewarn.testing.vm import Vm
else:
    _LAZY = {
        "AlreadyStarted": "forewarn.testing.errors",
        "BadStart": "forewarn.testing.errors",
        "VmEndpointNotFound": "forewarn.testing.errors",
        "Event": "forewarn.testing.event",
        "Forewarn": "forewarn.testing.service",
        "InvalidEventType": "forewarn.testing.errors",
        "InvalidStart": "forewarn.testing.errors",
        "NoEndpoint": "forewarn.testing.errors",
        "NoSuchType": "forewarn.testing.errors",
        "NotRunning": "forewarn.testing.errors",
        "NotSeen": "forewarn.testing.errors",
        "Observed": "forewarn.guest.observer",
        "TooManyRequests": "forewarn.testing.errors",
        "TooMuchSeen": "forewarn.testing.errors",
        "Vm": "forewarn.testing.vm",
        "WaitTimeout": "forewarn.testing.errors",
    }

    def __getattr__(name):
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        try:
            return getattr(import_module(_LAZY[name]), name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] == "forewarn":
                raise
            needs = f"forewarn.testing.{name} needs {error.name}: install Forewarn with its extra [testing]"
            raise ModuleNotFoundError(needs, name=error.name, path=error.path) from error


def __dir__() -> list[str]:
    return __all__
