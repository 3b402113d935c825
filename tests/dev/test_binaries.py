"""Where server binaries come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.dev import binaries
from gateway.dev.binaries import find_postgres, find_redis
from gateway.dev.failure import CannotStart


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without any server; the folder is all of its PATH."""
    monkeypatch.setattr(binaries, "REDIS_WHEELS", ("no-such-wheel",))
    monkeypatch.setattr(binaries, "POSTGRES_WHEELS", ("no-such-wheel",))
    monkeypatch.setattr(binaries, "SYSTEM_FOLDERS", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def program(path: Path, says: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


def postgres(folder: Path, version: str, initdb: str | None = None) -> Path:
    program(folder / "initdb", f"initdb (PostgreSQL) {initdb or version} (Debian)")
    return program(folder / "postgres", f"postgres (PostgreSQL) {version} (Debian)")


def test_the_wheels_of_this_environment_come_first() -> None:
    assert "site-packages" in find_redis().parts
    found = find_postgres()
    assert "site-packages" in found.postgres.parts
    assert found.initdb.parent == found.postgres.parent


def test_without_any_redis_the_error_says_what_to_install(bare: Path) -> None:
    with pytest.raises(CannotStart, match=r"pip install no-such-wheel.*--redis URL"):
        find_redis()


def test_without_any_postgres_the_error_says_what_to_install(bare: Path) -> None:
    with pytest.raises(CannotStart, match=r"pip install no-such-wheel.*--postgres URL"):
        find_postgres()


@pytest.mark.parametrize("name", ["valkey-server", "redis-server"])
def test_a_redis_on_path_will_do(bare: Path, name: str) -> None:
    wanted = program(bare / name, "Some server v=8.1.0 sha=00000000:0 malloc=libc bits=64")
    assert find_redis() == wanted


def test_a_redis_that_goes_by_its_name_is_called_by_it(bare: Path) -> None:
    """Debian's `redis-server` is a link to its `redis-check-rdb`, which looks at what it was called by."""
    real = program(bare / "redis-check-rdb", "")
    real.write_text(
        """#!/bin/sh
case $0 in
*/redis-server) echo 'Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64' ;;
*) echo "Usage: $0 <rdb-file-name>" >&2 && exit 1 ;;
esac
"""
    )
    (bare / "redis-server").symlink_to(real)
    assert find_redis() == bare / "redis-server"


@pytest.mark.parametrize("says", ["Redis server v=6.2.14 sha=0", "nothing of the kind"])
def test_a_redis_that_is_too_old_or_none_is_passed_over(bare: Path, says: str) -> None:
    program(bare / "redis-server", says)
    with pytest.raises(CannotStart):
        find_redis()


def test_a_program_that_does_not_run_here_is_passed_over(bare: Path) -> None:
    (bare / "redis-server").write_bytes(b"\x7fELF of another machine")
    (bare / "redis-server").chmod(0o755)
    with pytest.raises(CannotStart):
        find_redis()


def test_a_postgres_is_followed_to_where_its_initdb_is(bare: Path) -> None:
    wanted = postgres(bare / "real", "17.2")
    (bare / "postgres").symlink_to(wanted)
    found = find_postgres()
    assert (found.postgres, found.version) == (wanted.resolve(), (17, 2))


def test_a_postgres_without_an_initdb_of_its_version_is_passed_over(bare: Path) -> None:
    program(bare / "postgres", "postgres (PostgreSQL) 17.2")
    with pytest.raises(CannotStart, match="side by side"):
        find_postgres()
    postgres(bare, "17.2", initdb="16.1")
    with pytest.raises(CannotStart):
        find_postgres()


def test_data_of_one_version_is_not_given_to_another(bare: Path) -> None:
    postgres(bare, "17.2")
    assert find_postgres(17).major == 17
    with pytest.raises(CannotStart, match="made by PostgreSQL 16, and only PostgreSQL 17"):
        find_postgres(16)
