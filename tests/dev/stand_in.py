"""A gateway's stand-in: listens where it is told, says that it is ready, stops in order.

STAND_IN_FAIL: ends at once with that status. STAND_IN_FAILS_BY: the same, with 1, while that file is there.
STAND_IN_STUBBORN: disregards SIGTERM. STAND_IN_STOPPED: a file where it writes at its end which of its
servers are still there.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType
from urllib.parse import parse_qs, unquote, urlsplit

SPEC = {
    "aggregate_types": {"order": {"events": {"was_placed": {"schema": {"type": "object"}}}}},
    "agent_types": ["user"],
}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        answers = {"/_/health/ready": {"ok": True}, "/_/spec": {"ok": True, "spec": SPEC}}
        body = json.dumps(answers.get(self.path) or {"pid": os.getpid(), "env": dict(os.environ)}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        return


class Server(ThreadingHTTPServer):
    def server_bind(self) -> None:
        self.socket.close()
        self.socket = socket.socket(fileno=int(os.environ["SLUICE_LISTEN_FD"]))
        self.server_address = self.socket.getsockname()


def servers_alive() -> list[str]:
    redis = unquote(urlsplit(os.environ["SLUICE_REDIS_URL"]).path)
    folder = parse_qs(urlsplit(os.environ["SLUICE_POSTGRES_URL"]).query)["host"][0]
    found = []
    for name, path in (("redis", redis), ("postgres", f"{folder}/.s.PGSQL.5432")):
        with socket.socket(socket.AF_UNIX) as connection:
            if connection.connect_ex(path) == 0:
                found.append(name)
    return found


def stop(_number: int, _frame: FrameType | None) -> None:
    if "STAND_IN_STUBBORN" in os.environ:
        os.write(2, b"the stand-in disregards it\n")
        return
    if "STAND_IN_STOPPED" in os.environ:
        time.sleep(0.2)  # an answer that takes its time
        Path(os.environ["STAND_IN_STOPPED"]).write_text(" ".join(servers_alive()))
    os._exit(0)


if __name__ == "__main__":
    if Path(os.environ.get("STAND_IN_FAILS_BY") or "no such file").exists():
        sys.exit(1)
    if "STAND_IN_FAIL" in os.environ:
        print("the stand-in was told to fail", file=sys.stderr)
        sys.exit(int(os.environ["STAND_IN_FAIL"]))
    signal.signal(signal.SIGTERM, stop)
    server = Server(("", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while True:
        signal.pause()
