"""Real inference without a server of one's own: llama.cpp in a supervised child process.

`upstream` sends the calls, `process` keeps the child alive, `child` is the program it runs, `weights` says which
file it may serve, `template` gives the shipped base weights a turn format.
"""

from router.upstreams.local.process import LocalChild, Options, read_options
from router.upstreams.local.upstream import LocalUpstream

__all__ = ["LocalChild", "LocalUpstream", "Options", "read_options"]
