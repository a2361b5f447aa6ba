"""Gates that are asked before a wave: an operator's own program, or an address that answers with a status.

| gate    | open                      | shut                                                          |
|---------|---------------------------|---------------------------------------------------------------|
| program | it ends with 0            | any other end; the last line that it prints says why          |
| HTTP    | the expected status       | any other status, or no answer                                |
"""

import asyncio
import itertools
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from forewarn.clock import SystemClock
from forewarn.core.campaign.spec import HttpCheck, gate_name
from forewarn.core.duration import format_duration
from forewarn.core.text import truncate_text
from forewarn.platform.asking import NoAnswer, Request, status_of
from forewarn.platform.command import SERVICE_ONLY, how_it_ended
from forewarn.platform.places import Places
from forewarn.platform.port import Open, Question, Shut
from forewarn.platform.processes import Files, Process
from forewarn.settings import VARIABLE_PREFIX, Gate, GateSettings

log = logging.getLogger(__name__)

AT_ONCE = 8
"""How many gates are asked at the same time; others wait their turn."""


class Gatekeeper:
    """Asks gates, as the settings define them by name or as a campaign brings them along."""

    def __init__(self, gates: Sequence[Gate], directory: Path, environ: Mapping[str, str] = os.environ) -> None:
        self._gates = {gate.name: gate.settings for gate in gates}
        self._directory = directory
        self._environ = {name: value for name, value in environ.items() if not name.startswith(SERVICE_ONLY)}
        self._places = Places(AT_ONCE)
        self._numbers = itertools.count()

    def take(self, gates: Sequence[Gate]) -> None:
        """Go on with other gates; those that are being asked are asked to the end."""
        self._gates = {gate.name: gate.settings for gate in gates}

    @property
    def gates(self) -> Sequence[str]:
        """The names of the gates that the settings define."""
        return tuple(self._gates)

    async def check(self, question: Question) -> Open | Shut:
        """Ask whether a wave may go, again where it may not, as often as the gate says."""
        gate = self._way(question.gate)
        if gate is None:
            return Shut(f"the settings have no gate {question.gate}: define [gates.{question.gate}], and reload")
        return await self._asked_repeatedly(gate, question)

    def _way(self, gate: str | HttpCheck) -> GateSettings | None:
        if isinstance(gate, str):
            return self._gates.get(gate)
        return GateSettings(
            url=gate.url, expect_status=gate.expect_status, timeout=gate.timeout, retries=gate.retries, pause=gate.pause
        )

    async def _asked_repeatedly(self, gate: GateSettings, question: Question) -> Open | Shut:
        for _ in range(gate.retries):
            if isinstance(answer := await self._asked(gate, question), Open):
                return answer
            name = gate_name(question.gate)
            log.info("gate %s of campaign %s is shut: %s; asking again", name, question.name, answer.why)
            await asyncio.sleep(gate.pause.total_seconds())
        return await self._asked(gate, question)

    async def _asked(self, gate: GateSettings, question: Question) -> Open | Shut:
        """Ask once. Between two tries nobody's place is taken: that may be long."""
        async with self._places.taken():
            return await (self._run(gate, question) if gate.url is None else _request(gate.url, gate))

    async def _run(self, gate: GateSettings, question: Question) -> Open | Shut:
        program = Path(gate.command[0]).name
        files = Files(self._directory, f"gate.{next(self._numbers)}")
        try:
            process = self._start(gate, question, files)
        except OSError as error:
            return Shut(truncate_text(f"{program} cannot be started: {error.strerror} ({gate.command[0]})"))
        try:
            async with asyncio.timeout(gate.timeout.total_seconds()):
                ended = await process.ended()
        except TimeoutError:
            await process.end()
            return Shut(f"{program} took longer than {format_duration(gate.timeout)} and was ended")
        finally:
            process.kill()
            files.remove()
        return Open() if ended.code == 0 else Shut(truncate_text(f"{program} {how_it_ended(ended)}"))

    def _start(self, gate: GateSettings, question: Question, files: Files) -> Process:
        self._directory.mkdir(mode=0o700, exist_ok=True)
        return Process.start(
            gate.command,
            self._environ | _variables(question),
            msgspec.json.encode(_task(question)),
            files,
            attempt=1,
            now=SystemClock().now(),
        )


async def _request(url: str, gate: GateSettings) -> Open | Shut:
    request = Request("GET", url)
    try:
        status = await status_of(request, gate.timeout)
    except NoAnswer as error:
        return Shut(truncate_text(str(error)))
    return (
        Open() if status == gate.expect_status else Shut(f"{request.place} answers {status}, not {gate.expect_status}")
    )


def _task(question: Question) -> dict[str, object]:
    """Return what a program is given as JSON on its standard input."""
    return {
        "phase": "gate",
        "gate": question.gate,
        "campaign": {"id": question.campaign, "name": question.name},
        "scope": question.scope or None,
        "wave": question.wave or None,
    }


def _variables(question: Question) -> dict[str, str]:
    """Return the same as environment variables; what is not known is empty."""
    said = {
        "PHASE": "gate",
        "GATE": str(question.gate),
        "CAMPAIGN": question.campaign,
        "CAMPAIGN_NAME": question.name,
        "SCOPE": question.scope,
        "WAVE": str(question.wave) if question.wave else "",
    }
    return {VARIABLE_PREFIX + name: value for name, value in said.items()}
