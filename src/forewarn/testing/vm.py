"""A VM of the in-test service: its guest URL, and queries and approvals sent as that VM."""

from pathlib import Path
from typing import TYPE_CHECKING

from forewarn.api.client import ApiClient
from forewarn.client import Document, ScheduledEvents

if TYPE_CHECKING:
    from forewarn.testing.event import Event

EVENTS_PATH = "/metadata/scheduledevents?api-version=2020-07-01"


class Vm:
    """One VM. Give its `url` to the program under test, or its `environment` to a process."""

    def __init__(self, api: ApiClient, scope: str, name: str, url: str) -> None:
        self._api = api
        self.scope, self.name, self.url = scope, name, url

    @property
    def full_name(self) -> str:
        """The unique name, `scope/name`."""
        return f"{self.scope}/{self.name}"

    @property
    def events_url(self) -> str:
        """The URL of the VM's events with its api-version, for programs that take a complete URL."""
        return self.url + EVENTS_PATH

    @property
    def socket(self) -> Path:
        """A Unix socket whose connections count as the VM's; it is opened at the first access."""
        return Path(self._api.open_socket(self.full_name).path)

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables with which Forewarn's client, agent and command line use this VM's endpoint."""
        return {"FOREWARN_ENDPOINT": self.url}

    def document(self) -> Document:
        """Poll as the VM does, and return the document. Raises the errors of the client library."""
        with self._client() as client:
            return client.get()

    def approve(self, *events: "Event | str") -> None:
        """Approve events as the VM does."""
        first, *more = (str(event) for event in events)
        with self._client() as client:
            client.approve(first, *more)

    def _client(self) -> ScheduledEvents:
        return ScheduledEvents(self.url, name=self.name, retry_for=0)

    def __str__(self) -> str:
        return self.full_name

    def __repr__(self) -> str:
        return f"<VM {self.full_name} at {self.url}>"


VmLike = Vm | str
"""A VM, or its name: `scope/name`, or the name alone if it is unique in the fleet."""
