"""The messages of a restore: everything that an operator must look at, and how to act on it."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from forewarn.cli.output import Output
from forewarn.cli.process import backup_main
from forewarn.compose.restore import LostHold, NamedToken, RestoreReport
from forewarn.compose.restored_fleet import UnfinishedWork

EVENT = "5B067F98-E790-5859-9A37-B75D86282A82"


def shown(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], report: RestoreReport) -> list[str]:
    async def restore(*_: object, **__: object) -> RestoreReport:
        return report

    monkeypatch.setattr(backup_main, "restore_backup", restore)
    backup_main.run_restore(Path(report.data), Path(report.file), Output.TABLE)
    return capfd.readouterr().err.splitlines()


def a_report(**fields: object) -> RestoreReport:
    values: dict[str, object] = {
        "file": "/backup/monday.db",
        "data": "/data",
        "made_at": datetime(2030, 1, 7, 10, tzinfo=UTC),
        "replaced": None,
        "replaced_problem": None,
        "scopes": 1,
        "hold": "restored",
        "revoked_tokens": (),
        "unconfirmed_tokens": (),
        "lost_tokens": (),
        "lost_holds": (),
        "unknown_work": (),
        "canceled_events": (),
    }
    return RestoreReport(**values | fields)  # type: ignore[arg-type]  # the values of the table above


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"replaced": "/data/before-restore-1"}, ["/data/before-restore-1"]),
        ({"replaced_problem": "it is damaged"}, ["it is damaged"]),
        ({"revoked_tokens": (NamedToken(id="tk_1", name="ann"),)}, ["revoked again: ann (tk_1)"]),
        ({"unconfirmed_tokens": (NamedToken(id="tk_1", name="ann"),)}, ["ann (tk_1)", "forewarn token revoke"]),
        ({"lost_tokens": (NamedToken(id="tk_1", name="ann"),)}, ["not valid any more: ann (tk_1)"]),
        ({"lost_holds": (LostHold(scope="web", by="ann", reason="a demo"),)}, ["ann on scope web: a demo"]),
        (
            {"unknown_work": (UnfinishedWork(event=EVENT, scope="web", vm="web-0"),)},
            [EVENT, "web/web-0", "forewarn event resolve", "forewarn event retry"],
        ),
        ({"canceled_events": (UnfinishedWork(event=EVENT, scope="web", vm="web-0"),)}, ["Canceled", EVENT]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_message_names_what_to_look_at(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    fields: dict[str, object],
    words: list[str],
) -> None:
    message, last = shown(monkeypatch, capfd, a_report(**fields))
    assert [word for word in words if word not in message] == []
    assert "forewarn release" in last


def test_long_lists_are_cut_and_say_so(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    work = tuple(UnfinishedWork(event=EVENT, scope="web", vm=f"web-{n}") for n in range(25))
    tokens = tuple(NamedToken(id=f"tk_{n}", name=f"t{n}") for n in range(25))
    lines = shown(monkeypatch, capfd, a_report(unknown_work=work, revoked_tokens=tokens))
    assert len(lines) == 1 + 20 + 1 + 1
    assert lines[0].endswith("and 5 more.")
    assert lines[-2].startswith("5 more are not listed")
