"""The gateway. `__version__` is the release; pyproject.toml takes the distribution's version from here."""

from typing import Final

__version__: Final = "0.1.0"
