"""Raw requests to the agent's HTTP server."""

import asyncio


async def say(port: int, text: bytes) -> bytes:
    """Send these bytes, and return the whole response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(text)
    async with asyncio.timeout(60):
        answer = await reader.read()
    writer.close()
    return answer


async def ask(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    """Send a request; return status and body."""
    head, _, body = (await say(port, f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())).partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), body.decode()
