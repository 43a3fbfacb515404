"""Stands between frazil and a REST catalog, and does to commits what networks and servers do to them.

    proxy.arm(dropped_after_success, relayed, failed(502))      the next three commits meet these

A fault is a function of one exchange: it may forward the request or not, and answer or not.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

_TABLE = re.compile(r"/namespaces/[^/]+/tables/[^/]+$")
_TRANSACTION = re.compile(r"/transactions/commit$")
_OWN_HEADERS = {"connection", "content-length", "host", "keep-alive", "transfer-encoding", "accept-encoding"}


@dataclass(frozen=True)
class Reply:
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class Exchange:
    """One request, and the ways to treat it."""

    def __init__(self, proxy: FaultProxy, handler: BaseHTTPRequestHandler) -> None:
        self.proxy = proxy
        self._handler = handler
        self._method, self._path = handler.command, handler.path
        self._body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        self._headers = {k: v for k, v in handler.headers.items() if k.lower() not in _OWN_HEADERS}

    @property
    def is_commit(self) -> bool:
        path = urlsplit(self._path).path
        return self._method == "POST" and bool(_TABLE.search(path) or _TRANSACTION.search(path))

    @property
    def is_greeting(self) -> bool:
        return urlsplit(self._path).path.endswith("/v1/config")

    @property
    def is_look(self) -> bool:
        return self._method == "GET" and bool(_TABLE.search(urlsplit(self._path).path))

    def forward(self) -> Reply:
        """What the server says to the request, whenever it is sent."""
        return self._ask(self._method, self._body)

    def look(self) -> Reply:
        """What the server says of the table that the commit is for."""
        return self._ask("GET", b"")

    def answer(self, reply: Reply) -> None:
        self._handler.send_response(reply.status)
        for name, value in reply.headers.items():
            self._handler.send_header(name, value)
        self._handler.send_header("Content-Length", str(len(reply.body)))
        self._handler.end_headers()
        if reply.body:
            self._handler.wfile.write(reply.body)

    def fail(self, status: int, **headers: str) -> None:
        error = {"message": f"made up: {status}", "type": "MadeUp", "code": status}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answer(Reply(status, json.dumps({"error": error}).encode(), named))

    def drop(self) -> None:
        """No answer: the connection just ends."""
        self._handler.close_connection = True

    def _ask(self, method: str, body: bytes) -> Reply:
        server = HTTPConnection(self.proxy.upstream, timeout=60)
        try:
            server.request(method, self._path, body or None, self._headers)
            response = server.getresponse()
            headers = {k: v for k, v in response.getheaders() if k.lower() not in _OWN_HEADERS}
            return Reply(response.status, response.read(), headers)
        finally:
            server.close()


Fault = Callable[[Exchange], Any]


class FaultProxy:
    """Relays everything to the server at `uri`, but treats commits as it is armed to."""

    def __init__(self, uri: str) -> None:
        self.upstream = urlsplit(uri).netloc
        self.overrides: dict[str, str] = {}
        """what clients are told of the server's settings, besides what it says itself"""
        self.armed: list[Fault] = []
        self.met: list[Fault] = []
        """the faults that commits have met"""
        self._after_looks: list[tuple[int, Callable[[], Any]]] = []
        self._looks = 0
        self._lock = threading.Lock()
        self._server = self._listen(0)

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def arm(self, *faults: Fault) -> None:
        """Each of the next commits meets the next of these."""
        self.armed += faults

    def after_looks(self, count: int, act: Callable[[], Any]) -> None:
        """Acts when the server has answered so many more looks at a table, before the last of them is passed on."""
        self._after_looks.append((self._looks + count, act))

    def close(self) -> None:
        """Nobody listens any more: connections are refused."""
        self._server.shutdown()
        self._server.server_close()

    def open(self) -> None:
        """Listens again on the same port."""
        self._server = self._listen(self._server.server_port)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def treat(self, exchange: Exchange) -> None:
        if exchange.is_commit:
            fault = self._next_fault()
            fault(exchange)
        else:
            reply = exchange.forward()
            if exchange.is_look:
                self._looked()
            exchange.answer(self._overridden(reply) if exchange.is_greeting else reply)

    def _overridden(self, reply: Reply) -> Reply:
        told = json.loads(reply.body)
        told["overrides"] |= self.overrides
        return Reply(reply.status, json.dumps(told).encode(), reply.headers)

    def _next_fault(self) -> Fault:
        with self._lock:
            fault = self.armed.pop(0) if self.armed else relayed
            self.met.append(fault)
            return fault

    def _looked(self) -> None:
        self._looks += 1
        due = [act for count, act in self._after_looks if count <= self._looks]
        self._after_looks = [each for each in self._after_looks if each[0] > self._looks]
        for act in due:
            act()

    def _listen(self, port: int) -> ThreadingHTTPServer:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def treat(self) -> None:
                proxy.treat(Exchange(proxy, self))

            do_GET = do_POST = do_HEAD = do_DELETE = treat  # noqa: N815

            def log_message(self, *_: object) -> None:
                """Nobody reads it."""

        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        threading.Thread(target=lambda: server.serve_forever(0.01), daemon=True).start()
        return server


def relayed(exchange: Exchange) -> None:
    """No fault."""
    exchange.answer(exchange.forward())


def dropped_after_success(exchange: Exchange) -> None:
    """It lands, and the connection ends without an answer."""
    exchange.forward()
    exchange.drop()


def unavailable_after_success(exchange: Exchange) -> None:
    """It lands, and a gateway answers 503."""
    exchange.forward()
    exchange.fail(503)


def sent_twice(exchange: Exchange) -> None:
    """It lands, and the answer makes Iceberg's HTTP client send it again, which the server must refuse."""
    exchange.forward()
    exchange.fail(503, Retry_After="1")


def conflicting_after_success(exchange: Exchange) -> None:
    """It lands, and whoever sent it again in between got 409 for it."""
    exchange.forward()
    exchange.fail(409)


def claimed(exchange: Exchange) -> None:
    """It does not land, but 200 is answered."""
    exchange.answer(exchange.look())


def dropped(exchange: Exchange) -> None:
    """It does not land, and the connection ends without an answer."""
    exchange.drop()


def down(exchange: Exchange) -> None:
    """The server dies with the commit in its hands, and for a while connections are refused."""
    exchange.drop()
    exchange.proxy.close()
    threading.Timer(0.5, exchange.proxy.open).start()


def failed(status: int, **headers: str) -> Fault:
    """It does not land, and this status is answered."""

    def fault(exchange: Exchange) -> None:
        exchange.fail(status, **headers)

    fault.__name__ = f"failed_{status}"
    return fault


def late(looks: int) -> Fault:
    """504 is answered at once; it is delivered when the table has been looked at so often."""

    def fault(exchange: Exchange) -> None:
        exchange.proxy.after_looks(looks, exchange.forward)
        exchange.fail(504)

    fault.__name__ = f"late_by_{looks}_looks"
    return fault


def held(meanwhile: Callable[[], Any]) -> Fault:
    """Others act while it is under way."""

    def fault(exchange: Exchange) -> None:
        meanwhile()
        relayed(exchange)

    return fault
