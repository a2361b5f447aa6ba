"""HTTP API of the agent: /readyz, /metrics and /v1/ready/<EventId> on its TCP port, /v1/status on its Unix socket."""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from forewarn.agent.context import AgentContext
from forewarn.agent.handlers.programs import OrphanProgram
from forewarn.agent.http_server import JSON, TEXT, Request, Response, error_response
from forewarn.agent.metrics import CONTENT_TYPE, AgentMetrics
from forewarn.agent.peers import PATH as READY_PATH
from forewarn.agent.peers import peer_response
from forewarn.agent.status import PATH as STATUS_PATH
from forewarn.agent.status import AgentStatus, orphan_problems, workflow_statuses
from forewarn.agent.workflow.state import EventWorkflow
from forewarn.agent.workflow.store import WorkflowStore


class AgentApi:
    """Answers HTTP requests about the agent. The daemon keeps `vm_name`, `has_document`, the listen error current."""

    def __init__(
        self,
        context: AgentContext,
        store: WorkflowStore,
        metrics: AgentMetrics,
        workflows: Mapping[str, EventWorkflow],
        orphans: Sequence[OrphanProgram],
        *,
        started_at: datetime,
    ) -> None:
        self._context = context
        self._store = store
        self._metrics = metrics
        self._workflows = workflows
        self._orphans = orphans
        self._started_at = started_at
        self._listen_error: str | None = None
        self.vm_name: str | None = None
        """This VM's resource name; None until the service has answered."""
        self.has_document = False
        """Whether the first document has been received."""

    def status(self) -> AgentStatus:
        """Return the state of the agent, its problems and its workflows."""
        return AgentStatus(
            is_running=True,
            name=self.vm_name,
            endpoint=self._context.client.endpoint,
            started_at=self._started_at,
            problems=(
                *filter(None, self._troubles().values()),
                *self._store.unreadable,
                *orphan_problems(self._orphans),
            ),
            workflows=workflow_statuses(self._workflows.values()),
        )

    def respond(self, request: Request) -> Response:
        """Answer a request on the TCP port."""
        if request.method not in {"GET", "HEAD"}:
            return error_response(405, "only GET and HEAD are supported", ("Allow", "GET, HEAD"))
        if request.path.startswith(READY_PATH):
            secret = None if self._context.peers is None else self._context.peers.secret
            return peer_response(request, self._workflows, vm_name=self.vm_name, secret=secret)
        match request.path:
            case "/readyz":
                troubles = [why for why in self._troubles().values() if why]
                return Response(503 if troubles else 200, ("\n".join(troubles or ["ready"]) + "\n").encode(), TEXT)
            case "/metrics":
                troubles_now = {what: why is not None for what, why in self._troubles().items()}
                return Response(200, self._metrics.render(self._workflows.values(), troubles_now), CONTENT_TYPE)
            case _:
                return error_response(404, "not found; available: /readyz, /metrics, /v1/ready/<EventId>")

    def respond_local(self, request: Request) -> Response:
        """Answer a request on the Unix socket. Only local users who may open the state directory can reach it."""
        if request.path == STATUS_PATH:
            return Response(200, msgspec.json.encode(self.status()), JSON)
        return error_response(404, f"not found; available: {STATUS_PATH}")

    def set_listen_error(self, error: str | None) -> None:
        """Set the reason why the agent cannot listen on its TCP port, or None if it listens."""
        self._listen_error = error

    def _troubles(self) -> dict[str, str | None]:
        service = self._context.client.trouble
        unseen = None if self.has_document else "the service has not answered yet"
        return {
            "service": str(service) if service else unseen,
            "journal": self._store.error,
            "listening": self._listen_error,
        }
