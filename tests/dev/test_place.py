"""Where the servers live. As root and as another user: what must hold differs, and both are tested."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.dev import place
from gateway.dev.binaries import PostgresBinaries, find_postgres
from gateway.dev.failure import CannotStart
from gateway.dev.place import postgres_place, socket_folder

AS_ROOT = os.geteuid() == 0


@pytest.fixture
def closed(folder: Path) -> Iterator[Path]:
    """A data folder that only its owner reaches."""
    above = folder / "closed"
    above.mkdir(mode=0o700)
    data = above / "data"
    data.mkdir(mode=0o755)
    yield data
    home = data / "postgres"
    if home.is_symlink():
        shutil.rmtree(home.readlink().parent)


def test_postgres_lives_in_the_data_folder_and_its_home_is_closed(folder: Path) -> None:
    found = postgres_place(folder, print)
    assert found.home == folder / "postgres"
    assert found.home.stat().st_mode & 0o777 == 0o700
    assert (found.account is not None) == AS_ROOT
    assert found.home.stat().st_uid == (found.account.uid if found.account else os.geteuid())
    assert found.home.stat().st_uid != 0


def test_where_its_account_can_not_pass_it_lives_under_a_system_folder_with_a_link(closed: Path) -> None:
    said: list[str] = []
    mode_before = closed.parent.stat().st_mode
    found = postgres_place(closed, said.append)
    assert closed.parent.stat().st_mode == mode_before
    if AS_ROOT:
        assert (closed / "postgres").readlink() == found.home
        assert any(parent in found.home.parents for parent in place.SYSTEM_FOLDERS)
        assert str(found.home) in said[0]
    else:
        assert (found.home, said) == (closed / "postgres", [])


def test_it_stays_where_it_was_put(closed: Path) -> None:
    said: list[str] = []
    first = postgres_place(closed, said.append)
    again: list[str] = []
    assert postgres_place(closed, again.append) == first
    assert again == said


def test_a_link_to_a_home_that_is_gone_is_said(folder: Path) -> None:
    (folder / "postgres").symlink_to(folder / "elsewhere")
    with pytest.raises(CannotStart, match="is gone"):
        postgres_place(folder, print)


def test_data_out_of_reach_is_not_abandoned(closed: Path) -> None:
    (closed / "postgres").mkdir()
    (closed / "postgres/precious").touch()
    if AS_ROOT:
        with pytest.raises(CannotStart, match=r"can't reach .* any more"):
            postgres_place(closed, print)
    else:
        assert postgres_place(closed, print).home == closed / "postgres"


def test_binaries_out_of_reach_are_copied(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "closed").mkdir(mode=0o700)
    bin_folder = folder / "closed/bin"
    hidden = replace(find_postgres(), postgres=bin_folder / "postgres", initdb=bin_folder / "initdb")
    monkeypatch.setattr(place, "find_postgres", lambda _major: hidden)
    found = postgres_place(folder, print)
    if AS_ROOT:
        assert folder in found.binaries.postgres.parents
        assert postgres_place(folder, print) == found
    else:
        assert found.binaries == hidden


def test_a_system_installation_out_of_reach_is_not_copied(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "closed").mkdir(mode=0o700)
    hidden = PostgresBinaries(folder / "closed/postgres", folder / "closed/initdb", (18, 1))
    monkeypatch.setattr(place, "find_postgres", lambda _major: hidden)
    if AS_ROOT:
        with pytest.raises(CannotStart, match="install PostgreSQL where every account can reach it"):
            postgres_place(folder, print)
    else:
        assert postgres_place(folder, print).binaries == hidden


def test_a_short_folder_holds_the_socket_itself(folder: Path) -> None:
    assert socket_folder(folder, None, "redis.sock") == folder


@pytest.mark.parametrize("name", ["a" * 100, "with a blank", "ü", "comma,comma"])
def test_a_path_that_is_too_long_or_needs_quotes_gets_a_private_short_one(folder: Path, name: str) -> None:
    short = socket_folder(folder / name, None, "redis.sock")
    try:
        assert short.stat().st_mode & 0o777 == 0o700
        assert socket_folder(folder / name, None, "redis.sock") == short
        assert socket_folder(folder / f"{name}-other", None, "redis.sock") != short
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(short / "redis.sock"))
    finally:
        shutil.rmtree(short)
        socket_folder(folder / f"{name}-other", None, "redis.sock").rmdir()


def test_a_short_folder_that_others_can_enter_is_refused(folder: Path) -> None:
    short = socket_folder(folder / ("a" * 100), None, "redis.sock")
    short.chmod(0o777)
    try:
        with pytest.raises(CannotStart, match="is open to other users"):
            socket_folder(folder / ("a" * 100), None, "redis.sock")
    finally:
        short.rmdir()
