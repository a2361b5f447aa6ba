"""Host permissions: checks, as the NATS user of a host, that it may not do what only control nodes do."""

import json
from collections.abc import Mapping

from forewarn.compose.cell_status import NEVER, CellReport
from forewarn.settings.nats import NatsSettings
from forewarn.store.nats.command_channel import inbox_of
from forewarn.store.nats.connection import NatsConnection, ResponseMissing, ServerUnavailable
from forewarn.store.nats.message import EXPECTED, CellSubjects, encode_token
from forewarn.store.port import RecordKey, RecordKind, StoreUnavailable

NO_JETSTREAM = 10039
"""The reason of JetStream for an account that has no streams, such as the account of hosts."""


async def check_host_user(settings: NatsSettings, host: str) -> CellReport:
    """Try what the user of a host must not be able to do. Nothing is changed, even if it is able."""
    subjects = CellSubjects(settings.cell)
    write = {EXPECTED: NEVER}
    probe = subjects.of(RecordKey(RecordKind.FLEET, "probe"))
    attempts: dict[str, tuple[str, bytes, Mapping[str, str]]] = {
        "write records": (probe, b"", write),
        "write the journal": (subjects.journal, b"", write),
        "write what was pruned": (subjects.pruned, b"", write),
        "write guards": (subjects.guards, b"", write),
        "write leases": (subjects.lease("probe"), b"", write),
        "send commands of other hosts": (subjects.command(f"{host}-other", "renew"), b"", {}),
        "delete messages of the stream": (f"$JS.API.STREAM.MSG.DELETE.{subjects.stream}", b'{"seq": 0}', {}),
        "remove messages of the stream": (f"$JS.API.STREAM.PURGE.{subjects.stream}", b'{"filter": "none"}', {}),
        "change the stream": (f"$JS.API.STREAM.UPDATE.{subjects.stream}", b"{}", {}),
        "change the stream through the import": (f"{settings.api_prefix}.STREAM.UPDATE.{subjects.stream}", b"{}", {}),
        "delete consumers of other hosts": (
            f"{settings.api_prefix}.CONSUMER.DELETE.{subjects.stream}.{subjects.consumer(f'{host}-other')}",
            b"",
            {},
        ),
        "create consumers of other hosts": (
            f"{settings.api_prefix}.CONSUMER.CREATE.{subjects.stream}.{subjects.consumer(f'{host}-other')}",
            b"{}",
            {},
        ),
    }
    connection = await NatsConnection.open(settings, inbox=inbox_of(encode_token(host)))
    try:
        problems = [
            f"the user of host {host} may {what}"
            for what, attempt in attempts.items()
            if await connection.may_send(*attempt)
        ]
        received = {
            "receive commands of hosts": subjects.commands,
            "receive answers to other hosts": f"{inbox_of(encode_token(f'{host}-other'))}.>",
            "receive messages to other hosts": subjects.for_host(f"{host}-other", "*"),
        }
        for what, subject in received.items():
            if await connection.may_receive(subject):
                problems.append(f"the user of host {host} may {what}")
        own = f"$JS.API.CONSUMER.CREATE.{subjects.stream}.{subjects.consumer(host)}"
        if await _reaches_streams(connection, own):
            problems.append(
                f"the user of host {host} is in the account of the control nodes, and can let the server write an "
                "answer as a record: give hosts an account of their own"
            )
    except ServerUnavailable as error:
        raise StoreUnavailable(", ".join(settings.servers), f"the check was not completed: {error}") from error
    finally:
        await connection.aclose()
    return CellReport(problems=tuple(problems), warnings=())


async def _reaches_streams(connection: NatsConnection, subject: str) -> bool:
    if not await connection.may_send(subject, b"{}"):
        return False
    try:
        answer = await connection.request(subject, b"{}")
    except ResponseMissing as error:
        raise ServerUnavailable(str(error)) from error
    except ServerUnavailable:  # the account has no JetStream
        if connection.is_connected:
            return False
        raise
    refusal: dict[str, object] = json.loads(answer.data).get("error") or {}
    return refusal.get("err_code") != NO_JETSTREAM
