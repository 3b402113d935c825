"""Requests of one kind to a server of the stand, with the tenant's key, for as long as was asked for."""

from __future__ import annotations

import http.client
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tests.bench.load import Traffic, drive
from tests.bench.measured import Measured
from tests.bench.stand import Served, Stand
from tests.bench.suite import Options

FILL_TIMEOUT_S = 30.0


async def post(
    options: Options,
    connections: int,
    stand: Stand,
    served: Served,
    paths: Sequence[str],
    body: str,
    headers: Mapping[str, str] | None = None,
    units: int = 1,
    expected: int = 201,
    per_s: float | None = None,
) -> Measured:
    """`headers` in place of the usual ones; at a rate of `per_s`, else as fast as they are answered."""
    traffic = replace(
        _traffic(options, connections, stand, served, paths, (expected,)),
        method="POST",
        body=body,
        units=units,
        per_s=per_s,
    )
    if headers is not None:
        traffic = replace(traffic, headers=dict(headers))
    return await drive(traffic, served.cpu)


async def get(
    options: Options,
    connections: int,
    stand: Stand,
    served: Served,
    paths: Sequence[str],
    first_pass: bool = True,
) -> Measured:
    traffic = _traffic(options, connections, stand, served, paths, (200,))
    return await drive(replace(traffic, first_pass=first_pass), served.cpu)


async def post_and_get(
    options: Options,
    connections: int,
    stand: Stand,
    served: Served,
    paths: Sequence[str],
    body: str,
    get_paths: Sequence[str],
    gets: float,
) -> Measured:
    """`gets` of all requests are reads."""
    traffic = replace(
        _traffic(options, connections, stand, served, paths, (200, 201)),
        method="POST",
        body=body,
        gets=gets,
        get_paths=list(get_paths),
    )
    return await drive(traffic, served.cpu)


def _traffic(
    options: Options,
    connections: int,
    stand: Stand,
    served: Served,
    paths: Sequence[str],
    expected: tuple[int, ...],
) -> Traffic:
    return Traffic(
        host=served.host,
        port=served.port,
        connections=connections,
        seconds=options.seconds,
        warm_up_s=options.warm_up_s,
        paths=list(paths),
        expected=expected,
        headers=usual_headers(stand.key),
    )


def usual_headers(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}


def deploy(served: Served, key: str, spec: bytes) -> None:
    """In place of the spec that the stand begins with. Raises urllib.error.HTTPError where it is refused."""
    request = urllib.request.Request(
        f"http://{served.host}:{served.port}/_/spec?force=true", spec, usual_headers(key), method="PUT"
    )
    with urllib.request.urlopen(request, timeout=FILL_TIMEOUT_S):
        pass


def fill(
    served: Served, key: str, paths: Sequence[str], body: str, more: Mapping[str, str] | None = None
) -> None:
    """The same to all of them, once, with `more` headers. Raises RuntimeError when an append is refused."""
    headers = {**usual_headers(key), **(more or {})}
    connection = http.client.HTTPConnection(served.host, served.port, timeout=FILL_TIMEOUT_S)
    for path in paths:
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        told = answer.read()
        if answer.status != 201:
            raise RuntimeError(f"what is to be read can't be appended: {answer.status} {told.decode()}")
    connection.close()
