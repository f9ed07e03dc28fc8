"""How this program was called, for lines that say what to run next: they can be pasted where it was called."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path


def program() -> str:
    """This program as its user would type it."""
    called = Path(sys.argv[0])
    if called.name != "pointsman":
        return "python -m router" if called.name == "__main__.py" else "pointsman"
    found = shutil.which("pointsman")
    if found is not None and Path(found).resolve() == called.resolve():
        return "pointsman"
    return min(str(called), os.path.relpath(called), key=len)
