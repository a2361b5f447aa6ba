"""Composition root: builds the running service from settings. Only this package names concrete adapters."""

from forewarn.compose.data_directory import DataDirectoryInUse, EmulatorNotAllowed, InvalidDataDirectory
from forewarn.compose.initial_fleet import FleetLoader, StartupReporter
from forewarn.compose.operators import InvalidCertificate
from forewarn.compose.service import RunningService, run_service

__all__ = [
    "DataDirectoryInUse",
    "EmulatorNotAllowed",
    "FleetLoader",
    "InvalidCertificate",
    "InvalidDataDirectory",
    "RunningService",
    "StartupReporter",
    "run_service",
]
