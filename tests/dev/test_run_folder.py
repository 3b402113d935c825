"""What `DIR/run` says, and who may read it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.dev.failure import CannotStart
from gateway.dev.run_folder import held

SHOW = "import os, sys; sys.stdout.buffer.write(os.environb[b'VALUE'])"


def test_the_data_folder_is_made_and_lets_others_pass_while_run_is_closed(tmp_path: Path) -> None:
    with held(tmp_path / "new/data") as run:
        assert stat.S_IMODE(run.data.stat().st_mode) == 0o711
        assert stat.S_IMODE(run.path.stat().st_mode) == 0o700


def test_a_folder_that_was_there_keeps_its_permissions(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    with held(data):
        assert stat.S_IMODE(data.stat().st_mode) == 0o700


def test_a_second_one_in_the_same_folder_is_refused_and_told_by_whom(tmp_path: Path) -> None:
    with held(tmp_path) as run:
        run.write_pids("dev", [4711])
        with pytest.raises(CannotStart, match=r"in use by another `sluice dev` \(pid 4711\)"), held(tmp_path):
            raise AssertionError("both hold it")
    with held(tmp_path):
        pass


def test_secrets_are_for_only_their_owner(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        with held(tmp_path) as run:
            run.write_key("secret")
            run.write_env({"A": "b"})
            run.write_pids("redis", [1])
            assert {stat.S_IMODE(file.stat().st_mode) for file in run.path.iterdir()} == {0o600}
            assert run.key() == "secret"
    finally:
        os.umask(old)


def test_pids_are_one_a_line_and_no_file_when_there_is_none(tmp_path: Path) -> None:
    with held(tmp_path) as run:
        assert run.key() is None
        run.write_pids("gateway", [12, 13])
        assert (run.path / "gateway.pid").read_text() == "12\n13\n"
        run.clear_pids()
        assert not (run.path / "gateway.pid").exists()


@settings(max_examples=30, deadline=None)
@given(value=st.text(st.characters(exclude_characters="\0\n", exclude_categories=["Cs"])))
def test_a_shell_reads_every_value_back(tmp_path_factory: pytest.TempPathFactory, value: str) -> None:
    with held(tmp_path_factory.mktemp("run")) as run:
        run.write_env({"VALUE": value, "LAST": "1"})
        script = f'. "{run.path}/env"; exec "{sys.executable}" -c "$0"'
        read = subprocess.run(["/bin/sh", "-c", script, SHOW], stdout=subprocess.PIPE, check=True)
    assert read.stdout == value.encode()


@pytest.mark.parametrize(
    "url",
    ["unix:///home/me/.sluice/run/redis.sock", "postgresql://sluice@/sluice?host=/home/me/.sluice/postgres"],
)
def test_our_own_urls_stand_there_without_quotes(tmp_path: Path, url: str) -> None:
    with held(tmp_path) as run:
        run.write_env({"URL": url})
        assert (run.path / "env").read_text() == f"URL={url}\nexport URL={url}\n"


def test_what_is_no_setting_of_a_gateway_is_only_exported(tmp_path: Path) -> None:
    with held(tmp_path) as run:
        run.write_env({"A": "b"}, {"SLUICE_URL": "http://127.0.0.1:8017"})
        lines = (run.path / "env").read_text().splitlines()
    assert lines == ["A=b", "export A=b", "export SLUICE_URL=http://127.0.0.1:8017"]
