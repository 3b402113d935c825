from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gateway import __version__
from tests.cli.command import Sluice
from tests.support.servers import Servers

NOWHERE = "postgresql://sluice:s3cret@127.0.0.1:9/events"


@pytest.fixture
def unset() -> Sluice:
    """Each a start from nothing, as a person's is."""
    return Sluice(fresh=True)


def test_help_names_every_command(unset: Sluice) -> None:
    ran = unset("--help")
    assert ran.code == 0
    for command in ("dev", "serve", "migrate", "show", "events", "tail", "append", "find", "spec", "keys"):
        assert f" {command} " in ran.out


def test_lists_of_commands_wrap_for_the_terminal(unset: Sluice) -> None:
    ran = unset("ids", "--help")
    assert "outside Sluice: no aggregate has such a key." in ran.out


@pytest.mark.parametrize("command", ["dev", "serve", "migrate", "spec deploy", "keys create", "tenants list"])
def test_each_command_explains_itself(unset: Sluice, command: str) -> None:
    ran = unset(*command.split(), "--help")
    assert ran.code == 0
    assert f"Usage: sluice {command}" in ran.out


def test_version_is_that_of_the_distribution(unset: Sluice) -> None:
    ran = unset("--version")
    assert (ran.code, ran.out) == (0, f"sluice {__version__}\n")


def test_the_installed_command_is_the_module() -> None:
    command = Path(sys.executable).with_name("sluice")
    ran = subprocess.run([command, "keys", "--help"], capture_output=True, check=True)
    assert b"Usage: sluice keys" in ran.stdout


@pytest.mark.parametrize(
    "words",
    [
        ["nonsense"],
        ["keys", "create"],
        ["keys", "create", "--tenant", "a", "--scope", "root"],
        ["spec", "check"],
    ],
)
def test_wrong_usage_exits_2_and_says_so_on_stderr(unset: Sluice, words: list[str]) -> None:
    ran = unset(*words)
    assert (ran.code, ran.out) == (2, "")
    assert "Usage: sluice" in ran.err


@pytest.mark.parametrize(
    ("words", "proposed"),
    [("sluice tai", {"tail"}), ("sluice spec de", {"deploy"}), ("sluice dev --po", {"--port", "--postgres"})],
)
def test_a_shell_completes_commands_and_options(unset: Sluice, words: str, proposed: set[str]) -> None:
    count = len(words.split()) - 1
    ran = unset(_SLUICE_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(count))
    assert set(ran.out.split()) == proposed


def test_help_starts_without_what_only_running_needs() -> None:
    ran = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "gateway", "keys", "--help"],
        capture_output=True,
        check=True,
    )
    for heavy in (b"asyncpg", b"httpx", b"jsonschema_rs", b"redis", b"starlette", b"uvicorn"):
        assert b" " + heavy + b"\n" not in ran.stderr


def test_a_gateway_starts_without_what_only_commands_and_calls_to_the_outside_need() -> None:
    unused = ("typer", "pydantic", "rich", "httpx")
    script = (
        "import sys; from gateway.cli import main; sys.argv = ['sluice', 'serve']\n"
        "import gateway.serve\n"
        "try: main()\n"
        f"finally: print([name for name in {unused} if name in sys.modules], flush=True)"
    )
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        environ = {
            "SLUICE_HOST": "127.0.0.1",
            "SLUICE_PORT": str(taken.getsockname()[1]),
            "SLUICE_REDIS_URL": "redis://127.0.0.1:1",
            "SLUICE_POSTGRES_URL": "postgresql://127.0.0.1:1/none",
        }
        ran = subprocess.run(
            [sys.executable, "-c", script], env=environ, capture_output=True, text=True, check=False
        )
    assert (ran.returncode, ran.stdout) == (1, "[]\n"), ran.stderr
    assert "can't listen on" in ran.stderr


@pytest.mark.parametrize("words", [["--version"], ["keys", "--help"], ["ids", "humane"], ["keys"]])
def test_an_output_that_can_not_be_written_is_a_sentence(words: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "gateway", *words], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert ran.returncode == 1
    assert ran.stderr.startswith(b"sluice: the output can't be written: No space left on device")
    assert ran.stderr.count(b"\n") == 1


def test_a_stream_that_is_missing_is_the_null_device(tmp_path: Path) -> None:
    (tmp_path / "spec").write_text("{}")
    for words, closed, code in (
        ("ids humane", ">&-", 0),
        ("ids humane", "2>&-", 0),
        ("spec check -", "<&-", 1),
        (f"spec check {tmp_path}/spec", ">&- 2>&-", 1),
    ):
        script = f'"$0" -m gateway {words} {closed}'
        ran = subprocess.run(["/bin/sh", "-c", script, sys.executable], capture_output=True, check=False)
        assert ran.returncode == code, (words, closed, ran)
        assert b"Traceback" not in ran.stderr


@pytest.mark.parametrize("command", ["names list", "keys list", "audit", "spec check -"])
def test_a_reader_that_goes_ends_a_command_without_a_word(
    sluice: Sluice, postgres_url: str, servers: Servers, command: str
) -> None:
    sluice("tenants", "create", "main")
    environ = {**os.environ, "SLUICE_POSTGRES_URL": postgres_url, "SLUICE_REDIS_URL": servers.redis_url}
    ran = subprocess.run(
        ["/bin/sh", "-c", f'echo "{{}}" | "$0" -m gateway {command} | :', sys.executable],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.stdout, ran.stderr) == ("", "")


