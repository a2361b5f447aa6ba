"""The machine on which the figures were measured."""

import os
import platform
import re
import shutil
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import msgspec

SERVER_DIRECTORIES = "/usr/local/sbin:/usr/sbin:/sbin"
"""Folders of server programs that are not in an ordinary user's PATH."""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Hardware and software, and the load before the measurements."""

    at: datetime
    processor: str
    cores: int
    system: str
    python: str
    uvloop: str
    nginx: str
    load: float

    @classmethod
    def detect(cls) -> "Machine":
        """Describe this machine."""
        return cls(
            at=datetime.now(UTC).replace(microsecond=0),
            processor=_processor(),
            cores=os.cpu_count() or 1,
            system=f"{platform.system()} {platform.release()}",
            python=platform.python_version(),
            uvloop=version("uvloop"),
            nginx=_nginx_version(),
            load=round(os.getloadavg()[0], 2),
        )

    def __str__(self) -> str:
        return (
            f"{self.processor}, {self.cores} cores, {self.system}, Python {self.python}, uvloop {self.uvloop}, "
            f"nginx {self.nginx}; {self.at:%Y-%m-%d %H:%MZ}, load {self.load} before"
        )


def find_program(name: str) -> str:
    """Return the path of a program that the measurements need."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{SERVER_DIRECTORIES}")
    if found is None:
        raise FileNotFoundError(f"{name} is not installed: `make bench` says what to type")
    return found


def _processor() -> str:
    try:
        described = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.machine()
    found = re.search(r"^model name\s*: (.+)$", described, re.MULTILINE)
    return found[1] if found else platform.machine()


def _nginx_version() -> str:
    try:
        said = subprocess.run([find_program("nginx"), "-v"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError):
        return "none"
    return said.strip().rpartition("/")[2]
