"""The distribution's name: `sluice` on the package index is another project's."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
SUFFIXES = {".py", ".md", ".toml", ".sh", ".yaml", ".example", ".conf"}
FOLDERS = ("docs", "gateway", "spec", "deploy")
OURS_AS_ANOTHERS = re.compile(
    r"\bsluice\[|\b(?:pip |uv )?(?:install|add) ['\"]?sluice(?![-\w])", re.IGNORECASE
)


def test_the_distribution_is_named_as_on_the_package_index() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == "sluice-gateway"
    assert project["scripts"] == {"sluice": "gateway.__main__:main"}


def test_no_page_or_message_has_anyone_install_another_project() -> None:
    assert OURS_AS_ANOTHERS.search("pip install sluice") and OURS_AS_ANOTHERS.search("'sluice[otel]'")
    assert not OURS_AS_ANOTHERS.search("pip install 'sluice-gateway[otel]'")
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md"]
    for folder in FOLDERS:
        pages += [path for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES]
    wrong = [str(path.relative_to(ROOT)) for path in pages if OURS_AS_ANOTHERS.search(path.read_text())]
    assert wrong == []


PLAIN = """
import importlib.abc, sys

class OnlyWhatIsDeclared(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        top = name.partition(".")[0]
        if top not in {allowed} and top not in sys.stdlib_module_names:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, OnlyWhatIsDeclared())
"""


def dependencies(*extras: str) -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = [
        *project["dependencies"],
        *(each for extra in extras for each in project["optional-dependencies"][extra]),
    ]
    return {re.split(r"[<>=!~\[]", each)[0].strip().lower().replace("_", "-") for each in listed}


def plainly(code: str) -> subprocess.CompletedProcess[str]:
    """Run where nothing is installed but what the plain distribution needs."""
    begun = PLAIN.format(allowed={"gateway", "spec", *dependencies()})
    return subprocess.run([sys.executable, "-c", begun + code], capture_output=True, text=True, check=False)


def test_the_client_needs_two_small_packages() -> None:
    assert dependencies() == {"msgspec", "httptools"}
    ran = plainly("import gateway.client as c\nc.Client('http://127.0.0.1:9', 'k').close()\nprint('made')")
    assert (ran.returncode, ran.stdout) == (0, "made\n"), ran.stderr


def test_the_command_without_its_packages_says_what_to_install() -> None:
    ran = plainly("from gateway.__main__ import main\nmain()")
    assert ran.returncode == 1
    assert ran.stderr.startswith("sluice: ")
    assert ran.stderr.endswith("pip install 'sluice-gateway[server]'\n")


def test_each_lock_names_all_that_its_extras_ask_for() -> None:
    locks = {"requirements": (), "requirements-run": ("embedded",), "requirements-test": ("embedded", "test")}
    for name, extras in locks.items():
        text = (ROOT / f"deploy/{name}.lock").read_text()
        locked = {each.lower().replace("_", "-") for each in re.findall(r"^([\w.-]+)==", text, re.MULTILINE)}
        assert dependencies("server", *extras) <= locked, name
