"""Static files: names with a digest, caching, and nothing from other places."""

import re
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

import pytest

from forewarn.operator.dashboard.assets import assets
from tests.operator.running_api import run_api

HTMX = "2.0.11", "d6fdc75f"
"""The version of htmx, and the beginning of its digest."""

IDIOMORPH = "4cbd535c"
"""The beginning of the digest of idiomorph 0.8.0, which does not contain its version."""


async def test_file_is_served_with_its_type_to_anybody_and_kept_by_the_browser() -> None:
    async with run_api() as service:
        path = assets().url("dashboard.css")
        answer = await service.request("GET", path, token=None)
        assert (answer.status, answer.headers["content-type"]) == (200, "text/css; charset=utf-8")
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        again = await service.request("GET", path, token=None, If_None_Match=answer.headers["etag"])
        assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize("name", ["nothing.js", "htmx.LICENSE", "..%2fassets.py", "%2e%2e"])
async def test_other_files_are_not_served(name: str) -> None:
    async with run_api() as service:
        path = assets().url("dashboard.css").replace("dashboard.css", name)
        assert (await service.request("GET", path, token=None)).status == 404


async def test_file_of_another_version_is_not_served() -> None:
    async with run_api() as service:
        assert (await service.request("GET", "/ui/static/0123/dashboard.css", token=None)).status == 404


def test_unknown_file_has_no_path() -> None:
    with pytest.raises(LookupError):
        assets().url("nothing.js")


def test_digest_changes_with_any_file() -> None:
    assert re.fullmatch("[0-9a-f]{16}", assets().digest)
    assert assets().url("htmx.js") == f"/ui/static/{assets().digest}/htmx.js"


def test_htmx_is_the_pinned_version() -> None:
    content = assets().contents["htmx.js"]
    version = re.search(rb'version:"([^"]*)"', content)
    assert version is not None
    assert (version[1].decode(), sha256(content).hexdigest()[:8]) == HTMX


def test_idiomorph_is_the_pinned_version() -> None:
    content = assets().contents["idiomorph.js"]
    assert sha256(content).hexdigest()[:8] == IDIOMORPH
    assert not re.search(rb"\beval\(|\bFunction\(", content)


@pytest.mark.parametrize("name", ["htmx", "idiomorph"])
def test_notice_names_each_foreign_file_and_its_licence(name: str) -> None:
    notice = (Path(__file__).parents[3] / "NOTICE").read_text()
    assert f"forewarn/operator/dashboard/static/{name}.js" in notice.replace("\n", "")
    assert f"{name}.LICENSE" in notice
    assert files("forewarn.operator.dashboard").joinpath(f"static/{name}.LICENSE").is_file()


def test_scripts_and_styles_need_no_exception_of_the_content_security_policy() -> None:
    """Own scripts import only each other, and styles load nothing."""
    for name, content in assets().contents.items():
        text = content.decode()
        if name.endswith(".css"):
            assert "url(" not in text
            assert "@import" not in text
        elif name.endswith(".js") and name not in ("htmx.js", "idiomorph.js"):
            assert set(re.findall(r'from "([^"]*)"', text)) <= {f"./{other}" for other in assets().contents}
            assert not re.search(r"\beval\(|new Function|innerHTML|https?:", text)
