"""`pointsman init --from`: other gateways' files become ours, and what they say that ours do not is listed.

The files are those of the two projects' documentation, rewritten: the same keys, other names and values.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from click.testing import CliRunner, Result

from router.cli import main
from router.config import Config
from router.policy_files import review


def carried(tmp_path: Path, name: str, content: str, *more: str) -> Result:
    source = tmp_path / name
    source.write_text(dedent(content))
    return CliRunner().invoke(
        main, ["init", str(tmp_path / "out"), "--from", str(source), *more], catch_exceptions=False
    )


def config(tmp_path: Path, **environ: str) -> Config:
    found = review(tmp_path / "out", environ)
    assert found.mistakes == ()
    assert found.config is not None
    return found.config


# docs.litellm.ai/docs/proxy/configs, "Quick Start"
QUICK_START = """\
    model_list:
      - model_name: gpt-4o
        litellm_params:
          model: azure/gpt-4o-west
          api_base: https://west.openai.azure.com/
          api_key: "os.environ/AZURE_WEST"
          rpm: 6
      - model_name: gpt-4o
        litellm_params:
          model: azure/gpt-4o-east
          api_base: https://east.openai.azure.com/
          api_key: "os.environ/AZURE_EAST"
          api_version: "2025-04-01-preview"
      - model_name: claude-on-bedrock
        litellm_params:
          model: bedrock/anthropic.claude-sonnet-4-v1:0
          aws_region_name: us-east-1
      - model_name: own-vllm
        litellm_params:
          model: openai/facebook/opt-125m
          api_base: http://127.0.0.1:4000/v1
          api_key: none
          temperature: 0.2
        model_info: {max_input_tokens: 2048, input_cost_per_token: 0.0000005, output_cost_per_token: 0.0000015}
      - model_name: "*"
        litellm_params: {model: "*"}
    litellm_settings: {drop_params: true, success_callback: [langfuse]}
    general_settings: {master_key: sk-1234, alerting: [slack]}
"""


def test_litellms_quick_start_is_carried_over_and_what_is_not_is_listed(tmp_path: Path) -> None:
    result = carried(tmp_path, "config.yaml", QUICK_START)
    assert result.exit_code == 0
    found = config(tmp_path, AZURE_WEST="w", AZURE_EAST="e")
    assert {name: list(group.deployments) for name, group in found.groups.items()} == {
        "gpt-4o": ["gpt-4o-1", "gpt-4o-2"],
        "claude-on-bedrock": ["claude-on-bedrock-1"],
        "own-vllm": ["own-vllm-1"],
    }
    west, east = found.deployments["gpt-4o-1"], found.deployments["gpt-4o-2"]
    assert (west.upstream, west.model, west.base_url) == (
        "litellm",
        "azure/gpt-4o-west",
        "https://west.openai.azure.com",
    )
    assert (east.api_key, east.options) == ("e", {"api_version": "2025-04-01-preview"})
    assert found.deployments["claude-on-bedrock-1"].options == {"aws_region_name": "us-east-1"}
    own = found.deployments["own-vllm-1"]
    assert (own.upstream, own.model, own.base_url) == ("openai", "facebook/opt-125m", "http://127.0.0.1:4000/v1")
    assert (own.api_key, own.context_window) == ("none", 2048)
    assert own.price is not None
    assert (own.price.input, own.price.output) == (0.5, 1.5)
    assert set(found.models) == {"auto"}
    for sentence in (
        "`*`: a wildcard; name the models that are to be served",
        "`rpm`: load is balanced by what is in flight and waits; for a limit set max_in_flight",
        "`own-vllm`: `temperature` (0.2) was a default that clients override; under `set` it would always hold",
        "`azure` is called through litellm: pip install 'pointsman[litellm]'",
        "`success_callback`: every request leaves a record",
        "`master_key` and virtual keys: `pointsman keys create` makes keys",
        "`general_settings.alerting`: has no counterpart here",
        "set before you serve: AZURE_EAST, AZURE_WEST",
    ):
        assert sentence in result.output


# docs.litellm.ai/docs/proxy/configs, "Load Balancing"
BALANCED = """\
    model_list:
      - model_name: zephyr
        litellm_params: {model: huggingface/some/zephyr-7b, api_base: "http://127.0.0.1:8001", rpm: 60}
      - model_name: zephyr
        litellm_params: {model: hosted_vllm/zephyr-7b, api_base: "http://127.0.0.1:8002/v1", max_parallel_requests: 8}
      - model_name: gpt-4o
        litellm_params: {model: gpt-4o, api_key: sk-live-abcdef, timeout: 60, stream_timeout: 10}
      - model_name: long
        litellm_params: {model: claude-sonnet-5, api_key: os.environ/ANTHROPIC_API_KEY}
      - model_name: local
        litellm_params: {model: ollama_chat/llama3.1, api_base: "http://127.0.0.1:11434"}
    litellm_settings:
      num_retries: 3
      fallbacks: [{zephyr: [gpt-4o]}]
      context_window_fallbacks: [{zephyr: [long]}]
      allowed_fails: 3
    router_settings:
      routing_strategy: simple-shuffle
      model_group_alias: {"gpt-4": "gpt-4o"}
      redis_host: 10.0.0.9
      redis_password: os.environ/REDIS_PASSWORD
      redis_port: 1992
