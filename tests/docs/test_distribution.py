"""The distribution's name: `sluice` on the package index is another project's."""

from __future__ import annotations

import re
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
