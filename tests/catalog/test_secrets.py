"""Secrets of the environment and of files: each is one tenant's."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.catalog.secrets import Secrets, prefix_of
from gateway.catalog.tenants import NAME_RULE

NAMES = st.from_regex(NAME_RULE, fullmatch=True) | st.from_regex("a[ab01_-]{0,5}", fullmatch=True)


class Watched(dict[str, str]):
    """An environment that knows what was looked for."""

    def __init__(self, *told: str, **more: str) -> None:
        super().__init__({name: f"of {name}" for name in told}, **more)
        self.asked: list[str] = []

    def __getitem__(self, name: str) -> str:
        self.asked.append(name)
        return super().__getitem__(name)


@given(one=NAMES, other=NAMES)
@example("a-b", "a_b")
@example("a", "a__b")
@example("a_", "a-")
@example("a_0", "a-")
@example("a-1", "a_1")
def test_no_variable_is_that_of_two_tenants(one: str, other: str) -> None:
    assert prefix_of(one).startswith(prefix_of(other)) is (one == other)


@pytest.mark.parametrize(
    ("tenant", "prefix"),
    [
        ("main", "SLUICE_SECRET_MAIN__"),
        ("acme_prod2", "SLUICE_SECRET_ACME_PROD2__"),
        ("acme-prod", "SLUICE_SECRET_ACME_0PROD__"),
        ("a__b_1_", "SLUICE_SECRET_A_1_B_11_1__"),
    ],
)
def test_a_tenants_name_is_spelled_as_a_variables(tenant: str, prefix: str) -> None:
    assert prefix_of(tenant) == prefix


def test_a_variable_of_another_tenant_is_not_there_and_not_looked_for() -> None:
    environ = Watched("SLUICE_SECRET_MAIN__A", "SLUICE_SECRET_THIRD__A", "SLUICE_SECRET_A", "PATH")
    main, third = Secrets(environ).of("main"), Secrets(environ).of("third")
    assert main["SLUICE_SECRET_MAIN__A"] == "of SLUICE_SECRET_MAIN__A"
    assert third["SLUICE_SECRET_THIRD__A"] == "of SLUICE_SECRET_THIRD__A"
    environ.asked.clear()
    for name in ("SLUICE_SECRET_MAIN__A", "SLUICE_SECRET_A", "SLUICE_SECRET_MAIN__NOT", "PATH"):
        assert third.get(name) is None
    assert main.get("SLUICE_SECRET_THIRD__A") is None
    assert environ.asked == []
    assert ([*third], len(main)) == (["SLUICE_SECRET_THIRD__A"], 2)


def test_what_names_no_tenant_is_that_of_the_one_that_a_setting_names() -> None:
    environ = {"SLUICE_SECRET_A": "a"}
    assert Secrets(environ).of("main").get("SLUICE_SECRET_A") == "a"
    secrets = Secrets({**environ, "SLUICE_SECRETS_TENANT": "third"})
    assert [secrets.of(name).get("SLUICE_SECRET_A") for name in ("main", "third")] == [None, "a"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("main/a", "third/a", "b"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f" {name}\n")
    return tmp_path


def test_a_file_is_that_of_the_tenant_whose_folder_it_lies_in(folder: Path) -> None:
    secrets = Secrets({"SLUICE_SECRETS_DIR": str(folder)})
    main, third = secrets.of("main"), secrets.of("third")
    assert (main["file:a"], third["file:a"], main["file:b"]) == ("main/a", "third/a", "b")
    for name in ("file:b", "file:main", "file:none"):
        assert third.get(name) is None
    assert main.get("file:third") is None
    assert Secrets({}).of("main").get("file:a") is None


def test_what_lies_beside_a_secret_of_the_gateway_itself_is_no_tenants(folder: Path) -> None:
    (folder / "redis_url").write_text("redis://:password@redis")
    (folder / "link").symlink_to(folder)
    for told in (folder / "redis_url", folder / "main" / ".." / "redis_url", folder / "link" / "redis_url"):
        environ = {"SLUICE_SECRETS_DIR": str(folder), "SLUICE_REDIS_URL_FILE": str(told)}
        main = Secrets(environ).of("main")
        assert [main.get(name) for name in ("file:redis_url", "file:b", "file:a")] == [None, None, "main/a"]
