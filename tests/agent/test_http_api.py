"""The agent's HTTP API."""

import socket
from pathlib import Path

from forewarn.agent.daemon import RETRY_INTERVAL
from forewarn.client import Unreachable
from forewarn.settings.types import ListenAddress
from tests.agent.harness import ID, AgentHarness, FakeService, RecordingHandler, event, until
from tests.agent.http_requests import ask
from tests.support.processes import free_ports


async def test_http_api_reports_readiness_and_metrics(tmp_path: Path) -> None:
    harness = AgentHarness(
        tmp_path, FakeService(), [RecordingHandler("drain", [])], listen=ListenAddress("127.0.0.1", 0)
    )
    async with harness.run_agent() as agent:
        await until(lambda: agent.port is not None)
        port = agent.port or 0
        assert await ask(port, "/readyz") == (200, "ready\n")
        harness.service.trouble = Unreachable("http://169.254.169.254", "refused")
        status, body = await ask(port, "/readyz")
        assert (status, "refused" in body) == (503, True)
        harness.service.trouble = None
        assert (await ask(port, "/nothing"))[0] == 404
        assert (await ask(port, "/readyz", "POST"))[0] == 405
        assert (await ask(port, f"/v1/ready/{ID}"))[0] == 403
        assert (await ask(port, "/v1/status"))[0] == 404
        await harness.show(event())
        status, body = await ask(port, "/metrics")
        assert 'forewarn_agent_walks{phase="approve"} 1\n' in body
        assert 'forewarn_agent_halves_total{handler="drain",half="prepare",state="done"} 1\n' in body


async def test_listen_error_is_reported_and_retried(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with socket.create_server(("127.0.0.1", port)) as taken:
        harness = AgentHarness(tmp_path, FakeService(), [], listen=ListenAddress("127.0.0.1", port))
        async with harness.run_agent() as agent:
            await until(lambda: bool(agent.status().problems))
            assert f"cannot listen on 127.0.0.1:{port}" in agent.status().problems[0]
            await harness.show(event())
            assert harness.service.approvals == [ID]
            taken.close()
            await harness.advance(RETRY_INTERVAL)
            await until(lambda: agent.port == port)
            assert agent.status().problems == ()
