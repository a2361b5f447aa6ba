"""Linux system calls that the standard library lacks: unshare, mount, prctl, capabilities, interface ioctls.

All raise OSError.
"""

import ctypes
import fcntl
import os
import signal
import socket
import struct
from pathlib import Path

CLONE_NEWNS = 0x0002_0000
CLONE_NEWUTS = 0x0400_0000
CLONE_NEWUSER = 0x1000_0000
CLONE_NEWPID = 0x2000_0000
CLONE_NEWNET = 0x4000_0000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1 << 5, 1 << 12, 1 << 14, 1 << 18
RESTRICTED_MOUNT = MS_NOSUID | MS_NODEV | MS_NOEXEC

CAP_SYS_ADMIN = 21
"""The capability that permits mounting and unmounting, among much else."""

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_CAPBSET_DROP = 24
_ARGUMENTS_START = 45
"""The position of the start of the arguments in /proc/self/stat, counted after the name; their end follows."""
_CAPABILITIES = struct.Struct("6I")
_CAPABILITIES_VERSION = 0x2008_0522
_SET_ADDRESS, _SET_NETMASK, _GET_FLAGS, _SET_FLAGS = 0x8916, 0x891C, 0x8913, 0x8914
_UP = 1
_ADDRESS_REQUEST = struct.Struct("16sHH4s16x")
_FLAGS_REQUEST = struct.Struct("16sH22x")

_libc = ctypes.CDLL(None, use_errno=True)
_libc.capget.argtypes = _libc.capset.argtypes = (ctypes.c_char_p, ctypes.c_char_p)
_libc.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)


def unshare(flags: int) -> None:
    """Move this process into new namespaces."""
    _check(_libc.unshare(flags))


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mount a file system."""
    _check(_libc.mount(source.encode(), os.fsencode(target), kind.encode(), flags, options.encode()))


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent ends for any reason."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0))


def drop_capability(capability: int) -> None:
    """Drop a capability for this process and every program that it starts, even as root."""
    _check(_libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0))
    header = struct.pack("Ii", _CAPABILITIES_VERSION, 0)
    found = ctypes.create_string_buffer(_CAPABILITIES.size)
    _check(_libc.capget(header, found))
    # Three sets of two words each: the lower words of all sets come first.
    word_index, bit = divmod(capability, 32)
    sets = list(_CAPABILITIES.unpack(found.raw))
    sets[3 * word_index : 3 * word_index + 3] = (
        word & ~(1 << bit) for word in sets[3 * word_index : 3 * word_index + 3]
    )
    _check(_libc.capset(header, _CAPABILITIES.pack(*sets)))


def set_title(name: str, title: str) -> None:
    """Show a short name and, in place of the arguments, a title in process lists, as far as there is room for it."""
    _libc.prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[_ARGUMENTS_START]), int(fields[_ARGUMENTS_START + 1])
    if 0 < start < end:
        # The arguments end with a zero byte, and Python has copied them long ago.
        text = os.fsencode(title)[: end - start - 1]
        ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)


def add_address(interface: str, address: str) -> None:
    """Add an address with the netmask 255.255.255.255 to an interface; `lo:1` adds a second one to `lo`."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for request, value in ((_SET_ADDRESS, address), (_SET_NETMASK, "255.255.255.255")):
            packed = _ADDRESS_REQUEST.pack(interface.encode(), socket.AF_INET, 0, socket.inet_aton(value))
            fcntl.ioctl(any_socket, request, packed)


def bring_up(interface: str) -> None:
    """Bring an interface up."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        found = fcntl.ioctl(any_socket, _GET_FLAGS, _FLAGS_REQUEST.pack(interface.encode(), 0))
        _, flags = _FLAGS_REQUEST.unpack(found)
        fcntl.ioctl(any_socket, _SET_FLAGS, _FLAGS_REQUEST.pack(interface.encode(), flags | _UP))


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
