"""Secret files: one or several secrets, hidden from the log, and never in a message."""

from pathlib import Path

import pytest

from forewarn.agent.handlers.secret_files import (
    InvalidSecret,
    check_secret_file,
    hide_nothing,
    read_secret,
    read_secrets,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.touch(mode=0o600)
    return path


def test_secrets_are_read_line_by_line_and_hidden(file: Path) -> None:
    file.write_text("# of the mail server\n\n one \ntwo\n")
    hidden: list[str] = []
    assert read_secrets(file, hidden.append) == ["one", "two"] == hidden
    file.write_text("only\n")
    assert read_secret(file, hide_nothing) == "only"


@pytest.mark.parametrize(
    "content", [b"", b"\n# comment\n", b"a\x07b\n", b"\xff\xfe"], ids=["empty", "comments", "unprintable", "binary"]
)
def test_file_without_a_secret_is_refused_and_its_content_is_not_shown(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(InvalidSecret, match=str(file)):
        read_secrets(file, hide_nothing)


def test_file_with_several_lines_is_no_single_secret(file: Path) -> None:
    file.write_text("one\ntwo\n")
    with pytest.raises(InvalidSecret) as refused:
        read_secret(file, hide_nothing)
    assert "one" not in str(refused.value).replace("more than one line", "")


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSecret, match="No such file"):
        read_secret(tmp_path / "none", hide_nothing)


def test_check_reports_a_file_that_everybody_can_read(file: Path) -> None:
    file.write_text("secret\n")
    assert check_secret_file(file) == []
    file.chmod(0o644)
    (problem,) = check_secret_file(file)
    assert f"chmod o-r {file}" in problem
    file.write_text("")
    assert len(check_secret_file(file)) == 1
