"""Ports for servers that a test starts as processes of their own."""

from __future__ import annotations

import itertools
import os
import socket

# Below the ports that the kernel gives to outgoing connections, a hundred for each process that tests at the same time.
_SHARE = 100
_FIRST = 12_000 + os.getpid() % 200 * _SHARE
_IN_TURN = itertools.cycle(range(_FIRST, _FIRST + _SHARE))


def free_port() -> int:
    """A port of 127.0.0.1 where nobody listens, and that nothing else takes before the test's server does."""
    for port in itertools.islice(_IN_TURN, _SHARE):
        with socket.socket() as sock:
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError(f"every port from {_FIRST} on is taken")
