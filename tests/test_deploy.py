"""The files of deploy/ parse, and the names in them exist: metrics, variables, subcommands, files, services."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dotllm.compilation import metrics

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file())
METRICS = {
    *(f"{name}_total" for name in metrics.COUNTERS),
    *metrics.GAUGES,
    *(f"{name}_{end}" for name in metrics.HISTOGRAMS for end in ("bucket", "sum", "count")),
}
LABELS = {
    label
    for table in (metrics.COUNTERS, metrics.GAUGES, metrics.HISTOGRAMS)
    for row in table.values()
    for label in row[1]
}


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def expressions() -> list[str]:
    rules = [rule for group in documents("prometheus/alerts.yaml")[0]["groups"] for rule in group["rules"]]
    panels = json.loads((DEPLOY / "grafana" / "dotllm.json").read_text())["panels"]
    return [rule["expr"] for rule in rules] + [target["expr"] for panel in panels for target in panel["targets"]]


@pytest.mark.parametrize("expression", expressions())
def test_metrics_exist(expression: str) -> None:
    names = set(re.findall(r"dotllm_\w+", expression))
    assert names and names <= METRICS
    grouped = {label for found in re.findall(r"by \(([^)]*)\)", expression) for label in found.split(", ")}
    assert grouped <= LABELS | {"instance", "le"}
    assert all(expression.count(left) == expression.count(right) for left, right in ("()", "{}", "[]"))


def test_every_alert_has_its_row() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    rules = [rule["alert"] for group in documents("prometheus/alerts.yaml")[0]["groups"] for rule in group["rules"]]
    assert rules == re.findall(r"^\| `(Dotllm\w+)` \|", page, re.MULTILINE)


def test_every_file_has_its_row() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    named = {DEPLOY / name for name in re.findall(r"^\| `(\w+/[\w.]+)` \|", page, re.MULTILINE)}
    assert named == set(FILES) - {DEPLOY / "prometheus" / "prometheus.yaml"}


def test_variables_are_options() -> None:
    options = (ROOT / "docs" / "operations.md").read_text()
    for path in FILES:
        for name in re.findall(r"\bDOTLLM_\w+", path.read_text()):
            assert f"`{name}`" in options, (path, name)


def test_compose_refers_to_what_is_there() -> None:
    compose = documents("docker/compose.yaml")[0]
    folder = DEPLOY / "docker"
    build = compose["services"]["server"]["build"]
    assert (folder / build["context"] / build["dockerfile"]).is_file()
    for service in compose["services"].values():
        assert set(service.get("depends_on", [])) <= set(compose["services"])
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert (folder / source).is_file() if source.startswith(".") else source in compose["volumes"]
    target = documents("prometheus/prometheus.yaml")[0]["scrape_configs"][0]["static_configs"][0]["targets"][0]
    assert target.split(":")[0] in compose["services"]


def test_kubernetes_services_select_pods() -> None:
    objects = documents("kubernetes/dotllm.yaml")
    pods = [one["spec"]["template"] for one in objects if one["kind"] == "Deployment"]
    for service in (one for one in objects if one["kind"] == "Service"):
        [pod] = [one for one in pods if one["metadata"]["labels"] == service["spec"]["selector"]]
        names = {port.get("name", port["containerPort"]) for port in pod["spec"]["containers"][0]["ports"]}
        assert {port.get("targetPort", port["port"]) for port in service["spec"]["ports"]} <= names


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.cpu"])
def test_images_have_their_kernels(name: str) -> None:
    text = (DEPLOY / "docker" / name).read_text()
    assert "RUN dotllm warmup" in text and 'ENTRYPOINT ["dotllm", "serve"]' in text
    assert text.index("DOTLLM_CACHE_DIR") < text.index("RUN dotllm warmup")


def test_no_volume_hides_the_kernels_of_a_newer_image() -> None:
    """A volume has the files of the image that it was first used with."""
    (cache,) = {
        found
        for path in DEPLOY.rglob("Dockerfile*")
        for found in re.findall(r"DOTLLM_CACHE_DIR=(\S+)", path.read_text())
    }
    mounted = [
        place for path in FILES for place in re.findall(r"mountPath: ([^\s,}]+)|\w+:(/[^\s\":]+)", path.read_text())
    ]
    places = [first or second for first, second in mounted]
    assert f"{cache}/index" in places
    assert not [place for place in places if f"{cache}/kernels".startswith(place.rstrip("/"))]


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.cpu"])
def test_images_have_the_packages_of_their_store(name: str) -> None:
    """The files of deploy/ set a store, and a server whose store lacks a package does not start."""
    stores = {
        found for path in FILES for found in re.findall(r"DOTLLM_STORE\b\W+(?:value: \")?(\w+)://", path.read_text())
    }
    extras = re.findall(r"pip install [^\n]*/src\[([\w,]+)\]", (DEPLOY / "docker" / name).read_text())
    assert stores and extras == [",".join(sorted(stores))]


PLATFORMS = {
    "production_stack": ("servingEngineSpec", "modelSpec", 0),
    "llm_d": ("decode", "containers", 0),
    "kserve": ("spec", "predictor", "containers", 0),
}


@pytest.mark.parametrize("name", PLATFORMS)
def test_platforms_have_the_image_and_the_store(name: str) -> None:
    (values,) = documents(f"kubernetes/{name}.yaml")
    container: Any = values
    for step in PLATFORMS[name]:
        container = container[step]
    assert [one["name"] for one in container["env"]] == ["DOTLLM_STORE", "DOTLLM_STORE_SECRET"]
    assert "dotllm" in container.get("image", container.get("repository"))
