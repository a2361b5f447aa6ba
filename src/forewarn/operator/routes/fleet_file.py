"""Fleet file routes: export and import the whole inventory as one file."""

from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import msgspec
from litestar import Controller, Request, delete, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import HeaderParameter, QueryParameter
from litestar.response import Stream

from forewarn.api import v1
from forewarn.api.fleet_export import write_fleet_json, write_fleet_toml
from forewarn.api.fleet_file import FleetFormat
from forewarn.core.access import Role
from forewarn.core.scope import Scope
from forewarn.fleet.event_loop import iterate_gradually
from forewarn.operator.auth import CallerDep, requires
from forewarn.operator.error_responses import domain_error_body
from forewarn.operator.errors import ImportCanceled, ImportConflict, ImportFailed, ImportNotFound, InvalidFleetFile
from forewarn.operator.import_job import EncodedImportResult, ImportJob, ImportRequest
from forewarn.operator.parameters import error_specs
from forewarn.operator.state import AppState

FLEET_FILE_BYTES = 64 * 1024 * 1024
CHUNK_SIZE = 64 * 1024
"""The approximate number of characters per chunk."""

NDJSON = "application/x-ndjson"
WRITERS = {FleetFormat.TOML: write_fleet_toml, FleetFormat.JSON: write_fleet_json}

Format = Annotated[FleetFormat, QueryParameter(name="format", description="The format of the file.")]
DryRun = Annotated[bool, QueryParameter(description="Only report the differences; change nothing.")]
Prune = Annotated[bool, QueryParameter(description="Also remove scopes and VMs that the file does not have.")]
Accept = Annotated[
    str | None,
    HeaderParameter(
        name="Accept", max_length=1024, description=f"`{NDJSON}`: stream one line per step, the last with the result."
    ),
]

_encode = msgspec.json.Encoder().encode


class FleetFileController(Controller):
    """The fleet as one file."""

    path = "/v1/fleet"
    tags = ("inventory",)

    @get(
        operation_id="exportFleet",
        summary="Export the fleet file",
        opt=requires(Role.VIEWER, all_scopes=True),
        responses={
            200: ResponseSpec(
                data_container=str, description="The file.", generate_examples=False, media_type="application/toml"
            ),
            **error_specs(),
        },
    )
    async def export(self, state: AppState, format_: Format = FleetFormat.TOML) -> Stream:
        """Export the whole inventory as a fleet file. It is streamed, each scope in its state at that moment."""
        chunks = iterate_gradually(WRITERS[format_](_scopes(state)))
        return Stream(_join_chunks(chunks), media_type=f"application/{format_}")

    @post(
        "/import",
        operation_id="importFleet",
        summary="Import a fleet file",
        status_code=200,
        request_max_body_size=FLEET_FILE_BYTES,
        opt=requires(Role.OPERATOR, all_scopes=True),
        responses={
            200: ResponseSpec(
                data_container=v1.ImportResult,
                description="What was changed, or with dry_run would be.",
                generate_examples=False,
            ),
            **error_specs("body-too-large", InvalidFleetFile, ImportConflict, ImportCanceled, ImportFailed),
        },
    )
    async def import_(
        self,
        state: AppState,
        caller: CallerDep,
        request: Request[Any, Any, Any],
        format_: Format = FleetFormat.TOML,
        dry_run: DryRun = False,
        prune: Prune = False,
        accept: Accept = None,
    ) -> Stream:
        """Change the fleet to match a fleet file, sent as the body, and return each difference.

        Scopes and VMs that match are not touched. A change that is not allowed, such as the removal of a VM with open
        events, is refused; the others are applied. The import completes even if the connection is lost; repeating it
        is harmless.
        """
        chunks = [chunk async for chunk in request.stream()]
        job = state.import_jobs.start(
            ImportRequest(chunks=chunks, format=format_, dry_run=dry_run, prune=prune, by=caller.name)
        )
        if NDJSON in (accept or ""):
            return Stream(_progress_lines(job), media_type=NDJSON)
        return Stream(_result_chunks(await job.wait()), media_type="application/json")

    @delete(
        "/import",
        operation_id="cancelImport",
        summary="Cancel the running import",
        status_code=200,
        opt=requires(Role.OPERATOR, all_scopes=True),
        responses=error_specs(ImportNotFound),
    )
    async def cancel_import(self, state: AppState, caller: CallerDep) -> v1.CanceledImport:
        """Cancel the running import, and return when it has ended. Scopes that it has changed stay changed.

        The importing client gets the error `import-canceled`. An import that was about to end may complete.
        """
        job = await state.import_jobs.cancel(by=caller.name)
        is_canceled = job.error is not None and job.error.code == ImportCanceled.code
        return v1.CanceledImport(canceled=is_canceled, created_by=job.by, done=job.done, total=job.total)


def _scopes(state: AppState) -> Iterator[Scope]:
    """Yield the current version of every scope, sorted by id."""
    for id_ in state.scope_ids.ids():
        scope, _ = state.fleet.replica.newest(id_)
        if scope is not None:
            yield scope


async def _join_chunks(chunks: AsyncIterator[str]) -> AsyncIterator[bytes]:
    """Join small chunks, so that they are not sent one by one."""
    buffer: list[str] = []
    length = 0
    async for chunk in chunks:
        buffer.append(chunk)
        length += len(chunk)
        if length >= CHUNK_SIZE:
            yield "".join(buffer).encode()
            buffer, length = [], 0
    yield "".join(buffer).encode()


async def _progress_lines(job: ImportJob) -> AsyncIterator[bytes]:
    """Yield the progress of an import, one line per step, then its result or error."""
    async for progress in job.follow():
        yield _encode(progress) + b"\n"
    if job.result is None:
        error = None if job.error is None else domain_error_body(job.error)
        yield _encode(v1.ImportProgress(done=job.done, total=job.total, error=error)) + b"\n"
        return
    yield b'{"done":%d,"total":%d,"result":' % (job.done, job.total)
    async for chunk in _result_chunks(job.result):
        yield chunk
    yield b"}\n"


async def _result_chunks(result: EncodedImportResult) -> AsyncIterator[bytes]:
    """Yield the result in chunks, because it may have a hundred thousand VMs."""
    yield b'{"dry_run":%s,"differences":[' % _encode(result.dry_run)
    separator = b""
    async for chunk in iterate_gradually(result.differences):
        yield separator + chunk
        separator = b","
    yield b'],"unchanged_count":%d,"refused_count":%d}' % (result.unchanged, result.refused)
