"""Make stored data and what the tests expect of them: `python -m tests.stored.make WORK TARGET`.

The data in `450409b` were made by that commit, and are never made again: they are what its users have on their disks.
WORK is where the service and the agents run; its path gets into the data.
"""

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from tests.stored import exchanged
from tests.stored.history import History
from tests.stored.records import STORED, copy, read_all, read_journal
from tests.stored.service_process import Service


def make(work: Path, target: Path) -> None:
    """Play the history in one directory, and keep the result in another one."""
    work.mkdir(parents=True)
    history = History(Service(work))
    history.play()
    target.mkdir(parents=True)
    shutil.copytree(work / "data", target / "data", ignore=shutil.ignore_patterns("sockets"))
    shutil.copy(work / "service.json", target / "service.json")
    for name in ("prepare", "approve", "recover"):
        for part in ("journal", "handlers"):
            shutil.copytree(work / "agents" / name / "state" / part, target / "agents" / name / "state" / part)
    _write(target / "known.json", history.known)
    _write(target / "expected/records.json", {stored.name: stored.rendered() for stored in read_all(target)})
    scratch = work / "copy"
    scratch.mkdir()
    _write(target / "expected/journal.json", asyncio.run(read_journal(copy(scratch, target / "data"))))
    _write(target / "expected/gate-variables.json", exchanged.variable_names(work / "gate-variables"))
    shutil.copytree(STORED / "samples", target / "samples")
    expect_exchanged(work / "exchanged", target)


def expect_exchanged(work: Path, target: Path) -> None:
    """Keep what is exchanged with others."""
    work.mkdir()
    service = Service(work)
    known = json.loads((target / "known.json").read_text())
    for name, found in {
        "enums": exchanged.enum_values(),
        "digest": exchanged.digest(),
        "campaign-file": exchanged.campaign_file(),
        "agent-settings": exchanged.agent_settings(work),
        "agent-variables": exchanged.known_agent_variables(work),
        "service-settings": exchanged.service_settings(work),
    }.items():
        _write(target / f"expected/{name}.json", found)
    copy(work)
    _write(target / "expected/agent-side.json", exchanged.agent_side(work, service, known))
    shutil.rmtree(work / "data")
    copy(work)
    _write(target / "expected/service-side.json", exchanged.service_side(service, known))
    _write(target / "expected/exit-codes.json", exchanged.exit_codes(service))


def _write(path: Path, content: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    make(Path(sys.argv[1]).absolute(), Path(sys.argv[2]).absolute())
