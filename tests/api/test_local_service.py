"""Discovery of services through their data directory."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from forewarn.api.errors import AmbiguousService, DirectoryNotAllowed, InvalidToken, ServiceNotFound
from forewarn.api.local_service import (
    SERVICE_FILE,
    TOKEN_FILE,
    LocalService,
    create_ephemeral_directory,
    ensure_token,
    ephemeral_root,
    find_service,
    publish_service,
    read_service,
    read_token,
)

TEN = datetime(2026, 3, 2, 10, 0, tzinfo=UTC)


def service(pid: int) -> LocalService:
    return LocalService(pid=pid, started_at=TEN, version="1", operator_url="http://127.0.0.1:8170")


Announce = Callable[[Path], None]


@pytest.fixture
def announce() -> Iterator[Announce]:
    """Publish a service in a directory until the test ends."""
    with ExitStack() as running:
        yield lambda directory: running.enter_context(publish_service(directory, service(os.getpid())))


def leave_behind(directory: Path) -> None:
    """Write the file of a killed service whose process id has been reused."""
    (directory / SERVICE_FILE).write_bytes(msgspec.json.encode(service(os.getpid())))


def test_directory_of_another_user_is_reported(tmp_path: Path, announce: Announce) -> None:
    announce(tmp_path)
    tmp_path.chmod(0)
    me = os.geteuid()
    nobody = 65_534
    try:
        if me == 0:  # root can read everything
            os.seteuid(nobody)
        with pytest.raises(
            DirectoryNotAllowed, match=r"service\.json \(Permission denied\); run the command as the user who started"
        ):
            find_service(tmp_path, root=None)
    finally:
        os.seteuid(me)
        tmp_path.chmod(0o700)


def test_running_service_is_found_until_it_ends(tmp_path: Path) -> None:
    with publish_service(tmp_path, service(os.getpid())):
        assert find_service(tmp_path, root=None) == (tmp_path, service(os.getpid()))
        assert stat.S_IMODE((tmp_path / SERVICE_FILE).stat().st_mode) == 0o600
    with pytest.raises(ServiceNotFound):
        find_service(tmp_path, root=None)
    assert list(tmp_path.iterdir()) == []


def test_file_of_a_killed_service_is_stale_even_if_its_pid_is_reused(tmp_path: Path) -> None:
    """Otherwise the token would be sent to the program that has its port now."""
    leave_behind(tmp_path)
    assert read_service(tmp_path) is None


SERVE = """
import sys
from pathlib import Path
import msgspec
from forewarn.api.local_service import LocalService, publish_service
with publish_service(Path(sys.argv[1]), msgspec.json.decode(sys.argv[2], type=LocalService)):
    print("up", flush=True)
    sys.stdin.read()
"""


@pytest.mark.process
def test_service_of_another_process_is_found_until_it_is_killed(tmp_path: Path) -> None:
    said = msgspec.json.encode(service(1)).decode()
    command = [sys.executable, "-c", SERVE, str(tmp_path), said]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        assert [read_service(tmp_path) for _ in range(2)] == [service(1)] * 2
        process.kill()
        process.wait()
    assert (tmp_path / SERVICE_FILE).exists()
    assert read_service(tmp_path) is None


@pytest.mark.parametrize("content", [b"", b"{}", b'{"pid": "x"}', b"\xff"], ids=["empty", "object", "type", "bytes"])
def test_damaged_service_file_means_no_service(tmp_path: Path, content: bytes) -> None:
    (tmp_path / SERVICE_FILE).write_bytes(content)
    assert read_service(tmp_path) is None


def test_token_is_created_once_and_private(tmp_path: Path) -> None:
    token = ensure_token(tmp_path)
    assert len(token) >= 32
    assert stat.S_IMODE((tmp_path / TOKEN_FILE).stat().st_mode) == 0o600
    assert ensure_token(tmp_path) == token == read_token(tmp_path / TOKEN_FILE)
    assert [path.name for path in tmp_path.iterdir()] == [TOKEN_FILE]


def test_each_data_directory_has_its_own_token(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert ensure_token(tmp_path / "a") != ensure_token(tmp_path / "b")


def test_short_token_is_refused(tmp_path: Path) -> None:
    (tmp_path / TOKEN_FILE).write_text("abcdefgh\n")
    with pytest.raises(InvalidToken, match="too short"):
        ensure_token(tmp_path)


def test_link_to_a_token_is_followed_only_if_the_user_has_named_it(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("a-token-of-another-user\n")
    (tmp_path / TOKEN_FILE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidToken, match="is a symbolic link"):
        ensure_token(tmp_path)
    assert read_token(tmp_path / TOKEN_FILE, may_be_link=True) == "a-token-of-another-user"


def test_unfinished_token_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / f"{TOKEN_FILE}.x1y2.new").write_text("half")
    assert ensure_token(tmp_path) != "half"
    assert [path.name for path in tmp_path.iterdir()] == [TOKEN_FILE]


@pytest.mark.parametrize("content", [b"", b"\n", b"two words\n", b"\xff"], ids=["empty", "blank", "words", "bytes"])
def test_file_without_a_token_is_refused_and_kept(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / TOKEN_FILE
    path.write_bytes(content)
    with pytest.raises(InvalidToken, match=f"no token in {path}"):
        ensure_token(tmp_path)
    assert path.read_bytes() == content


def test_only_ephemeral_service_is_found(tmp_path: Path, announce: Announce) -> None:
    first, second = create_ephemeral_directory(tmp_path / "root"), create_ephemeral_directory(tmp_path / "root")
    announce(first)
    leave_behind(second)
    assert find_service(tmp_path, root=tmp_path / "root") == (first, service(os.getpid()))
    announce(second)
    with pytest.raises(AmbiguousService) as refused:
        find_service(tmp_path, root=tmp_path / "root")
    told = f"http://127.0.0.1:8170, process {os.getpid()}, since 2026-03-02 10:00:00Z"
    assert refused.value.services == {str(first): told, str(second): told}
    choices = " or ".join(f"--data {directory} ({told})" for directory in sorted((str(first), str(second))))
    assert str(refused.value) == f"several services run on this machine; choose one: {choices}"


def test_service_of_the_data_directory_takes_precedence(tmp_path: Path, announce: Announce) -> None:
    announce(create_ephemeral_directory(tmp_path / "root"))
    announce(tmp_path)
    assert find_service(tmp_path, root=tmp_path / "root") == (tmp_path, service(os.getpid()))


def test_next_start_removes_directories_of_killed_services(tmp_path: Path, announce: Announce) -> None:
    left, alive, starting = (create_ephemeral_directory(tmp_path / "root") for _ in range(3))
    leave_behind(left)
    announce(alive)
    new = create_ephemeral_directory(tmp_path / "root")
    assert set((tmp_path / "root").iterdir()) == {alive, starting, new}


def test_directory_that_others_can_write_is_not_used(tmp_path: Path, announce: Announce) -> None:
    root = tmp_path / "root"
    announce(create_ephemeral_directory(root))
    root.chmod(0o777)
    with pytest.raises(PermissionError):
        create_ephemeral_directory(root)
    with pytest.raises(ServiceNotFound):
        find_service(tmp_path, root=root)


def test_runtime_directory_of_the_user_is_preferred(tmp_path: Path) -> None:
    assert ephemeral_root({"XDG_RUNTIME_DIR": str(tmp_path)}) == tmp_path / "forewarn"
    assert ephemeral_root({"XDG_RUNTIME_DIR": str(tmp_path / "gone")}) == ephemeral_root({})
