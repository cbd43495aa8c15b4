"""Where others ask whether a worker lives: ``GET /health`` over HTTP, for an orchestrator's probes.

In a thread of its own: it answers, and says that the worker is not well, when the worker's event loop is blocked.
"""

from __future__ import annotations

import io
import json
import re
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

from pgmem.worker.worker import Worker

REQUEST_SECONDS = 5.0
"""How long a probe may take to say what it wants, and then to take the answer."""

MOST_BYTES = 65_536 + 1
"""Of what a probe says: one more than http.server takes for a first line, which it refuses then."""

HEAD_ENDS = re.compile(rb"\n\r?\n")

POLL_SECONDS = 0.1
"""How long the end of the endpoint may take."""


@contextmanager
def health_endpoint(worker: Worker, *, host: str, port: int) -> Iterator[int]:
    """Answers while the body runs: 200 while the worker takes jobs, else 503; gives the port, chosen freely for 0.

    Raises:
        OSError: the address cannot be listened on.
    """

    class Handler(_Handler):
        asked = worker

    class Server(socketserver.ThreadingTCPServer):  # not HTTPServer, which asks the DNS for its own name
        allow_reuse_address = True
        daemon_threads = True
        address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]

        def handle_error(self, *_: Any) -> None:
            """A probe that hangs up is no news."""

    with Server((host, port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(POLL_SECONDS,), name="pgmem worker health", daemon=True)
        thread.start()
        try:
            yield int(server.server_address[1])
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    """Answers one probe; its threads are not waited for."""

    asked: Worker
    seconds = REQUEST_SECONDS

    def setup(self) -> None:
        """Reads the whole head before any of it is looked at, so that one deadline is enough; what is late is not answered."""
        super().setup()
        self.rfile = io.BytesIO(self._said())
        self.connection.settimeout(self.seconds)

    def _said(self) -> bytes:
        said, end = b"", time.monotonic() + self.seconds
        while len(said) < MOST_BYTES and not HEAD_ENDS.search(said):
            if (left := end - time.monotonic()) <= 0:
                return b""
            self.connection.settimeout(left)
            try:
                part = self.connection.recv(MOST_BYTES - len(said))
            except OSError:  # it is late, or it hung up
                return b""
            if not part:
                break
            said += part
        return said

    def do_GET(self) -> None:
        """Says how the worker is."""
        if self.path.partition("?")[0] != "/health":
            self._answer(HTTPStatus.NOT_FOUND, {"error": "ask for /health"})
            return
        health = self.asked.health
        body = {
            "working": health.working,
            "running": health.running,
            "done": health.done,
            "failed": health.failed,
            "swept_at": health.swept_at.isoformat() if health.swept_at else None,
        }
        self._answer(HTTPStatus.OK if health.working else HTTPStatus.SERVICE_UNAVAILABLE, body)

    do_HEAD = do_GET  # noqa: N815 - http.server looks for that name

    def log_message(self, *_: Any) -> None:
        """Probes are too many for the log."""

    def version_string(self) -> str:
        """Nothing of what runs here."""
        return "pgmem"

    def _answer(self, status: HTTPStatus, body: dict[str, Any]) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)
