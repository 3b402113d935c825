"""Names of libraries that are not public, or not promised, and that the gateway overrides or reads.

Each row is a place where an upgrade could remove a safeguard without an error. It then fails here, with a
sentence. What the seams are for is tested where it is used; docs/testing.md says what to do then.
"""

from __future__ import annotations

import importlib
import inspect
import re
import socket
import ssl
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import httpcore
import httptools
import pytest
import uvicorn
from redis.asyncio.connection import Connection, SSLConnection

from gateway.network import GuardedNetwork, RefusedAddress
from gateway.relay.targets.addresses import (
    DevelopmentConnection,
    DevelopmentTlsConnection,
    GuardedConnection,
    GuardedTlsConnection,
)
from gateway.relay.targets.redis_stream import RedisStreamTarget
from gateway.relay.targets.webhook import WebhookTarget
from spec.targets.redis_stream import RedisStream
from spec.targets.webhook import Webhook

HTTP, REDIS = "uvicorn.protocols.http.httptools_impl", "redis.asyncio.connection"
GUARD = "the guard of connections to targets is not called (gateway/relay/targets/addresses.py)"
ANSWERS = "answers of a Redis that is a target are not bounded (gateway/relay/targets/redis_stream.py)"
POOL = "scripts have no connection of their own (gateway/log/redis/servers.py)"
FRAMING = "checks of HTTP framing are not called (gateway/http/server/protocol.py)"
WRITING = "responses are not written in one piece (gateway/http/server/exchange.py)"
READING = "a client that sends much is read without a bound (gateway/http/server/connection.py)"
COMMIT = "a commit that times out keeps its connection (gateway/log/commit_connection.py)"
WARNING = "a commit without its synchronous standby counts as settled (gateway/log/commit_connection.py)"
KEYS = "event ids are not passed to Postgres (gateway/log/entries.py)"
OPERATIONS = "health and metrics have no port of their own (gateway/http/ops.py)"
SCRAPE = "metrics are not served in the format asked for (gateway/http/metrics.py)"
FAMILIES = "counts can't be collected (gateway/telemetry)"
HELP = "the commands are not listed (gateway/cli/app.py)"

