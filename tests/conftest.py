"""Fixtures that several test folders share. Anything one folder needs stays there."""

from pathlib import Path

import pytest

from tests.support.tiny_gguf import write_tiny_gguf


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model file that llama.cpp loads in milliseconds and that answers nonsense."""
    return write_tiny_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")
