"""Examples of every command, shown by its --help: what a person would type, and what it is for. Tests hold each line to
the options that there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# By the words behind `pointsman`; each line is the rest of a command line, and what it does.
EXAMPLES: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "serve": (
        ("serve", "policies/ on 127.0.0.1:8080, the dashboard on :9090"),
        ("serve --config mine --port 8090 --admin-port 9091", ""),
        ("serve --host 0.0.0.0", "for others to reach; needs keys: `pointsman keys create`"),
        ("serve --workers 4 --redis redis://127.0.0.1:6379/0", "several processes that share what they know"),
    ),
    "init": (
        ("init mine", "look on this machine, write the folder mine"),
        ("init mine --host 10.0.0.5", "look on the usual ports of another machine"),
        ("init mine --url http://10.0.0.5:9000/v1 --url 'https://llm.example.com/v1#MY_KEY'", ""),
        ("init mine --from litellm.yaml", "carry over LiteLLM's model_list"),
        ("init mine --from routes.toml", "carry over Switchyard's clients, targets and routes"),
    ),
    "check": (
        ("check", "policies/"),
        ("check next && cp next/*.yaml policies/", "edit a copy, put it in force when it checks"),
        ("check mine --json", "for scripts: mistakes with file, line, column"),
    ),
    "doctor": (
        ("doctor", "policies/, the usual ports, the usual state folder"),
        ("doctor --config mine --port 8090", ""),
        ("doctor --json", "for scripts and monitoring; exit code 1 with a fail"),
    ),
    "schema": (("schema > mine/schema.json", "editors then complete and check the files beside it"),),
    "keys create": (
        ("keys create --tenant web --expires 90d", "prints the key once"),
        ("keys create --tenant batch --models auto --requests-per-minute 60 --quota large=500", ""),
    ),
    "keys list": (("keys list --tenant web", ""), ("keys list --config mine --json", "")),
    "keys revoke": (("keys revoke web-3f9a1c", ""), ("keys revoke --tenant web", "all of a tenant's")),
    "history": (("history", ""), ("history --json", ""), ("history show 3f9a1c07 --diff", "what that version changed")),
    "history show": (("history show 3f9a1c07 --diff", "what it changed of the version before"),),
    "replay": (
        ("replay --config next", "yesterday's requests, decided by the files in next/"),
        ("replay records.jsonl --config next --against 3f9a1c07", "against an earlier version"),
        ("replay --config next --max-moved 0.1 --max-cost 1.2", "exit code 3 when more would change: for CI"),
    ),
    "rollback": (("rollback 3f9a1c07", "`pointsman history` has the digests"), ("rollback 3f9a1c07 --config mine", "")),
    "records list": (
        ("records list --since 2026-11-01 --limit 5", "the newest first"),
        ("records list --group large --json", "JSON lines, whole records"),
    ),
    "records show": (("records show ID --json", "ID is what x-pointsman-request-id said"),),
    "records summary": (("records summary --window 7d", "traffic, cost and times by group and route"),),
    "records export": (
        ("records export --out records.jsonl", ""),
        ("records export --out - --since 2026-11-01 | head -1", "JSON lines, oldest first"),
    ),
    "explain": (
        ("explain request.json", "where this request would go, and why"),
        ("explain - --header x-tier:gold --json < request.json", ""),
        ("explain record.json --config next", "one exported record, decided again"),
    ),
    "plan fit": (
        ("plan fit --cluster four-spark-switch --model glm-5.3-flash-nvfp4", "both of the catalogue"),
        ("plan fit --cluster my-cluster.yaml --model gpt-oss-120b --context 131072 --sequences 4", ""),
    ),
    "plan partition": (
        ("plan partition --cluster two-spark-direct --models gpt-oss-120b,llama-3.1-8b-nvfp4", "every layout"),
        (
            "plan partition --cluster two-spark-direct --models gpt-oss-120b,llama-3.1-8b-nvfp4 --out plan.yaml",
            "",
        ),
    ),
    "plan render": (
        ("plan render --plan plan.yaml --target systemd --out out", "what each node runs, and the gateway's files"),
        ("plan render --plan plan.yaml --target compose --out out", ""),
    ),
    "plan inventory": (
        ("plan inventory spark-1=192.168.1.11 spark-2=192.168.1.12 --out my-cluster.yaml", ""),
        ("plan inventory --script > ask.sh", "to run by hand where there is no ssh"),
        ("plan inventory --from answers --out my-cluster.yaml", "from what that printed, NAME@ADDRESS.txt each"),
    ),
    "plan doctor": (
        ("plan doctor --plan plan.yaml", "machines over ssh, engines over HTTP"),
        ("plan doctor --plan plan.yaml --no-machines --no-token", "no ssh, and no model is called"),
    ),
    "plan accuracy": (("plan accuracy", ""), ("plan accuracy --json", "")),
    "plan simulate": (
        ("plan simulate --scenario reference --quick", "the same requests: large, small, random, routed"),
        ("plan simulate --scenario mine.yaml --rates low --report report.html", "a scenario of your own, as a page"),
    ),
    "bench": (
        ("bench", "the gateway's CPU time per request beside a bare proxy's"),
        ("bench --url http://127.0.0.1:8080/v1 --direct http://127.0.0.1:8000/v1 --direct-model qwen3-8b", ""),
        ("bench --scorer lexical", "what scoring one prompt takes"),
    ),
    "eval run": (
        (
            "eval run --data evals/data/benchmarks/routellm_mmlu_gsm8k.parquet --weak mixtral_8x7b --strong gpt4_1106",
            "",
        ),
        (
            "eval run --live --data p.csv --weak-model small --strong-model large --reference right --out o",
            "",
        ),
    ),
    "eval sweep": (("eval sweep --data rows.parquet --weak small --strong large --json sweep.json", ""),),
    "eval train": (
        ("eval train --data rows.parquet --weak small --strong large --out mine/scorer", "for your pair of models"),
        ("eval train --from-records records.jsonl --out mine/scorer", "from what the gateway recorded"),
    ),
    "eval report": (("eval report --result out.json --out report.html", "one page, with nothing else needed"),),
    "eval score": (("eval score --data rows.parquet --scorer lexical --out scored.parquet", ""),),
    "completion": (
        ("completion bash >> ~/.bashrc", "or: zsh >> ~/.zshrc, fish > ~/.config/fish/completions/pointsman.fish"),
    ),
}


def epilog(path: str) -> str | None:
    """What --help shows below a command's options."""
    lines = EXAMPLES.get(path)
    if not lines:
        return None
    width = max((len(line) for line, about in lines if about and len(line) < 60), default=0)
    shown = [f"  pointsman {line.ljust(width)}   {about}" if about else f"  pointsman {line}" for line, about in lines]
    return "\b\nExamples:\n" + "\n".join(shown)
