"""Stands in front of an S3 server, and makes it one of those that know less.

with StoreProxy(s3, forgetful) as proxy:       the second of two writers wins
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import unquote, urlsplit

from tests.services.s3 import S3

_CONDITION = "If-None-Match"
_OWN_HEADERS = {"connection", "content-length", "keep-alive", "transfer-encoding"}


class _Request(BaseHTTPRequestHandler):
    """Headers are passed on as they came, the host among them: the signature is about them."""

    protocol_version = "HTTP/1.1"

    upstream: S3

    @property
    def object_file(self) -> Path:
        """Where the server keeps what the request is about."""
        return self.upstream.buckets / unquote(urlsplit(self.path).path).lstrip("/")

    def relay(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        server = HTTPConnection("127.0.0.1", self.upstream.port, timeout=60)
        try:
            server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                server.putheader(name, value)
            server.endheaders(body)
            response = server.getresponse()
            self.answer(response.status, response.read(), dict(response.getheaders()))
        finally:
            server.close()

    def answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in _OWN_HEADERS:
                self.send_header(name, value)
        length = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(body))
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


Treatment = Callable[[_Request], None]


def forgetful(request: _Request) -> None:
    """The condition always holds: what is there makes room. (It is signed, and cannot just be left out.)"""
    if _CONDITION in request.headers:
        request.object_file.unlink(missing_ok=True)
    request.relay()


def unknowing(request: _Request) -> None:
    """It says that it does not know such conditions."""
    if _CONDITION not in request.headers:
        request.relay()
        return
    request.rfile.read(int(request.headers.get("Content-Length", 0)))
    said = b"<Error><Code>NotImplemented</Code><Message>A header you provided is not known</Message></Error>"
    request.answer(501, said, {"Content-Type": "application/xml"})


class StoreProxy:
    """Relays everything to the server, each request as it is told to."""

    def __init__(self, s3: S3, treat: Treatment) -> None:
        class Handler(_Request):
            upstream = s3
            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = treat  # noqa: N815

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=lambda: self._server.serve_forever(0.01), daemon=True).start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