"""


def test_litellms_fallbacks_aliases_and_redis_are_carried_over(tmp_path: Path) -> None:
    result = carried(tmp_path, "config.yaml", BALANCED)
    assert result.exit_code == 0
    found = config(tmp_path, GPT_4O_1_KEY="k", ANTHROPIC_API_KEY="a", REDIS_PASSWORD="r")
    assert set(found.models) == {"auto", "zephyr", "gpt-4"}
    zephyr = found.models["zephyr"]
    assert (zephyr.default, zephyr.fallback) == ("zephyr.group", {"zephyr.group": ("gpt-4o",)})
    assert found.models["gpt-4"].default == "gpt-4o"
    assert found.groups["zephyr.group"].deployments == ("zephyr.group-1", "zephyr.group-2")
    assert found.deployments["zephyr.group-2"].max_in_flight == 8
    assert found.deployments["long-1"].dialects == ("messages",)
    assert found.deployments["local-1"].base_url == "http://127.0.0.1:11434/v1"
    timeouts = found.deployments["gpt-4o-1"].timeouts
    assert (timeouts.total_s, timeouts.first_byte_s) == (60, 10)
    assert found.store == "redis://:r@10.0.0.9:1992/0"


def test_a_key_in_a_litellm_file_is_not_copied(tmp_path: Path) -> None:
    result = carried(tmp_path, "config.yaml", BALANCED)
    written = "".join(path.read_text() for path in (tmp_path / "out").iterdir())
    assert "sk-live" not in written + result.output
    assert "a key stands in the file; it is not copied: put it into the variable GPT_4O_1_KEY" in result.output


# docs.litellm.ai/docs/auto_router
COMPLEXITY = """\
    model_list:
      - {model_name: fast, litellm_params: {model: openai/gpt-5.6-luna, api_key: os.environ/OPENAI_API_KEY}}
      - {model_name: mid, litellm_params: {model: openai/gpt-5.6-terra, api_key: os.environ/OPENAI_API_KEY}}
      - {model_name: capable, litellm_params: {model: openai/gpt-5.6-sol, api_key: os.environ/OPENAI_API_KEY}}
      - model_name: auto
        litellm_params:
          model: auto_router/complexity_router
          complexity_router_config:
            tiers: {SIMPLE: fast, MEDIUM: mid, COMPLEX: capable, REASONING: capable}
          complexity_router_default_model: capable
