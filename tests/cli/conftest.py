from __future__ import annotations

import pytest

from tests.cli.command import Sluice


@pytest.fixture
def unset() -> Sluice:
    """`sluice` with no setting at all."""
    return Sluice()


@pytest.fixture
def sluice(postgres_url: str) -> Sluice:
    """`sluice` with a prepared database."""
    return Sluice(SLUICE_POSTGRES_URL=postgres_url)
