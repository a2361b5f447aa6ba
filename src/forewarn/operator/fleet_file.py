"""The paths of the fleet file: the whole inventory as one text, in and out."""

from collections.abc import AsyncIterator, Iterator
from typing import Annotated

import msgspec
from litestar import Controller, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import HeaderParameter, QueryParameter, RawBody
from litestar.response import Stream

from forewarn.api import v1
from forewarn.api.fleet_parsing import FleetFormat
from forewarn.api.fleet_writing import write_fleet_json, write_fleet_toml
from forewarn.core.access import Role
from forewarn.core.scope import Scope
from forewarn.fleet.event_loop import yielding
from forewarn.operator.access import AskedBy, needs
from forewarn.operator.backstage import Backstage
from forewarn.operator.importing import Outcome, Running, Wanted
from forewarn.operator.parameters import refusals
from forewarn.operator.refusals import refusal_body

FLEET_FILE_BYTES = 64 * 1024 * 1024
PIECE = 64 * 1024
"""About how many characters are sent at a time."""

NDJSON = "application/x-ndjson"
WRITERS = {FleetFormat.TOML: write_fleet_toml, FleetFormat.JSON: write_fleet_json}

Format = Annotated[FleetFormat, QueryParameter(name="format", description="How the file is written.")]
DryRun = Annotated[bool, QueryParameter(description="Only tell what would be done.")]
Prune = Annotated[bool, QueryParameter(description="Also remove scopes and VMs that the file does not have.")]
Accept = Annotated[
    str | None,
    HeaderParameter(
        name="Accept", max_length=1024, description=f"`{NDJSON}`: a line for every step, the last with the result."
    ),
]

_encode = msgspec.json.Encoder().encode


class FleetController(Controller):
    """The fleet as one file."""

    path = "/v1/fleet"
    tags = ("inventory",)

    @get(
        operation_id="exportFleet",
        summary="Export the fleet file",
        opt=needs(Role.VIEWER, all_scopes=True),
        responses={
            200: ResponseSpec(
                data_container=str, description="The file.", generate_examples=False, media_type="application/toml"
            ),
            **refusals(),
        },
    )
    async def export(self, state: Backstage, format_: Format = FleetFormat.TOML) -> Stream:
        """Give the whole inventory as a fleet file. It comes piece by piece, each scope as it is at that moment."""
        pieces = yielding(WRITERS[format_](_scopes(state)))
        return Stream(_joined(pieces), media_type=f"application/{format_}")

    @post(
        "/import",
        operation_id="importFleet",
        summary="Import a fleet file",
        status_code=200,
        request_max_body_size=FLEET_FILE_BYTES,
        opt=needs(Role.OPERATOR, all_scopes=True),
        responses={
            200: ResponseSpec(
                data_container=v1.Imported, description="What was done, or would be.", generate_examples=False
            ),
            **refusals(
                _409="Another import runs.",
                _413="The file is too large.",
                _422="The file is wrong: key and problem say where and how. Nothing has changed.",
                _503="It could not be saved; what was done until then stays. Ask again, and it goes on.",
            ),
        },
    )
    async def import_(
        self,
        state: Backstage,
        caller: AskedBy,
        body: RawBody,
        format_: Format = FleetFormat.TOML,
        dry_run: DryRun = False,
        prune: Prune = False,
        accept: Accept = None,
    ) -> Stream:
        """Bring the fleet to what a fleet file, sent as the body, says; tell each difference.

        What is equal is not touched. What cannot be done (a VM with open events is not removed) is refused by itself,
        and the rest is made. It goes on to its end even if the connection does not last; asking again is harmless.
        """
        wanted = Wanted(content=body, format=format_, dry_run=dry_run, prune=prune, by=caller.name)
        running = state.imports.begin(wanted)
        if NDJSON in (accept or ""):
            return Stream(_told(running), media_type=NDJSON)
        return Stream(_shown(await running.ended()), media_type="application/json")


def _scopes(state: Backstage) -> Iterator[Scope]:
    """Give every scope that is there when it is its turn, by their ids."""
    for id_ in state.roll.ids():
        scope, _ = state.fleet.replica.newest(id_)
        if scope is not None:
            yield scope


async def _joined(pieces: AsyncIterator[str]) -> AsyncIterator[bytes]:
    """Join small pieces, so that not each of them is sent by itself."""
    waiting: list[str] = []
    length = 0
    async for piece in pieces:
        waiting.append(piece)
        length += len(piece)
        if length >= PIECE:
            yield "".join(waiting).encode()
            waiting, length = [], 0
    yield "".join(waiting).encode()


async def _told(running: Running) -> AsyncIterator[bytes]:
    """Write an import as it goes on, a line for each step."""
    async for progress in running.followed():
        yield _encode(progress) + b"\n"
    if running.outcome is None:
        error = None if running.error is None else refusal_body(running.error)
        yield _encode(v1.ImportProgress(done=running.done, total=running.total, error=error)) + b"\n"
        return
    yield b'{"done":%d,"total":%d,"result":' % (running.done, running.total)
    async for piece in _shown(running.outcome):
        yield piece
    yield b"}\n"


async def _shown(outcome: Outcome) -> AsyncIterator[bytes]:
    """Write the result piece by piece: it may tell of a hundred thousand VMs."""
    yield b'{"dry_run":%s,"differences":[' % _encode(outcome.dry_run)
    between = b""
    async for piece in yielding(outcome.differences):
        yield between + piece
        between = b","
    yield b'],"unchanged":%d,"refused":%d}' % (outcome.unchanged, outcome.refused)