"""


def test_the_tiers_of_litellms_complexity_router_are_bands(tmp_path: Path) -> None:
    result = carried(tmp_path, "config.yaml", COMPLEXITY)
    found = config(tmp_path, OPENAI_API_KEY="k")
    rule = found.models["auto"].routes[0].score
    assert rule is not None
    assert [(band.group, band.below) for band in rule.bands] == [("fast", 0.33), ("mid", 0.67), ("capable", None)]
    assert found.models["auto"].default == "capable"
    assert "`auto`: its tiers are bands of the shipped scorer" in result.output


# NVIDIA-NeMo/Switchyard, docs/reference/toml_schema.md and examples/local-vllm/routes.toml
SWITCHYARD = """\
    schema_version = 1

    [llm_clients.near]
    format = "openai_chat"
    base_url = "http://127.0.0.1:8000/v1"

    [llm_clients.market]
    format = "openai_chat"
    base_url = "https://openrouter.ai/api/v1"
    api_key_env = "OPENROUTER_API_KEY"
    max_retries = 2
    extra_headers = { x-title = "me" }

    [llm_clients.claude]
    format = "anthropic_messages"
    base_url = "https://api.anthropic.com/v1"
    api_key_env = "ANTHROPIC_API_KEY"

    [targets.weak]
    id = "my-local-model"
    llm_client = "near"
    extra_body = { chat_template_kwargs = { enable_thinking = false } }

    [targets.judge]
    id = "my-local-model"
    llm_client = "near"

    [targets.strong]
    id = "some/opus"
    llm_client = "market"

    [targets.direct]
    id = "claude-opus-4-7"
    llm_client = "claude"

    [routes.local_first]
    id = "local-first"
    type = "llm_classifier"
    classifier_target = "judge"
    strong_target = "strong"
    weak_target = "weak"
    base_threshold = 0.5
    session_affinity = true

    [routes.agent]
    id = "agent"
    type = "stage_router"
    capable_target = "strong"
    efficient_target = "weak"
    picker = "efficient_first"
    confidence_threshold = 0.5

    [routes.all]
    id = "plain/model"
    type = "passthrough"
    target = "direct"

    [routes.split]
    id = "split"
    type = "random"
    targets = ["strong", "direct"]
    weights = [3, 1]

    [routes.smoke]
    id = "noop"
    type = "noop"
"""


def test_switchyards_clients_targets_and_routes_are_carried_over(tmp_path: Path) -> None:
    result = carried(tmp_path, "routes.toml", SWITCHYARD)
    assert result.exit_code == 0
    found = config(tmp_path, OPENROUTER_API_KEY="o", ANTHROPIC_API_KEY="a")
    assert set(found.models) == {"local-first", "agent", "plain/model", "split"}
    strong = found.deployments["strong-1"]
    assert (strong.base_url, strong.model, strong.api_key) == ("https://openrouter.ai/api/v1", "some/opus", "o")
    assert found.deployments["direct-1"].dialects == ("messages",)
    assert found.deployments["weak-1"].set == {"chat_template_kwargs": {"enable_thinking": False}}
    first = found.models["local-first"]
    assert first.routes[0].score is not None
    assert [band.group for band in first.routes[0].score.bands] == ["weak", "strong"]
    agent = found.models["agent"]
    assert ([route.name for route in agent.routes], agent.default) == (["stuck", "circle", "difficulty"], "weak")
    assert found.models["plain/model"].default == "direct"
    assert found.groups["split-any"].deployments == ("strong-1", "direct-1")
    for sentence in (
        "routes.local_first: the shipped scorer decides in place of its judge",
        "routes.split: its targets are one group, whose least busy deployment serves; weights are not",
        "routes.smoke: `noop` has no counterpart here",
        "llm_clients.market.extra_headers: headers of one's own are not sent to upstreams",
        "targets.weak.extra_body: is `set`, which holds over what the request says",
        "targets.judge: no policy routes to it",
    ):
        assert sentence in result.output


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.yaml", "a: [", "this is not valid YAML"),
        ("a.yaml", "a: 1\n", "there is no `model_list` in it, so this is no configuration of LiteLLM's"),
        ("a.toml", "a = ", "this is not valid TOML"),
        ("a.toml", "schema_version = 1\n", "schema_version 1 with [targets] and [routes] was looked for"),
    ],
)
def test_a_file_that_is_of_neither_is_told_in_one_sentence(tmp_path: Path, name: str, content: str, told: str) -> None:
    result = carried(tmp_path, name, content)
    assert result.exit_code == 1
    assert told in result.output
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    ran = CliRunner().invoke(main, ["init", str(tmp_path / "out"), "--from", str(tmp_path / "no.yaml")])
    assert ran.exit_code == 1
    assert "no.yaml: No such file or directory" in ran.output
