"""Who may ask: this machine's own page with the token, and nobody else. A layer around the whole application.

Other pages in the same browser can send requests to 127.0.0.1 too, so a port is no secret and being local is no proof.
Every request must name this host (else a foreign name that resolves here could read answers), an origin, if named,
must be ours, and every answer from data needs the token in a header, which no other page knows.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
logger = logging.getLogger("krepes")

LARGEST = 4 << 20
"""Bytes of a request's body."""
DRAINED = 64 << 20
"""Bytes of a refused body that are still read."""
LONGEST = 8192
"""Bytes of a path with its query."""
HEADER = "x-krepes-token"
COOKIE = "krepes"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors {frames}"
)
NOTEBOOKS = "http://localhost:* http://127.0.0.1:* https://localhost:*"


class Refused(Exception):
    """A request that is answered with a status and a sentence."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status, self.why = status, why


@dataclass(frozen=True)
class Guard:
    """The application behind its checks.

    Attributes:
        app: What answers.
        token: Random text that the page was opened with.
        hosts: Values of the Host header that are this server.
        framed: Whether a notebook on this machine may show the page inside its own.
    """

    app: App
    token: str = field(repr=False)
    hosts: frozenset[str]
    framed: bool = False

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Check a request, pass it on, and put the headers of a guarded page on the answer."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        started = False

        async def guarded(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message = {**message, "headers": [*message.get("headers", []), *self._headers(scope)]}
            await send(message)

        body = Body(scope, receive)
        try:
            self._check(scope)
            await body.read()
            await self.app(scope, body.again, guarded)
        except Refused as error:
            await body.drain()
            await _answer(guarded, error.status, error.why)
        except Exception as error:
            logger.error("the explorer could not answer %s: %s", scope["path"][:80], type(error).__name__)
            if not started:
                await _answer(guarded, 500, "this could not be answered; the terminal says what kind of error it was")

    def _check(self, scope: Message) -> None:
        """Raise `Refused` for a request of a foreign page, without the token, or of another form than ours."""
        headers = _single(scope["headers"])
        if headers.get("host") not in self.hosts:
            raise Refused(421, "this server answers to its own address only")
        if "origin" in headers and headers["origin"] not in {f"http://{host}" for host in self.hosts}:
            raise Refused(403, "requests of other pages are refused")
        if scope["method"] not in {"GET", "POST"}:
            raise Refused(405, "only GET and POST are answered")
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > LONGEST:
            raise Refused(414, f"an address has at most {LONGEST} bytes")
        path = scope["path"]
        if path.startswith("/api/"):
            if headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
                raise Refused(403, "requests of other pages are refused")
            if not self._known(headers.get(HEADER)):
                raise Refused(401, "the token is missing or wrong: open the address that the terminal shows")
            if scope["method"] == "POST" and headers.get("content-type", "").split(";")[0] != "application/json":
                raise Refused(415, "a question is sent as application/json")
        elif path == "/" and not self._may_open(scope, headers):
            raise Refused(403, "the token is missing or wrong: open the address that the terminal shows")

    def _may_open(self, scope: Message, headers: dict[str, str]) -> bool:
        """Say whether the page may be opened: by the token in its address, or later by the cookie."""
        asked = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=50).get("token")
        if asked is not None:
            return self._known(asked[0])
        cookies = dict(part.strip().partition("=")[::2] for part in headers.get("cookie", "").split(";"))
        return self._known(cookies.get(f"{COOKIE}-{headers['host'].rpartition(':')[2]}"))

    def _known(self, given: str | None) -> bool:
        return given is not None and secrets.compare_digest(given.encode(), self.token.encode())

    def _headers(self, scope: Message) -> list[tuple[bytes, bytes]]:
        policy = POLICY.format(frames=NOTEBOOKS if self.framed else "'none'")
        found = {
            "content-security-policy": policy,
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cross-origin-resource-policy": "same-origin",
            "cache-control": "no-store" if scope["path"].startswith("/api/") else "no-cache",
        }
        if not self.framed:
            found |= {"cross-origin-opener-policy": "same-origin", "x-frame-options": "DENY"}
        if scope["path"] == "/" and b"token=" in scope["query_string"] and self._may_open(scope, {"host": ":"}):
            port = _single(scope["headers"]).get("host", "").rpartition(":")[2]
            found["set-cookie"] = f"{COOKIE}-{port}={self.token}; Path=/; HttpOnly; SameSite=Strict"
        return [(name.encode(), value.encode()) for name, value in found.items()]


def _single(headers: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return headers by name; one that is given twice is joined, so that it equals nothing that is allowed."""
    found: dict[str, str] = {}
    for name, value in headers:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        found[key] = f"{found[key]}, {text}" if key in found else text
    return found


class Body:
    """The body of a request: read whole within a limit, or read to its end and forgotten.

    Args:
        scope: The request.
        receive: Gives its parts; it must not be asked after the last one, for it would wait for the end of the answer.
    """

    def __init__(self, scope: Message, receive: Receive) -> None:
        self._scope, self._receive = scope, receive
        self._content, self._size = b"", 0
        self._more, self._handed = scope["method"] == "POST", False

    async def read(self) -> None:
        """Read all of it.

        Raises:
            Refused: If it is longer than it may be, or was cut off.
        """
        length = _single(self._scope["headers"]).get("content-length", "0")
        if not length.isdecimal() or int(length) > LARGEST:
            raise Refused(413, f"a question has at most {LARGEST >> 20} MB")
        while self._more:
            self._content += await self._part()
            if self._size > LARGEST:
                raise Refused(413, f"a question has at most {LARGEST >> 20} MB")

    async def drain(self) -> None:
        """Read what is left of a refused body, up to a limit, so that whoever sends it gets to read the answer."""
        while self._more and self._size < DRAINED:
            await self._part()

    async def again(self) -> Message:
        """Hand on what was read, as the application expects it."""
        if self._handed:
            return await self._receive()
        self._handed = True
        return {"type": "http.request", "body": self._content, "more_body": False}

    async def _part(self) -> bytes:
        message = await self._receive()
        self._more = message["type"] == "http.request" and message.get("more_body", False)
        part: bytes = message.get("body", b"")
        self._size += len(part)
        return part


async def _answer(send: Send, status: int, why: str) -> None:
    body = json.dumps({"error": why}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
