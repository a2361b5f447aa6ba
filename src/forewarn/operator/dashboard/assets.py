"""Static files of the dashboard: scripts, the style sheet and the icon, read once and served from memory.

The path of a file has a digest of all files. So browsers need not ask for them again, modules can import each other by
relative paths, and a page never mixes files of two versions.
"""

from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Annotated, NamedTuple

from litestar import Response, get
from litestar.exceptions import NotFoundException
from litestar.params import HeaderParameter, PathParameter

from forewarn.operator.auth import requires
from forewarn.operator.dashboard.session_middleware import STATIC

MEDIA_TYPES = {
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}
CACHE_CONTROL = "public, max-age=31536000, immutable"

DigestPath = Annotated[str, PathParameter(max_length=64)]
FilePath = Annotated[str, PathParameter(max_length=64)]
IfNoneMatch = Annotated[str | None, HeaderParameter(name="If-None-Match", max_length=1024)]


class Assets(NamedTuple):
    """The contents by name, and the digest of all of them."""

    contents: dict[str, bytes]
    digest: str

    def url(self, name: str) -> str:
        """Return the path of a file."""
        if name not in self.contents:
            raise LookupError(f"the dashboard has no file {name}")
        return f"{STATIC}/{self.digest}/{name}"


@cache
def assets() -> Assets:
    """Read all files."""
    found = sorted(files("forewarn.operator.dashboard").joinpath("static").iterdir(), key=lambda file: file.name)
    contents = {file.name: file.read_bytes() for file in found if file.name.rpartition(".")[2] in MEDIA_TYPES}
    digest = sha256()
    for name, content in contents.items():
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return Assets(contents, digest.hexdigest()[:16])


@get(f"{STATIC}/{{digest:str}}/{{name:str}}", opt=requires(None))
async def static_file(digest: DigestPath, name: FilePath, if_none_match: IfNoneMatch = None) -> Response[bytes]:
    """Return a static file."""
    known = assets()
    content = known.contents.get(name)
    if content is None or digest != known.digest:
        raise NotFoundException
    headers = {"Cache-Control": CACHE_CONTROL, "ETag": f'"{digest}"'}
    if if_none_match is not None and f'"{digest}"' in if_none_match:
        return Response(b"", status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=MEDIA_TYPES[name.rpartition(".")[2]])
