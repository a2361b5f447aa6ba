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
        """The name that no other VM has: `scope/name`."""
        return f"{self.scope}/{self.name}"

    @property
    def events_url(self) -> str:
        """Where the VM's events are, for programs that take a whole URL."""
        return self.url + EVENTS_PATH

    @property
    def socket(self) -> Path:
        """A unix socket at which whoever connects is taken for the VM; it is opened when it is first asked for."""
        return Path(self._api.open_socket(self.full_name).path)

    @property
    def environment(self) -> dict[str, str]:
        """What has clients, agent and command line of Forewarn ask here: add it to the environment of a process."""
        return {"FOREWARN_ENDPOINT": self.url}

    def document(self) -> Document:
        """Ask as the VM does, and return what it is told. Raises what any client would."""
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
"""A VM, or its name: `scope/name`, or the bare name where only one VM bears it."""
