"""Gate checks before a wave: run a program or send an HTTP request, with timeout and retries.

| gate    | passed              | failed                                                  |
|---------|---------------------|---------------------------------------------------------|
| program | exit code 0         | any other exit; the last line it prints is the reason   |
| HTTP    | the expected status | any other status, or no response                        |
"""

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from forewarn.core.campaign.spec import HttpCheck, gate_name
from forewarn.core.duration import format_duration
from forewarn.core.text import truncate_text
from forewarn.http_client import HttpRequest, RequestFailed, send_request
from forewarn.platform.command import SERVICE_VARIABLES
from forewarn.platform.limiter import ConcurrencyLimiter
from forewarn.platform.port import GateFailed, GatePassed, GateRequest, missing_gate
from forewarn.process import run_process
from forewarn.settings.gates import Gate, GateSettings
from forewarn.settings.types import VARIABLE_PREFIX

log = logging.getLogger(__name__)

MAX_CONCURRENT = 8
"""How many gates are checked at the same time; others wait."""


class SettingsGateChecker:
    """Checks gates: those that the settings define by name, and those that a campaign defines itself."""

    def __init__(self, gates: Sequence[Gate], environ: Mapping[str, str] = os.environ) -> None:
        self._gates = {gate.name: gate.settings for gate in gates}
        self._environ = {name: value for name, value in environ.items() if not name.startswith(SERVICE_VARIABLES)}
        self._limiter = ConcurrencyLimiter(MAX_CONCURRENT)

    def reload(self, gates: Sequence[Gate]) -> None:
        """Apply new gates; checks in progress finish with the old ones."""
        self._gates = {gate.name: gate.settings for gate in gates}

    @property
    def gates(self) -> Sequence[str]:
        """The names of the gates that the settings define."""
        return tuple(self._gates)

    async def check(self, request: GateRequest) -> GatePassed | GateFailed:
        """Check the gate of a wave, with retries as the gate defines."""
        gate = self._settings_for(request.gate)
        if gate is None:
            return missing_gate(gate_name(request.gate))
        return await self._check_with_retries(gate, request)

    def _settings_for(self, gate: str | HttpCheck) -> GateSettings | None:
        return self._gates.get(gate) if isinstance(gate, str) else GateSettings(**msgspec.structs.asdict(gate))

    async def _check_with_retries(self, gate: GateSettings, request: GateRequest) -> GatePassed | GateFailed:
        for _ in range(gate.retries):
            if isinstance(result := await self._check_once(gate, request), GatePassed):
                return result
            name = gate_name(request.gate)
            log.info("gate %s of campaign %s is closed: %s; checking again", name, request.name, result.reason)
            await asyncio.sleep(gate.pause.total_seconds())
        return await self._check_once(gate, request)

    async def _check_once(self, gate: GateSettings, request: GateRequest) -> GatePassed | GateFailed:
        """Check once. The slot is not kept between two attempts, because the pause may be long."""
        async with self._limiter.slot():
            return await (self._run_program(gate, request) if gate.url is None else _check_url(gate.url, gate))

    async def _run_program(self, gate: GateSettings, request: GateRequest) -> GatePassed | GateFailed:
        program = Path(gate.command[0]).name
        try:
            result = await run_process(
                gate.command,
                self._environ | _variables(request),
                msgspec.json.encode(_program_input(request)),
                time_limit=gate.timeout,
            )
        except TimeoutError:
            return GateFailed(f"{program} took longer than {format_duration(gate.timeout)} and was ended")
        except OSError as error:
            return GateFailed(truncate_text(f"{program} cannot be started: {error.strerror} ({gate.command[0]})"))
        return GatePassed() if result.code == 0 else GateFailed(truncate_text(f"{program} {result.summary}"))


async def _check_url(url: str, gate: GateSettings) -> GatePassed | GateFailed:
    request = HttpRequest("GET", url)
    try:
        status = (await send_request(request, time_limit=gate.timeout)).status
    except RequestFailed as error:
        return GateFailed(truncate_text(str(error)))
    return (
        GatePassed()
        if status == gate.expect_status
        else GateFailed(f"{request.origin} returned {status}, expected {gate.expect_status}")
    )


def _program_input(request: GateRequest) -> dict[str, object]:
    """Return the JSON for the program's standard input."""
    return {
        "phase": "gate",
        "gate": request.gate,
        "campaign": {"id": request.campaign, "name": request.name},
        "scope": request.scope or None,
        "wave": request.wave or None,
    }


def _variables(request: GateRequest) -> dict[str, str]:
    """Return the same as environment variables; unknown values are empty."""
    values = {
        "PHASE": "gate",
        "GATE": str(request.gate),
        "CAMPAIGN": request.campaign,
        "CAMPAIGN_NAME": request.name,
        "SCOPE": request.scope,
        "WAVE": str(request.wave) if request.wave else "",
    }
    return {VARIABLE_PREFIX + name: value for name, value in values.items()}
