"""Software of Debian packages that are extracted, never installed: installed, it would configure the machine."""

import shutil
import subprocess
from pathlib import Path

import pytest

DOWNLOAD_TIMEOUT = 120.0
"""How many seconds a download, and the extraction of a package, may take."""


def extract_packages(directory: Path, *packages: str) -> Path:
    """Download the packages and return the root of their files; skip the test where that is not possible."""
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        pytest.skip(f"{', '.join(packages)}: extracted from Debian packages, but apt-get or dpkg is missing")
    done = subprocess.run(
        ["apt-get", "download", "--quiet", *packages],
        cwd=directory,
        check=False,
        capture_output=True,
        text=True,
        timeout=DOWNLOAD_TIMEOUT,
    )
    if done.returncode != 0:
        pytest.skip(f"Debian packages cannot be downloaded: {done.stderr.strip().splitlines()[-1]}")
    for package in directory.glob("*.deb"):
        subprocess.run(["dpkg", "-x", package, directory / "root"], check=True, timeout=DOWNLOAD_TIMEOUT)
    return directory / "root"
