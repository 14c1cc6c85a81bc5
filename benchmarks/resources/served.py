"""A model behind a real HTTP server on the loopback address: slow, failing, rounding, limiting, or gone."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np


@dataclass
class Served:
    """A server and what it was asked; change its fields while it runs.

    Every `failing`-th call gets status 503. More than `per_second` calls in one second get status 429 and are told to
    wait. `decimals` rounds the answers. Once `stop_after` rows were answered, calls wait until it is None again, and
    fail.
    """

    model: Callable[[np.ndarray], np.ndarray]
    latency: float = 0.0
    failing: int = 0
    decimals: int | None = None
    per_second: int | None = None
    stop_after: int | None = None
    retry_after: str = "1"
    status: int = 200
    form: tuple[str, str] = ("inputs", "outputs")
    rows: list[bytes] = field(default_factory=list)
    calls: int = 0
    limited: int = 0
    early: int = 0  # calls within a pause that was asked for
    headers: list[dict[str, str]] = field(default_factory=list)
    url: str = ""

    def __post_init__(self) -> None:
        self._times: list[float] = []
        self._lock, self._until = threading.Lock(), 0.0

    def answer(self, body: dict[str, Any], headers: dict[str, str]) -> tuple[int, dict[str, str], Any]:
        time.sleep(self.latency)
        if self.stop_after is not None and len(self.rows) >= self.stop_after:
            while self.stop_after is not None:
                time.sleep(0.01)
            return 503, {}, {"error": "stopped"}
        with self._lock:
            self.calls += 1
            self.headers.append(headers)
            now = time.monotonic()
            self.early += now < self._until
            self._times = [moment for moment in self._times if moment > now - 1.0]
            if self.per_second is not None and len(self._times) >= self.per_second:
                self.limited, self._until = self.limited + 1, now + 0.9 * float(self.retry_after)
                return 429, {"Retry-After": self.retry_after}, {"error": "slow down"}
            self._times.append(now)
            if self.failing and self.calls % self.failing == 0:
                return 503, {}, {"error": "try again"}
            if self.status != 200:
                return self.status, {}, {"error": "no"}
            X = np.array(body[self.form[0]], dtype=float)
            self.rows += [row.tobytes() for row in np.atleast_2d(X)]
        Y = np.asarray(self.model(X))
        return 200, {}, {self.form[1]: (Y if self.decimals is None else np.round(Y, self.decimals)).tolist()}


@contextmanager
def serve(model: Callable[[np.ndarray], np.ndarray], **settings: Any) -> Iterator[Served]:
    """Serve the model at `url` until the context ends."""
    served = Served(model, **settings)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, headers, answer = served.answer(body, dict(self.headers))
            text = json.dumps(answer).encode()
            self.send_response(status)
            for name, value in (headers | {"Content-Length": str(len(text))}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    served.url = f"http://127.0.0.1:{server.server_address[1]}/predict"
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
