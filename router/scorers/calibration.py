"""Curves that map a scorer's own number to how often the cheap model fails, as `pointsman eval calibrate` fits them.

The lexical scorer carries its curves inside its artifact; scorers that ask a language model read theirs from the
command's `--json` result, named by their option `calibration`.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct


class Curve(Struct, frozen=True):
    """Rising points; between them straight lines, outside them the first and the last."""

    xs: tuple[float, ...] = (0.0, 1.0)
    ys: tuple[float, ...] = (0.0, 1.0)

    def __call__(self, value: float) -> float:
        return float(np.interp(value, self.xs, self.ys))


class _Result(Struct):
    curve: list[tuple[float, float]]


def read(path: Path | None) -> Curve:
    """The curve of a result file; the identity without one. Raises ValueError where the file has none."""
    if path is None:
        return Curve()
    try:
        points = msgspec.json.decode(path.read_bytes(), type=_Result).curve
    except OSError as error:
        raise ValueError(f"calibration: cannot read {path} ({error.strerror})") from error
    except msgspec.MsgspecError as error:
        raise ValueError(f"calibration: {path} is no result of `pointsman eval calibrate --json`: {error}") from error
    rises = all(a[0] <= b[0] and a[1] <= b[1] for a, b in pairwise(points))
    if not points or not rises or not all(0.0 <= y <= 1.0 for _, y in points):
        raise ValueError(
            f"calibration: the curve of {path} does not rise within 0 and 1, as one of `pointsman eval calibrate` does"
        )
    return Curve(tuple(p[0] for p in points), tuple(p[1] for p in points))
