"""A read model of Python's `eventsourcing`: a subscription, and a recorder whose rows and position are one
transaction for each event, as its ProjectionRunner has it. For projections.py, which says what it does.

Run by the Python of the peers' folder. Arguments: events, rows, events one at a time.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID, uuid4

from eventsourcing.persistence import StoredEvent, Tracking
from eventsourcing.postgres import (
    PostgresApplicationRecorder,
    PostgresDatastore,
    PostgresTrackingRecorder,
)

EVENTS, ROWS, SINGLY = map(int, sys.argv[1:])
PUT = (
    "INSERT INTO totals VALUES (%s, 1, %s) ON CONFLICT (key) DO UPDATE "
    "SET orders = totals.orders + 1, spent = totals.spent + excluded.spent"
)


class Totals(PostgresTrackingRecorder):
    def put(self, key: str, total: int, tracking: Tracking) -> None:
        with self.datastore.transaction(commit=True) as cursor:
            self._insert_tracking(cursor, tracking)
            cursor.execute(PUT, (key, total), prepare=True)


def datastore() -> PostgresDatastore:
    parts = urlsplit(os.environ["PEER_POSTGRES_URL"])
    return PostgresDatastore(
        dbname=parts.path[1:],
        host=parse_qs(parts.query)["host"][0],
        port="5432",
        user=parts.username or "",
        password="",
        pool_size=8,
    )


def stored(key: str, total: int, of: UUID, version: int) -> StoredEvent:
    state = {"customer_id": key, "total": total, "currency": "EUR"}
    return StoredEvent(of, version, "was_placed", json.dumps(state).encode())


def follow(recorder: PostgresApplicationRecorder, totals: Totals) -> None:
    with recorder.subscribe(gt=totals.max_tracking_id("orders")) as subscription:
        for notification in subscription:
            data = json.loads(notification.state)
            totals.put(data["customer_id"], data["total"], Tracking("orders", notification.id))


def first(totals: Totals, query: str, *args: Any) -> Any:
    with totals.datastore.transaction(commit=False) as cursor:
        cursor.execute(query, args)
        row = cursor.fetchone()
        return None if row is None else next(iter(row.values()))


def say(told: object) -> None:
    print(json.dumps(told), flush=True)


def measure() -> None:
    recorder, totals = PostgresApplicationRecorder(datastore()), Totals(datastore())
    recorder.create_table()
    totals.create_table()
    with totals.datastore.transaction(commit=True) as cursor:
        cursor.execute("CREATE TABLE totals (key text PRIMARY KEY, orders bigint, spent bigint)")
    for begin in range(0, EVENTS, 1000):
        of = uuid4()
        numbers = enumerate(range(begin, min(begin + 1000, EVENTS)), 1)
        keys = ((version, n, f"a0000000-0000-4000-a000-{n * 7919 % ROWS:012}") for version, n in numbers)
        recorder.insert_events([stored(key, n % 100, of, version) for version, n, key in keys])
    say("ready")
    sys.stdin.readline()
    began, cpu = time.perf_counter(), time.process_time()
    threading.Thread(target=follow, args=(recorder, totals), daemon=True).start()
    while (totals.max_tracking_id("orders") or 0) < EVENTS:
        time.sleep(0.1)
    say({"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu})
    waits = []
    for n in range(SINGLY):
        key = f"b0000000-0000-4000-a000-{n:012}"
        recorder.insert_events([stored(key, 1, uuid4(), 1)])
        answered = time.perf_counter()
        while first(totals, "SELECT 1 FROM totals WHERE key = %s", key) is None:
            time.sleep(0.001)
        waits.append(1000 * (time.perf_counter() - answered))
    say({"waits": waits})
    sys.stdout.flush()
    os._exit(0)  # the threads of its subscription go on


if __name__ == "__main__":
    measure()
