"""Tests of the relay between 169.254.169.254:80 in the sandbox and the VM's socket."""

import hashlib
import os
import socket
import threading

from tests.testing.sandbox.vm_socket import VmSocket, read_exactly, wait_for_output

LARGE = 32 * 1024 * 1024
MANY = 300


def test_connection_stays_open_for_many_requests(vm: VmSocket) -> None:
    program = vm.script("""
with connected() as one:
    for number in range(100):
        one.sendall(f"{number:04}".encode())
        assert one.recv(4) == f"{number:04}"[::-1].encode()
""")
    with vm.accept() as connection:
        for _ in range(100):
            connection.sendall(read_exactly(connection, 4)[::-1])
        assert connection.recv(1) == b""
    assert wait_for_output(program) == (0, "", "")


def test_megabytes_are_relayed_in_both_directions_at_once(vm: VmSocket) -> None:
    program = vm.script(f"""
import hashlib, threading
one = connected()
saying = threading.Thread(target=lambda: (one.sendall(b"a" * {LARGE}), one.shutdown(socket.SHUT_WR)))
saying.start()
print(hashlib.sha256(all_of(one)).hexdigest())
saying.join()
""")
    noise = os.urandom(LARGE)
    with vm.accept() as connection:
        answering = threading.Thread(target=connection.sendall, args=(noise,))
        answering.start()
        assert read_exactly(connection, LARGE) == b"a" * LARGE
        assert connection.recv(1) == b""
        answering.join()
    assert wait_for_output(program) == (0, f"{hashlib.sha256(noise).hexdigest()}\n", "")


def test_response_arrives_after_the_client_closed_its_direction(vm: VmSocket) -> None:
    program = vm.script("""
one = connected()
one.sendall(b"all I have to say")
one.shutdown(socket.SHUT_WR)
print(all_of(one).decode())
""")
    with vm.accept() as connection:
        assert read_exactly(connection, 17) == b"all I have to say"
        assert connection.recv(1) == b""
        connection.sendall(b"and the answer, later")
    assert wait_for_output(program) == (0, "and the answer, later\n", "")


def test_many_connections_are_open_at_a_time(vm: VmSocket) -> None:
    program = vm.script(f"""
many = [connected() for _ in range({MANY})]
for number, one in enumerate(many):
    one.sendall(f"{{number:04}}".encode())
for number, one in enumerate(many):
    assert all_of(one) == f"{{number:04}}".encode()
""")
    connections = [vm.accept() for _ in range(MANY)]
    words = [read_exactly(connection, 4) for connection in connections]
    for connection, word in zip(connections, words, strict=True):
        connection.sendall(word)
        connection.close()
    assert wait_for_output(program) == (0, "", "")
    assert sorted(words) == [f"{number:04}".encode() for number in range(MANY)]


def test_last_bytes_arrive_after_the_program_has_ended(vm: VmSocket) -> None:
    """A handler may approve and exit without waiting for the response."""
    program = vm.script("connected().sendall(b'approve' * 100_000)")
    with vm.accept() as connection:
        assert read_exactly(connection, 700_000) == b"approve" * 100_000
        assert connection.recv(1) == b""
    assert wait_for_output(program) == (0, "", "")


def test_connection_closed_without_a_response_is_reset(vm: VmSocket) -> None:
    program = vm.script("""
one = connected()
one.sendall(b"a question")
try:
    print(one.recv(1))
except ConnectionResetError:
    print("reset")
""")
    with vm.accept() as connection:
        read_exactly(connection, 10)
    assert wait_for_output(program) == (0, "reset\n", "")


def test_connection_closed_after_a_response_is_closed(vm: VmSocket) -> None:
    program = vm.script("""
one = connected()
one.sendall(b"a question")
print(all_of(one).decode())
""")
    with vm.accept() as connection:
        read_exactly(connection, 10)
        connection.sendall(b"the beginning of an ans")
    assert wait_for_output(program) == (0, "the beginning of an ans\n", "")


def test_reset_by_the_program_reaches_the_service(vm: VmSocket) -> None:
    """The service must not hold a long poll whose client has gone."""
    program = vm.script("""
import struct
one = connected()
one.sendall(b"wait")
one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
sys.stdin.read(1)
one.close()
sys.stdin.read(1)
""")
    with vm.accept() as connection:
        read_exactly(connection, 4)
        assert program.stdin is not None
        program.stdin.write(b"!")
        program.stdin.flush()
        assert connection.recv(1) == b""
    assert wait_for_output(program) == (0, "", "")


def test_connection_fails_after_the_service_has_ended(vm: VmSocket) -> None:
    program = vm.script("""
held = connected()
held.sendall(b"first")
assert all_of(held) == b"answer"
print("ended", flush=True)
sys.stdin.read(1)
try:
    late = connected()
    late.sendall(b"?")
    print(late.recv(1))
except ConnectionError:
    print("nobody")
""")
    with vm.accept() as connection:
        read_exactly(connection, 5)
        vm.end()
        connection.sendall(b"answer")
    assert program.stdout is not None
    assert program.stdout.readline() == b"ended\n"
    assert program.stdin is not None
    program.stdin.write(b"!")
    assert wait_for_output(program) == (0, "nobody\n", "")


def test_program_has_its_own_loopback(vm: VmSocket) -> None:
    """The loopback in the sandbox is not the host's."""
    with socket.create_server(("127.0.0.1", 0)) as outside:
        port = outside.getsockname()[1]
        program = vm.script(f"""
with socket.create_server(("127.0.0.1", {port})) as own:
    socket.create_connection(("127.0.0.1", {port}))
    own.accept()
""")
        assert wait_for_output(program) == (0, "", "")
        outside.setblocking(False)
        try:
            outside.accept()
        except BlockingIOError:
            pass
        else:
            raise AssertionError("the program reached the loopback of the host")
