"""Fixtures that several test folders share. Anything one folder needs stays there."""

import os
from asyncio import AbstractEventLoop
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop
from hypothesis import settings

from tests.support.tiny_gguf import write_tiny_gguf

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command line does, before anything imports numpy

settings.register_profile("any machine", deadline=None)  # no test depends on how fast the machine is
settings.load_profile("any machine")


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model file that llama.cpp loads in milliseconds and that answers nonsense."""
    return write_tiny_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], AbstractEventLoop]]:
    """Tests run on the event loop that serves."""
    return {"uvloop": uvloop.new_event_loop}