# module, name, first parameters (None: not asked for), what breaks without it
SEAMS = [
    (REDIS, "Connection._connect", ["self"], GUARD),
    (REDIS, "Connection._connection_arguments", ["self"], GUARD),
    (REDIS, "SSLConnection._connection_arguments", ["self"], GUARD),
    ("redis._parsers", "_AsyncRESP2Parser._readline", ["self"], ANSWERS),
    ("redis._parsers", "_AsyncRESP2Parser._read", ["self", "length"], ANSWERS),
    (REDIS, "ConnectionPool.make_connection", ["self"], POOL),
    (REDIS, "AbstractConnection.send_packed_command", ["self", "command", "check_health"], POOL),
    (REDIS, "AbstractConnection.read_response", ["self"], POOL),
    (REDIS, "AbstractConnection.disconnect", ["self", "nowait"], POOL),
    ("uvicorn", "Server.capture_signals", ["self"], "signals do not end a process (gateway/serve.py)"),
    (HTTP, "HttpToolsProtocol.connection_made", ["self", "transport"], FRAMING),
    (HTTP, "HttpToolsProtocol.data_received", ["self", "data"], FRAMING),
    (HTTP, "HttpToolsProtocol.eof_received", ["self"], FRAMING),
    (HTTP, "HttpToolsProtocol.connection_lost", ["self", "exc"], FRAMING),
    (HTTP, "HttpToolsProtocol.pause_writing", ["self"], WRITING),
    (HTTP, "HttpToolsProtocol.resume_writing", ["self"], WRITING),
    (HTTP, "HttpToolsProtocol._start_asgi_task", ["self", "cycle", "app"], WRITING),
    (HTTP, "HttpToolsProtocol._should_upgrade", ["self"], FRAMING),
    (HTTP, "HttpToolsProtocol._unset_keepalive_if_required", ["self"], FRAMING),
    (HTTP, "HttpToolsProtocol.on_message_begin", ["self"], FRAMING),
    (HTTP, "HttpToolsProtocol.on_header", ["self", "name", "value"], FRAMING),
    (HTTP, "HttpToolsProtocol.on_headers_complete", ["self"], FRAMING),
    (HTTP, "HttpToolsProtocol.on_body", ["self", "body"], FRAMING),
    (HTTP, "HttpToolsProtocol.on_message_complete", ["self"], FRAMING),
    (HTTP, "HttpToolsProtocol.on_response_complete", ["self"], FRAMING),
    (HTTP, "HttpToolsProtocol.timeout_keep_alive_handler", ["self"], FRAMING),
    (HTTP, "RequestResponseCycle.run_asgi", ["self", "app"], WRITING),
    (HTTP, "RequestResponseCycle.receive", ["self"], READING),
    (HTTP, "RequestResponseCycle.send", ["self", "message"], WRITING),
    (HTTP, "STATUS_LINE", None, WRITING),
    ("uvicorn.protocols.http.flow_control", "FlowControl.pause_reading", ["self"], READING),
    ("uvicorn.protocols.http.flow_control", "FlowControl.resume_reading", ["self"], READING),
    ("httptools", "HttpParserUpgrade", None, FRAMING),
    ("httptools", "HttpParserCallbackError", None, FRAMING),
    ("httptools", "HttpRequestParser.set_dangerous_leniencies", None, FRAMING),
    ("asyncpg.pgproto.pgproto", "UUID", None, KEYS),
    ("asyncpg", "Connection.terminate", ["self"], COMMIT),
    ("asyncpg", "Connection.add_log_listener", ["self", "callback"], WARNING),
    ("asyncpg", "PostgresLogMessage", None, WARNING),
    ("starlette.routing", "Route.matches", ["self", "scope"], OPERATIONS),
    ("prometheus_client.exposition", "choose_encoder", ["accept_header"], SCRAPE),
    ("prometheus_client.metrics_core", "GaugeMetricFamily", None, FAMILIES),
    ("prometheus_client.metrics_core", "CounterMetricFamily", None, FAMILIES),
    ("prometheus_client.metrics_core", "HistogramMetricFamily", None, FAMILIES),
    ("prometheus_client.metrics_core", "Metric", None, FAMILIES),
    ("prometheus_client.registry", "Collector", None, FAMILIES),
    (
        "redis.crc",
        "key_slot",
        ["key"],
        "scripts go to the wrong node of a cluster (gateway/log/redis/cluster.py)",
    ),
    ("redis.crc", "REDIS_CLUSTER_HASH_SLOTS", None, "slots are not mapped (gateway/log/redis/cluster.py)"),
    ("typer.core", "TyperGroup.get_command", ["self", "ctx", "cmd_name"], HELP),
    ("typer.core", "TyperGroup.list_commands", ["self", "ctx"], HELP),
    ("typer.core", "TyperGroup.invoke", ["self", "ctx"], HELP),
    ("uvicorn._types", "HTTPScope", None, FRAMING),
    (
        "httpcore",
        "AsyncNetworkBackend.connect_tcp",
        ["self", "host", "port", "timeout", "local_address", "socket_options"],
        "webhooks are sent past the guard of their addresses (gateway/network.py)",
    ),
    ("httpx", "create_ssl_context", None, "certificates of targets are not verified (gateway/relay/targets)"),
]


@pytest.mark.parametrize(("module", "name", "parameters", "breaks"), SEAMS)
def test_a_library_has_the_name_that_the_gateway_uses(
    module: str, name: str, parameters: list[str] | None, breaks: str
) -> None:
    try:
        found = attrgetter(name)(importlib.import_module(module))
    except (AttributeError, ImportError) as fault:
        raise AssertionError(f"{module}.{name} is gone, so {breaks}") from fault
    if parameters is not None:
        taken = list(inspect.signature(found).parameters)
        assert taken[: len(parameters)] == parameters, f"{module}.{name} takes {taken} now, so {breaks}"


