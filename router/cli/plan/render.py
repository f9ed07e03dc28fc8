"""`pointsman plan render`: the files that start a plan's groups, and the gateway's configuration for them."""

from __future__ import annotations

from pathlib import Path

import click

from router.cli.plan import CATALOG, JSON, PLAN, plainly, show
from router.cluster import reader
from router.cluster.values import Model, Plan
from router.errors import NotFound
from router.launch import TARGETS, render


@click.command()
@PLAN
@click.option("--target", type=click.Choice(list(TARGETS)), required=True, help="What starts the groups.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="The folder to write.")
@click.option("--image", default="", help="The engine's container image, where another than the usual one is wanted.")
@CATALOG
@JSON
@plainly
def command(plan_file: Path, target: str, out: Path, image: str, catalog: Path, as_json: bool) -> None:
    """Write the files that start a plan's groups on their nodes, and the gateway's configuration for them.

    Files of OUT that are written again are replaced, others are left alone.

    Exit code 0, 1 where the plan cannot be rendered so, 2 on a mistake in a file or a name.
    """
    plan = reader.plan(plan_file)
    files = render(plan, target, known(plan, catalog), image=image)
    for name, content in files.items():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        if name.endswith("install.sh"):
            path.chmod(0o755)
    if as_json:
        show({"plan": plan.name, "target": target, "out": str(out), "files": sorted(files)})
        return
    for name in sorted(files):
        click.echo(out / name)
    click.echo(_next(target, out), err=True)


def known(plan: Plan, catalog: Path) -> dict[str, Model]:
    """The models of the plan that the catalogue knows; the others are left to what the engine finds by itself."""
    found: dict[str, Model] = {}
    for group in plan.groups:
        try:
            found[group.model] = reader.model(group.model, catalog)
        except NotFound:
            click.echo(
                f"{group.name}: the catalogue does not know {group.model}; its cache's type is not set", err=True
            )
    return found


def _next(target: str, out: Path) -> str:
    """What to do with the files, in one line."""
    gateway = f"pointsman check {out / 'gateway'} && pointsman serve --config {out / 'gateway'}"
    steps = {
        "systemd": f"copy {out} to each node and run NODE/install.sh there as root; then",
        "compose": f"on each node: docker compose --file {out}/NODE/compose.yaml up --detach; then",
        "ansible": f"cd {out} && ansible-playbook --inventory inventory.yml site.yml; then",
        "lws": f"kubectl apply --kustomize {out}, after deploy/kubernetes/base; or outside of the cluster",
        "rayservice": f"kubectl apply --kustomize {out}, after deploy/kubernetes/base; or outside of the cluster",
    }
    return f"next: {steps[target]}: {gateway}"
