"""A tenant that notices: reads of a small state and appends by turns, each timed, in a process of its own.

    python -m tests.neighbours.victim PORT KEY ADDRESS

Prints `ready` after the first answers; then works until its standard input ends, and prints what it measured
as one JSON document: `seconds`, of each request that was answered 200 or 201, and `refused`, a sentence for
each other one.
"""

from __future__ import annotations

import http.client
import json
import select
import sys
import time
from typing import Any
from uuid import uuid4

TIMEOUT_S = 60.0
PAUSE_S = 0.005
"""Between two requests: a victim that fills a core would measure itself."""
ROUNDS_EACH = 20
"""Over one connection: a gateway that takes no new ones is noticed too."""
EVENT = {"data": {"name": "n"}, "metadata": {"actor": {"type": "user", "id": str(uuid4())}}}


class Victim:
    def __init__(self, port: int, key: str, address: str) -> None:
        self._port, self._address = port, address
        self._headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        self._connection = self._connected()
        self._path = f"/order/{uuid4()}"
        self.seconds: list[float] = []
        self.refused: list[str] = []
        self._rounds = 0

    def _connected(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(
            "127.0.0.1", self._port, timeout=TIMEOUT_S, source_address=(self._address, 0)
        )

    def round(self) -> None:
        self._rounds += 1
        if self._rounds % ROUNDS_EACH == 0:
            self._connection.close()
        self._ask("POST", f"{self._path}/was_named", json.dumps(EVENT), 201)
        self._ask("GET", self._path, None, 200)

    def _ask(self, method: str, path: str, body: str | None, expected: int) -> None:
        began = time.monotonic()
        try:
            self._connection.request(method, path, body, self._headers)
            answer = self._connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as fault:
            self.refused.append(f"{method}: {fault!r} after {time.monotonic() - began:.1f} s")
            self._connection.close()
            self._connection = self._connected()
            return
        took = time.monotonic() - began
        if answer.status == expected:
            self.seconds.append(took)
        else:
            self.refused.append(f"{method}: {answer.status} {text[:120]!r} after {took:.1f} s")


def main() -> None:
    victim = Victim(int(sys.argv[1]), *sys.argv[2:])
    victim.round()
    assert not victim.refused, victim.refused
    print("ready", flush=True)
    victim.seconds.clear()
    while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
        victim.round()
    told: dict[str, Any] = {"seconds": victim.seconds, "refused": victim.refused}
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