def test_serve_reports_all_faults_of_the_settings_at_once(unset: Sluice) -> None:
    ran = unset("serve", SLUICE_PORT="x", SLUICE_PARTITION="3")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines() == [
        "SLUICE_PARTITION is not a setting: did you mean SLUICE_PARTITIONS?",
        "SLUICE_REDIS_URL (or SLUICE_REDIS_URL_FILE) is not set: "
        "redis://… or rediss://… or redis+cluster://… or rediss+cluster://… or unix://…, its password "
        "percent-encoded.",
        "SLUICE_POSTGRES_URL (or SLUICE_POSTGRES_URL_FILE) is not set: "
        "postgresql://… or postgres://…, its password percent-encoded.",
        "SLUICE_PORT must be an integer from 0 to 65535, not 'x'.",
    ]


def test_serve_says_first_where_it_can_not_listen(unset: Sluice) -> None:
    urls = {"SLUICE_REDIS_URL": "redis://127.0.0.1:9", "SLUICE_POSTGRES_URL": NOWHERE}
    handed = unset("serve", **urls, SLUICE_LISTEN_FD="77")
    assert (handed.code, handed.out) == (1, "")
    assert handed.err == "sluice serve: SLUICE_LISTEN_FD 77 is not an open socket: Bad file descriptor\n"
    several = unset("serve", "--workers", "2", **urls, SLUICE_LISTEN_FD="77")
    assert (several.code, several.out) == (2, "")
    assert several.err.startswith("SLUICE_LISTEN_FD is one socket, and each of SLUICE_WORKERS opens its own")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        own = unset("serve", **urls, SLUICE_PORT=str(port))
    assert own.err == f"sluice serve: can't listen on 127.0.0.1:{port}: Address already in use\n"


def test_migrate_prepares_once_and_then_has_nothing_to_do(unset: Sluice, empty_postgres_url: str) -> None:
    first = unset("migrate", SLUICE_POSTGRES_URL=empty_postgres_url, SLUICE_PARTITIONS="3")
    assert first.code == 0
    assert "applied 0001_log\napplied 0002_catalog\n" in first.out
    again = unset("migrate", "--postgres", empty_postgres_url, SLUICE_PARTITIONS="3")
    assert (again.code, again.out) == (0, "nothing to apply: the database is at this release's version\n")
    other = unset("migrate", "--postgres", empty_postgres_url)
    assert (other.code, other.out) == (1, "")
    assert "prepared for 3 partitions, not 16" in other.err


def test_a_command_on_an_unprepared_database_says_what_to_run(unset: Sluice, empty_postgres_url: str) -> None:
    ran = unset("tenants", "list", "--postgres", empty_postgres_url)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "the database is not prepared for this release: run `sluice migrate`\n"


def test_a_command_without_a_database_is_wrong_usage(unset: Sluice) -> None:
    ran = unset("tenants", "list")
    assert ran.code == 2
    assert ran.err.startswith("SLUICE_POSTGRES_URL (or SLUICE_POSTGRES_URL_FILE) is not set")


@pytest.mark.parametrize("words", [["migrate"], ["keys", "list"]])
def test_a_postgres_that_is_not_there_is_a_sentence_without_the_password(
    unset: Sluice, words: list[str]
) -> None:
    ran = unset(*words, SLUICE_POSTGRES_URL=NOWHERE)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("Postgres at postgresql://sluice:***@127.0.0.1:9/events can't be used: ")
    assert "s3cret" not in ran.err


@pytest.mark.parametrize("command", ["migrate", "keys list"])
def test_a_port_that_can_not_be_is_a_sentence(unset: Sluice, command: str) -> None:
    ran = unset(*command.split(), SLUICE_POSTGRES_URL=NOWHERE.replace(":9/", ":99999/"))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "SLUICE_POSTGRES_URL has a port that is not a number from 1 to 65535.\n"


def test_what_postgres_refuses_is_a_sentence(unset: Sluice, postgres_url: str) -> None:
    read_only = f"{postgres_url}&default_transaction_read_only=on"
    ran = unset("tenants", "create", "acme", "--postgres", read_only)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "Postgres refused: cannot execute UPDATE in a read-only transaction\n"
    ran = unset("migrate", "--postgres", read_only)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("the database can't be prepared: cannot execute ")


def test_the_url_may_stand_in_a_file(unset: Sluice, postgres_url: str, tmp_path: Path) -> None:
    path = tmp_path / "postgres_url"
    path.write_text(postgres_url + os.linesep)
    assert unset("tenants", "list", "--json", SLUICE_POSTGRES_URL_FILE=str(path)).json == []


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("keys", "create", "--scope", "root"), "'root' is not one of 'read', 'write', 'admin', 'operator'."),
        (("dev", "--port", "99999"), "it must be less than or equal to 65535."),
        (("dev", "--port", "x"), "it must be a whole number."),
        (("ids", "humane", "--count", "0"), "it must be greater than or equal to 1."),
    ],
)
def test_what_an_option_does_not_take_is_said_in_plain_words(
    unset: Sluice, words: tuple[str, ...], why: str
) -> None:
    ran = unset(*words)
    told = " ".join(ran.err.replace("\u2502", " ").split())
    assert (ran.code, ran.out) == (2, "")
    assert why in told
    assert "Value error" not in told and "Input should" not in told


def test_beside_an_instance_for_development_a_missing_setting_is_told_with_where_it_is(
    unset: Sluice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert ".sluice" not in unset("keys", "list").err
    (tmp_path / ".sluice/run").mkdir(parents=True)
    (tmp_path / ".sluice/run/env").write_text("SLUICE_POSTGRES_URL=postgresql://x\n")
    told = unset("keys", "list")
    assert told.code == 2
    assert "SLUICE_POSTGRES_URL" in told.err
    assert "`. .sluice/run/env`" in told.err
    for wrong in (unset("keys", "list", SLUICE_POSTGRES_URL="x"), unset("keys", "list", "--postgres", "x")):
        assert (wrong.code, ".sluice" in wrong.err) == (2, False)