ATTRIBUTES = {
    "HttpToolsProtocol": {
        "access_log", "access_logger", "app", "app_state", "asgi_version", "client", "cycle", "flow",
        "headers", "logger", "loop", "parser", "pipeline", "root_path", "scheme", "server", "server_state",
        "tasks", "timeout_keep_alive", "timeout_keep_alive_task", "transport", "url",
    },
    "RequestResponseCycle": {
        "body", "chunked_encoding", "disconnected", "expected_content_length", "flow", "keep_alive",
        "message_event", "more_body", "on_response", "response_complete", "response_started",
        "scope", "transport",
    },
}  # fmt: skip
"""What the gateway's subclasses read and set of uvicorn's (gateway/http/server)."""


@pytest.mark.parametrize(("name", "attributes"), ATTRIBUTES.items())
def test_a_class_of_uvicorn_sets_the_attributes_that_the_gateway_reads(
    name: str, attributes: set[str]
) -> None:
    source = inspect.getsource(attrgetter(name)(importlib.import_module(HTTP)))
    assert attributes <= set(re.findall(r"self\.(\w+)\b.*? = ", source))


LENIENT = {
    "a length beside chunks": b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
    "a blank before the colon": b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
    "a line feed by itself": b"GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n",
    "a zero byte": b"GET / HTTP/1.1\r\nHost: a\x00b\r\n\r\n",
}


@pytest.mark.parametrize("request_head", LENIENT.values(), ids=LENIENT)
def test_the_parser_rejects_what_smuggles_requests(request_head: bytes) -> None:
    with pytest.raises(httptools.HttpParserError):
        httptools.HttpRequestParser(object()).feed_data(request_head)


