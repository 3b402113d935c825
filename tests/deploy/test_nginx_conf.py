"""deploy/nginx.conf as text: well-formed, and in step with the gateway. test_nginx.py runs it."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
from pathlib import Path

import pytest
import uvicorn

from gateway.config import Config
from gateway.errors import REFUSALS
from gateway.http.api import follow
from gateway.http.server.protocol import HEADER_TIMEOUT_S
from tests.deploy.front import NGINX, localized
from tests.deploy.nginx_conf import Directive, faults, in_bytes, in_seconds, parse
from tests.deploy.shipped import DEPLOY

TEXT = (DEPLOY / "nginx.conf").read_text()
CONF = parse(TEXT)
HTTP = CONF.one("http")
SERVER = HTTP.one("server")
LOCATIONS = {" ".join(each.args): each for each in SERVER.all("location")}


def test_nginx_takes_the_file(tmp_path: Path) -> None:
    """Asked of nginx where it is installed, of a reader of its grammar in any case."""
    assert list(faults(CONF)) == []
    if NGINX is not None:
        conf = tmp_path / "nginx.conf"
        conf.write_text(localized(tmp_path, port=8443, gateways=(8017, 8018)))
        done = subprocess.run([NGINX, "-t", "-c", conf], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "[warn]" not in done.stderr


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("http { server { proxy_pass http://x; } }", "proxy_pass can't stand in server"),
        ("http { server { client_max_body_sizes 1m; } }", "client_max_body_sizes is not known"),
        ("http { location / { } }", "location {…} can't stand in http"),
        ("http { server { listen; } }", "listen can't have 0 arguments"),
    ],
)
def test_the_reader_sees_what_is_wrong(text: str, fault: str) -> None:
    assert list(faults(parse(text))) == [fault]


@pytest.mark.parametrize("text", ["http {", "http { } }", "listen 1", "; ", "http { listen 1 }"])
def test_the_reader_refuses_what_is_not_well_formed(text: str) -> None:
    with pytest.raises(ValueError, match=r"ends within|unexpected|without a name"):
        parse(text)


def test_its_limits_are_the_gateways() -> None:
    assert in_bytes(SERVER.value("client_max_body_size")) == Config.body_bytes_max
    assert in_bytes(LOCATIONS["= /_/bulk"].value("client_max_body_size")) == Config.bulk_bytes_max
    assert in_seconds(SERVER.value("client_body_timeout")) == Config.body_timeout_s
    assert in_seconds(SERVER.value("client_header_timeout")) == HEADER_TIMEOUT_S
    count, size = SERVER.one("large_client_header_buffers").args
    assert (int(count) > 1, in_bytes(size)) == (True, Config.header_bytes_max)


def test_it_closes_idle_connections_before_the_gateways_do() -> None:
    theirs = inspect.signature(uvicorn.Config).parameters["timeout_keep_alive"].default
    assert in_seconds(HTTP.one("upstream").value("keepalive_timeout")) < theirs
    assert SERVER.value("proxy_http_version") == "1.1"
    assert {each.args for each in SERVER.all("proxy_set_header")} >= {("Connection", "")}


def test_it_waits_longer_than_a_gateway_is_silent() -> None:
    longest = max(follow._HEARTBEAT_S, Config.append_deadline_s, Config.read_deadline_s)
    assert in_seconds(SERVER.value("proxy_read_timeout")) > 2 * longest


def test_paths_bodies_and_answers_pass_as_they_are() -> None:
    proxied = [each for each in LOCATIONS.values() if each.all("proxy_pass")]
    assert [each.value("proxy_pass") for each in proxied] == ["http://sluice"] * 2, (
        "a URI would rewrite the path"
    )
    assert SERVER.value("merge_slashes") == "off"
    assert SERVER.value("proxy_buffering") == SERVER.value("proxy_request_buffering") == "off"
    for each in proxied:
        assert not each.all("proxy_set_header"), "one would replace all of the server's"


def test_what_was_sent_is_never_sent_again() -> None:
    assert SERVER.one("proxy_next_upstream").args == ("error", "timeout")


def test_a_client_can_not_say_what_its_address_is() -> None:
    headers = dict(each.args for each in SERVER.all("proxy_set_header"))
    assert headers["X-Forwarded-For"] == "$remote_addr"
    assert headers["X-Forwarded-Host"] == ""


def answers(block: Directive) -> list[Directive]:
    return [*block.all("return"), *(each for inner in block.all("if") for each in answers(inner))]


def test_its_own_answers_are_refusals_as_the_gateways_give_them() -> None:
    found = [each for location in LOCATIONS.values() for each in answers(location)]
    assert len(found) == 8
    for status, body in (each.args for each in found):
        told = json.loads(body)
        assert (told["ok"], set(told)) == (False, {"ok", "code", "error"})
        assert int(status) == REFUSALS[told["code"]].status or (told["code"], status) in {
            ("bad_request", "408"),
            ("bad_request", "431"),
        }


def test_it_logs_neither_headers_nor_queries() -> None:
    line = "".join(HTTP.one("log_format").args)
    assert not re.search(r"\$(http_|args|query_string|request_uri|request\b|request_body|cookie_)", line)


def test_it_writes_only_to_tmp() -> None:
    paths = [CONF.value("pid"), *(HTTP.value(f"{kind}_temp_path") for kind in KINDS)]
    assert all(path.startswith("/tmp/nginx") for path in paths)
    assert not CONF.all("user")


KINDS = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
