"""YAML files become one immutable `Config`, or every mistake in them at its place.

`load` serves boot and reload alike; `review` also gives the warnings; `watch` says when a file has changed;
`schema` is what editors use. Nothing here swaps a configuration or serves a request.
"""

from router.policy_files.files import KEYS, digest, is_config_file, read_directory, stamps
from router.policy_files.review import Review, load, review
from router.policy_files.schema import schema
from router.policy_files.watch import watch

__all__ = [
    "KEYS",
    "Review",
    "digest",
    "is_config_file",
    "load",
    "read_directory",
    "review",
    "schema",
    "stamps",
    "watch",
]
