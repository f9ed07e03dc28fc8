"""Long work of the evals: its finished parts stay in a folder until all is done, and how far it is, is shown.

A part is known by a digest of everything it was made from, the code that made it included, so that work goes on
after a stop and nothing old is ever taken for new. What the parts are is the caller's business.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from evals.console import progress

Floats = NDArray[np.float64]


class Work:
    """Finished parts in `folder`, or nowhere; progress on standard error where `shown`."""

    def __init__(self, folder: Path | None = None, *, shown: bool = False) -> None:
        self.folder = folder
        self.shown = shown
        self.reused = 0

    def floats(self, made_from: Sequence[object], make: Callable[[], Floats]) -> Floats:
        """One part: as it was kept, else made now and kept. `made_from` are texts, numbers and arrays."""
        if self.folder is None:
            return make()
        file = self.folder / f"{digest(made_from)}.npy"
        if file.is_file():
            self.reused += 1
            return np.load(file, allow_pickle=False)
        made = make()
        self.folder.mkdir(parents=True, exist_ok=True)
        half = file.with_suffix(".half.npy")
        np.save(half, made, allow_pickle=False)
        half.replace(file)  # a part that a crash cut short is none
        return made

    @contextmanager
    def steps(self, label: str, total: int) -> Generator[Callable[[], None]]:
        """Gives what is called at each step done."""
        if not self.shown:
            yield lambda: None
            return
        with progress(label, total) as step:
            yield step

    def done(self) -> None:
        """Everything is done: the parts go."""
        if self.folder is not None and self.folder.is_dir():
            for part in self.folder.glob("*.npy"):
                part.unlink()
            if not any(self.folder.iterdir()):
                shutil.rmtree(self.folder)


_current: ContextVar[Work | None] = ContextVar("work", default=None)


def current() -> Work:
    """The long work that is going on; else one that keeps and shows nothing."""
    return _current.get() or Work()


@contextmanager
def going(folder: Path | None) -> Generator[Work]:
    """Long work until the block ends. Where it ends well the kept parts go; else they wait for the next try."""
    work = Work(folder, shown=True)
    token = _current.set(work)
    try:
        yield work
    finally:
        _current.reset(token)
    work.done()


def beside(result: Path) -> Path:
    """Where the parts of what becomes `result` are kept."""
    return result.with_name(result.name + ".parts")


def digest(made_from: Sequence[object]) -> str:
    """A digest of values and of the code that works on them."""
    out = hashlib.sha256(_code().encode())
    for value in made_from:
        if isinstance(value, np.ndarray):
            array = cast("NDArray[np.generic]", value)
            out.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
        else:
            out.update(repr(value).encode("utf-8", "replace"))
        out.update(b"\0")
    return out.hexdigest()


@cache
def _code() -> str:
    """A digest of the modules that fit and score, and of numpy's version."""
    from evals import fit
    from router.scorers import heads

    out = hashlib.sha256(np.__version__.encode())
    for module in (fit, heads):
        for file in sorted(Path(str(module.__file__)).parent.glob("*.py")):
            out.update(file.read_bytes())
    return out.hexdigest()
