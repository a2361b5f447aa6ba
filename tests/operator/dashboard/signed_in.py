"""A browser without scripts: signs in to the dashboard, and sends its cookie and CSRF token."""

import re
from html import unescape
from urllib.parse import urlencode

from tests.operator.running_api import TOKEN, ApiResponse, RunningApi

ORIGIN = {"Sec_Fetch_Site": "same-origin"}


class SignedIn:
    """A signed-in browser."""

    def __init__(self, service: RunningApi, cookie: str) -> None:
        self.service = service
        self.cookie = cookie
        self.csrf = ""

    async def get(self, path: str, **headers: str) -> ApiResponse:
        """Request a page, and remember its CSRF token."""
        answer = await self.service.request("GET", path, token=None, Cookie=self.cookie, **headers)
        if found := re.search(r'hx-headers="([^"]*forewarn-csrf[^"]*)"', answer.body.decode()):
            self.csrf = unescape(found[1]).split('"')[3]
        return answer

    async def text(self, path: str) -> str:
        """Return a page that must be there, as its text: without tags, with single spaces."""
        answer = await self.get(path)
        assert answer.status == 200, answer.body.decode()
        return page_text(answer.body.decode())

    async def post(self, path: str, form: object = (), **headers: str) -> ApiResponse:
        """Send a form as a page of the dashboard does."""
        if not self.csrf:
            await self.get("/ui")
        sent = {"Cookie": self.cookie, "forewarn_csrf": self.csrf, "HX_Request": "true"} | ORIGIN | headers
        body = urlencode(form, doseq=True).encode()  # type: ignore[arg-type]  # a mapping or pairs
        return await self.service.request("POST", path, body, token=None, **sent)


def page_text(html: str) -> str:
    """Return the text of a page."""
    body = html.partition("<main")[2].partition("</main>")[0].partition(">")[2]
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", body)).split())


async def send_token(service: RunningApi, secret: str, **form: str) -> ApiResponse:
    """Send the form of the sign-in page."""
    body = urlencode({"token": secret} | form).encode()
    return await service.request("POST", "/ui/sign-in", body, token=None, **ORIGIN)


async def sign_in(service: RunningApi, secret: str = TOKEN) -> SignedIn:
    """Sign in with a token."""
    answer = await send_token(service, secret)
    assert answer.status == 303, answer.body.decode()
    return SignedIn(service, answer.headers["set-cookie"].partition(";")[0])
