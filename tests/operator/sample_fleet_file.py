"""A fleet file with one more scope, and its import."""

from forewarn.api import v1
from tests.operator.running_api import RunningApi

ONE_MORE = """
    [[scopes]]
    name = "new"
    kind = "availability-set"
    vms = [{ name = "new-{n}", count = 2 }]
"""


async def imported(service: RunningApi, text: str, *, dry_run: bool = False, prune: bool = False) -> v1.ImportResult:
    """Import a fleet file and return the result, which is in the last line of the stream."""
    lines = await service.client(
        lambda api: list(api.import_fleet(text.encode(), "toml", dry_run=dry_run, prune=prune))
    )
    assert [line.result for line in lines[:-1]] == [None] * (len(lines) - 1)
    result = lines[-1].result
    assert result is not None, lines[-1]
    return result
