"""deploy/Containerfile: what is built of, what runs, and that what it copies is there."""

from __future__ import annotations

import fnmatch
import json
import re
import tomllib
from typing import NamedTuple

from gateway.config import SETTINGS, Config
from tests.deploy.shipped import DEPLOY, ROOT


class Instruction(NamedTuple):
    name: str
    rest: str


def instructions() -> list[Instruction]:
    text = re.sub(r"(?m)^#.*\n", "", (DEPLOY / "Containerfile").read_text())
    lines = text.replace("\\\n", " ").splitlines()
    return [Instruction(*line.split(None, 1)) for line in lines if line.strip()]


ALL = instructions()
LAST_FROM = max(n for n, each in enumerate(ALL) if each.name == "FROM")
BUILD, FINAL = ALL[:LAST_FROM], ALL[LAST_FROM:]


def rest(name: str, stage: list[Instruction] = FINAL) -> list[str]:
    return [each.rest for each in stage if each.name == name]


def test_both_stages_are_of_one_pinned_python_that_the_project_works_with() -> None:
    images = {each.split()[0] for each in rest("FROM", ALL)}
    (image,) = images
    found = re.fullmatch(r"docker\.io/library/python:(\d+)\.(\d+)\.\d+-slim-\w+", image)
    assert found
    requires = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert requires == ">=3.11"
    assert (3, 11) <= (int(found[1]), int(found[2])) <= (3, 13)


def test_only_what_is_locked_is_installed_by_its_digests() -> None:
    first, second = [each for each in rest("RUN", BUILD) if "pip install" in each]
    assert "--no-deps --require-hashes" in first
    assert first.endswith("--requirement deploy/requirements.lock")
    assert "--no-deps --no-build-isolation ." in second, "nothing is fetched to build the project"
    assert "setuptools==" in (DEPLOY / "requirements.lock").read_text()


def test_it_runs_serve_without_root_on_the_port_of_the_settings() -> None:
    (user,) = rest("USER")
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", user)
    assert [json.loads(each) for each in rest("ENTRYPOINT") + rest("CMD")] == [["sluice"], ["serve"]]
    assert rest("EXPOSE") == [str(Config.port)]
    assert [each.name for each in FINAL].index("USER") > [each.name for each in FINAL].index("COPY")


def test_the_final_stage_takes_nothing_but_the_environment_that_was_built() -> None:
    assert rest("COPY") == ["--from=build /opt/sluice /opt/sluice"]
    assert rest("RUN") == []
    assert not {each.name for each in ALL} & {"ADD", "ARG", "VOLUME"}


def test_what_it_sets_are_settings() -> None:
    named = {name for each in rest("ENV") for name in re.findall(r"(SLUICE_\w+)=", each)}
    assert named <= {row.name for row in SETTINGS}
    assert "SLUICE_HOST" in named, "loopback would be the container's own"


def test_what_it_copies_is_there_and_let_through() -> None:
    ignored = (DEPLOY / "Containerfile.dockerignore").read_text().splitlines()
    let_through = [line[1:] for line in ignored if line.startswith("!")]
    assert "*" in ignored
    for each in rest("COPY", BUILD):
        *sources, _ = each.split()
        for source in sources:
            assert (ROOT / source).exists(), source
            assert any(fnmatch.fnmatch(source, pattern) for pattern in let_through), source


def test_all_that_the_packages_need_is_copied() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    copied = {source for each in rest("COPY", BUILD) for source in each.split()[:-1]}
    for pattern in project["tool"]["setuptools"]["packages"]["find"]["include"]:
        assert pattern.removesuffix("*") in copied
    assert {project["project"]["readme"], *project["project"]["license-files"]} <= copied
