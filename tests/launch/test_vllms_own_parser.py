"""vLLM's own command line reads what is rendered for it, wherever a vLLM happens to be installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from router.cluster import reader
from router.launch.ranks import ranks

HERE = Path(__file__).parent

arguments = pytest.importorskip("vllm.entrypoints.launchers.cli_args", reason="no vLLM of 0.32 or near it")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["switch", "ring"])
def test_every_rendered_command_line_is_one_of_vllm_serve(name: str):
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    plan = reader.plan(HERE / f"{name}.yaml")
    models = {group.model: reader.model(group.model) for group in plan.groups}
    parser = arguments.make_arg_parser(FlexibleArgumentParser())
    for rank in ranks(plan, models):
        assert rank.argv[:2] == ["vllm", "serve"]
        given = parser.parse_args(rank.argv[2:])
        assert given.tensor_parallel_size == rank.group.tensor
        assert given.max_model_len == rank.group.context
        assert given.headless == (rank.number > 0)
        if len(rank.replica.nodes) > 1:
            assert (given.nnodes, given.node_rank) == (len(rank.replica.nodes), rank.number)
