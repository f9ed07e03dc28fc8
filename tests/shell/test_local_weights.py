"""Which model files a local deployment accepts."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from router.errors import CannotStart
from router.upstreams.local.weights import available_memory, check_memory, named, require, shipped

CONTENT = b"GGUF and then some weights"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Package:
    """A stand-in for the package of weights: writes its bytes and counts how often it was asked."""

    def __init__(self, content: bytes = CONTENT) -> None:
        self.content = content
        self.calls = 0

    def assemble(self, target: Path) -> None:
        self.calls += 1
        target.write_bytes(self.content)


def test_the_weights_are_put_together_once_and_found_again(tmp_path: Path) -> None:
    package = Package()
    first = shipped(tmp_path, assemble=package.assemble, sha256=SHA256)
    assert first.read_bytes() == CONTENT
    assert shipped(tmp_path, assemble=package.assemble, sha256=SHA256) == first
    assert package.calls == 1


def test_weights_with_another_hash_are_refused_and_not_kept(tmp_path: Path) -> None:
    package = Package(b"GGUF of somebody else")
    with pytest.raises(CannotStart, match="are not the pinned ones"):
        shipped(tmp_path, assemble=package.assemble, sha256=SHA256)
    assert [path for path in tmp_path.iterdir() if path.suffix == ".gguf"] == []


def test_a_kept_file_that_was_changed_is_replaced_before_it_is_served(tmp_path: Path) -> None:
    package = Package()
    kept = shipped(tmp_path, assemble=package.assemble, sha256=SHA256)
    before = kept.stat()
    kept.write_bytes(CONTENT[::-1])
    os.utime(kept, ns=(before.st_atime_ns, before.st_mtime_ns))  # hides the change from size and time
    assert shipped(tmp_path, assemble=package.assemble, sha256=SHA256).read_bytes() == CONTENT
    assert package.calls == 2


def test_a_package_that_cannot_write_its_file_is_one_clear_error(tmp_path: Path) -> None:
    def full(_target: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(CannotStart, match=f"in {tmp_path}: No space left on device; about 250 MB are needed there"):
        shipped(tmp_path, assemble=full, sha256=SHA256)


def test_any_gguf_file_may_be_named(tiny_gguf: Path) -> None:
    assert named(str(tiny_gguf), None) == tiny_gguf


def test_a_named_file_with_a_pinned_hash_must_have_it(tiny_gguf: Path, tmp_path: Path) -> None:
    right = hashlib.sha256(tiny_gguf.read_bytes()).hexdigest()
    assert named(str(tiny_gguf), right.upper(), tmp_path) == tiny_gguf
    with pytest.raises(CannotStart, match="is not the file with sha256 000000000000"):
        named(str(tiny_gguf), "0" * 64, tmp_path)


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "model.gguf"
    other.write_bytes(b"PK\x03\x04")
    with pytest.raises(CannotStart, match=r"model\.gguf is not a GGUF file"):
        named(str(other), None)


def test_a_file_that_is_not_there_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match=r"gone\.gguf cannot be read: No such file"):
        named(str(tmp_path / "gone.gguf"), None)


def test_a_missing_package_says_what_to_install() -> None:
    with pytest.raises(CannotStart, match=r"no_such_package is not installed; run: pip install 'pointsman\[local\]'"):
        require("no_such_package")


def test_without_the_engine_a_deployment_says_so_instead_of_starting() -> None:
    program = (
        "import asyncio, sys\n"
        "sys.modules['xllamacpp'] = None\n"
        "from router.config import Deployment\n"
        "from router.upstreams.local import LocalChild\n"
        "asyncio.run(LocalChild(Deployment(name='small', upstream='local')).start())\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "CannotStart: the Python package xllamacpp is not installed" in ended.stderr


def test_a_model_larger_than_the_free_memory_is_refused_in_megabytes(tiny_gguf: Path) -> None:
    with pytest.raises(CannotStart, match=r"tiny\.gguf needs about 192 MiB of memory, and 64 MiB are free"):
        check_memory(tiny_gguf, 64 * 2**20)


def test_a_system_that_does_not_tell_its_memory_is_given_the_benefit(tiny_gguf: Path) -> None:
    check_memory(tiny_gguf, None)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc/meminfo is Linux's")
def test_the_free_memory_of_this_machine_is_a_plausible_number() -> None:
    available = available_memory()
    assert available is not None
    assert 2**20 < available < 2**50