def test_the_fault_of_a_callback_keeps_its_cause() -> None:
    class Callbacks:
        def on_header(self, name: bytes, value: bytes) -> None:
            raise LookupError

    with pytest.raises(httptools.HttpParserCallbackError) as raised:
        httptools.HttpRequestParser(Callbacks()).feed_data(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert isinstance(raised.value.__context__, LookupError), "faults of requests lose their status"


def test_a_server_keeps_the_signals_that_it_has_caught() -> None:
    assert uvicorn.Server(uvicorn.Config(lambda: None, log_config=None))._captured_signals == []


# -- the guard of connections that leave for a tenant's target


JUDGED, LATER = "93.184.216.34", "10.1.2.3"


class Reached(Exception):
    """Where a library was about to connect to."""


@pytest.fixture
def rebinding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each name is at a public address once, then at a private one; no connection is made."""
    answers = iter([JUDGED])

    def looked_up(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        at = next(answers, LATER)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (at, port))]

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)


async def where_a_stream_connects(monkeypatch: pytest.MonkeyPatch, connection: Connection) -> dict[str, Any]:
    """What redis-py hands to asyncio."""
    handed: dict[str, Any] = {}

    async def connecting(**arguments: Any) -> Any:
        handed.update(arguments)
        raise Reached

    with monkeypatch.context() as patched:
        patched.setattr("asyncio.open_connection", connecting)
        with pytest.raises(Reached):
            await connection._connect()
    return handed


PAIRS: list[tuple[type[Connection], dict[str, Any]]] = [
    (GuardedConnection, {}),
    (GuardedTlsConnection, {"server_hostname": "events.example.com"}),
]


async def guard_holds(
    monkeypatch: pytest.MonkeyPatch, connection: type[Connection], expected: dict[str, Any]
) -> None:
    handed = await where_a_stream_connects(monkeypatch, connection(host="events.example.com", port=6379))
    assert handed["host"] == JUDGED, "the connection is not pinned to the judged address"
    assert {name: handed[name] for name in expected} == expected, "the certificate is not asked of the name"
    assert isinstance(handed.get("ssl"), ssl.SSLContext) is (connection is GuardedTlsConnection)


@pytest.mark.usefixtures("rebinding")
@pytest.mark.parametrize(("connection", "expected"), PAIRS)
async def test_a_stream_is_connected_to_at_the_address_that_was_judged(
    monkeypatch: pytest.MonkeyPatch, connection: type[Connection], expected: dict[str, Any]
) -> None:
    await guard_holds(monkeypatch, connection, expected)
    with pytest.raises(RefusedAddress, match=r"10\.1\.2\.3"):
        await connection(host="events.example.com", port=6379)._connect()


@pytest.mark.usefixtures("rebinding")
@pytest.mark.parametrize(("connection", "expected"), PAIRS)
@pytest.mark.parametrize("gone", ["_connect", "_connection_arguments"])
async def test_a_guard_that_redis_py_no_longer_calls_is_noticed(
    monkeypatch: pytest.MonkeyPatch, connection: type[Connection], expected: dict[str, Any], gone: str
) -> None:
    """The test above, after a rename in the library."""
    for guarded in (GuardedConnection, GuardedTlsConnection):
        if gone in vars(guarded):
            monkeypatch.setattr(guarded, f"renamed{gone}", vars(guarded)[gone], raising=False)
            monkeypatch.delattr(guarded, gone)
    with pytest.raises((AssertionError, AttributeError)):
        await guard_holds(monkeypatch, connection, expected)


@pytest.mark.parametrize(
    ("url", "allow_private", "expected"),
    [
        ("rediss://events.example.com:6379/0", False, GuardedTlsConnection),
        ("rediss://events.example.com:6379/0", True, DevelopmentTlsConnection),
        ("redis://events.example.com:6379/0", False, GuardedConnection),
        ("redis://events.example.com:6379/0", True, DevelopmentConnection),
    ],
)
async def test_the_pool_of_a_stream_makes_guarded_connections(
    url: str, allow_private: bool, expected: type[Connection]
) -> None:
    target = RedisStreamTarget(RedisStream(url, "stream"), allow_private=allow_private)
    made = target._redis.connection_pool.make_connection()
    assert type(made) is expected
    assert made.allow_private is allow_private
    assert isinstance(made, SSLConnection) is url.startswith("rediss")
    await target.close()


async def test_the_connections_of_a_webhook_go_through_the_guard() -> None:
    target = WebhookTarget(Webhook("https://events.example.com/in", "whsec_AAAA"), {}, allow_private=False)
    assert isinstance(target._pool._network_backend, GuardedNetwork)
    await target.close()


class Network(httpcore.AsyncNetworkBackend):
    """Connects to nothing."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def connect_tcp(self, host: str, port: int, *_: Any, **__: Any) -> httpcore.AsyncNetworkStream:
        self.asked.append(host)
        raise httpcore.ConnectError


async def webhook_guard_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network()
    monkeypatch.setattr(httpcore, "AnyIOBackend", lambda: network)
    monkeypatch.setattr("httpcore._backends.auto.AutoBackend.connect_tcp", network.connect_tcp)
    target = WebhookTarget(Webhook("https://events.example.com/in", "whsec_AAAA"), {}, allow_private=False)
    with pytest.raises(httpcore.ConnectError):
        await target._pool.request("POST", "https://events.example.com/in")
    await target.close()
    assert network.asked == [JUDGED], "the connection is not pinned to the judged address"


@pytest.mark.usefixtures("rebinding")
async def test_a_webhook_is_connected_to_at_the_address_that_was_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await webhook_guard_holds(monkeypatch)


_Pool = httpcore.AsyncConnectionPool


def _pool_without_guard(**given: Any) -> httpcore.AsyncConnectionPool:
    return _Pool(**{**given, "network_backend": None})


async def _passes_the_name_on(guarded: GuardedNetwork, host: str, port: int, *more: Any, **named: Any) -> Any:
    return await guarded._network.connect_tcp(host, port, *more, **named)


GONE: list[tuple[str, Callable[..., Any]]] = [
    ("httpcore.AsyncConnectionPool", _pool_without_guard),
    ("gateway.network.GuardedNetwork.connect_tcp", _passes_the_name_on),
]


@pytest.mark.usefixtures("rebinding")
@pytest.mark.parametrize(("name", "without"), GONE)
async def test_a_guard_of_webhooks_that_httpcore_no_longer_calls_is_noticed(
    monkeypatch: pytest.MonkeyPatch, name: str, without: Callable[..., Any]
) -> None:
    monkeypatch.setattr(name, without)
    with pytest.raises(AssertionError, match="not pinned"):
        await webhook_guard_holds(monkeypatch)
