"""deploy/kubernetes, systemd, prometheus, grafana: of the right form, and in step with what they speak of."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from gateway import __version__
from gateway.config import SETTINGS, Config
from gateway.telemetry.log_events import LOG_EVENTS
from gateway.telemetry.metric_rows import METRICS
from tests.deploy.shipped import DEPLOY, ROOT
from tests.deploy.test_operations import AFTER_TERM_S, anchors

KUBERNETES, SYSTEMD = DEPLOY / "kubernetes", DEPLOY / "systemd"
SCHEMAS = json.loads((Path(__file__).parent / "kubernetes_1_34.json").read_text())
KUSTOMIZATION = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())
DOCUMENTS = [
    each
    for name in KUSTOMIZATION["resources"]
    for each in yaml.safe_load_all((KUBERNETES / name).read_text())
]
UNITS = sorted(SYSTEMD.iterdir())
RULES = yaml.safe_load((DEPLOY / "prometheus/sluice.rules.yaml").read_text())
DASHBOARD = json.loads((DEPLOY / "grafana/sluice.json").read_text())
SUFFIXES = ("_bucket", "_sum", "_count", "_total")
WORD = re.compile(r"\b(?:sluice|process)_[a-z_]+\b")


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [each for each in DOCUMENTS if each["kind"] == kind]


# -- Kubernetes


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda each: f"{each['kind']}-{each['metadata']['name']}")
def test_a_manifest_is_as_kubernetes_says(document: dict[str, Any]) -> None:
    schema = {**SCHEMAS["kinds"][document["kind"]], "$defs": SCHEMAS["$defs"]}
    jsonschema_rs.validator_for(schema).validate(document)
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validator_for(schema).validate({**document, "sepc": {}})


def test_the_kustomization_names_every_file_and_this_release() -> None:
    assert {*KUSTOMIZATION["resources"], "kustomization.yaml"} == {each.name for each in KUBERNETES.iterdir()}
    assert KUSTOMIZATION["images"] == [{"name": "sluice", "newTag": __version__}]
    (job,) = of_kind("Job")
    assert job["metadata"]["name"] == f"sluice-migrate-{__version__.replace('.', '-')}"
    if shutil.which("kubectl"):
        built = subprocess.run(
            ["kubectl", "kustomize", KUBERNETES], capture_output=True, text=True, check=True
        )
        assert len(list(yaml.safe_load_all(built.stdout))) == len(DOCUMENTS)


def test_every_container_runs_without_privileges_and_pods_without_tokens() -> None:
    pods = [each["spec"]["template"]["spec"] for each in (*of_kind("Deployment"), *of_kind("Job"))]
    assert len(pods) == 3
    for pod in pods:
        assert pod["enableServiceLinks"] is False
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in (*pod["containers"], *pod.get("initContainers", ())):
            hardened = container["securityContext"]
            assert hardened["readOnlyRootFilesystem"] is True
            assert hardened["capabilities"] == {"drop": ["ALL"]}


def test_gateways_and_relays_start_with_their_settings() -> None:
    files = {"redis_url": "rediss://r", "gateway_url": "postgresql://p"}
    for deployment in of_kind("Deployment"):
        pod = deployment["spec"]["template"]
        (container,) = pod["spec"]["containers"]
        named = {each["name"]: each["value"] for each in container["env"]}
        config = Config.from_environ(named, lambda path: files[path.rpartition("/")[2]])
        ports = {each["name"]: each["containerPort"] for each in container["ports"]}
        assert ports["ops"] == config.ops_port
        assert ports.get("http", Config.port) == Config.port
        assert pod["metadata"]["annotations"]["prometheus.io/port"] == str(config.ops_port)
        assert config.ops_host == "0.0.0.0"
        assert config.relay is (container.get("args") == ["relay"])
        assert pod["spec"]["terminationGracePeriodSeconds"] >= 2 * Config.shutdown_grace_s + AFTER_TERM_S + 5
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert container[probe]["httpGet"]["path"] in ("/_/health/live", "/_/health/ready")
            assert container[probe]["httpGet"]["port"] in ports


def test_what_selects_pods_selects_those_that_there_are() -> None:
    labels = [each["spec"]["template"]["metadata"]["labels"] for each in of_kind("Deployment")]
    selectors = [
        each["spec"]["selector"]["matchLabels"]
        for each in (*of_kind("Deployment"), *of_kind("PodDisruptionBudget"))
    ]
    selectors += [each["spec"]["selector"] for each in of_kind("Service")]
    assert len(selectors) == 5
    for selector in selectors:
        assert any(selector.items() <= each.items() for each in labels), selector


# -- systemd


def unit(path: Path) -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = {}
    section = ""
    for line in path.read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(section, {}).setdefault(name, []).append(value)
    return found


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_runs_one_of_our_commands_with_settings_that_there_are(path: Path) -> None:
    service = unit(path)["Service"]
    (command,) = service["ExecStart"]
    assert command.split()[0] == "/opt/sluice/bin/sluice"
    assert command.split()[1:] in (["serve"], ["relay"], ["migrate"])
    assert (service["DynamicUser"], service["NoNewPrivileges"]) == (["yes"], ["yes"])
    known = {row.name for row in SETTINGS} | {f"{row.name}_FILE" for row in SETTINGS if row.secret}
    named = dict(each.split("=", 1) for line in service["Environment"] for each in line.split())
    assert named.keys() <= known
    credentials = {line.partition(":")[0] for line in service["LoadCredential"]}
    assert {value.removeprefix("%d/") for value in named.values() if value.startswith("%d/")} == credentials
    if command.endswith(("serve", "relay")):
        assert int(service["TimeoutStopSec"][0]) > 2 * Config.shutdown_grace_s + AFTER_TERM_S
        plain = {name: value.replace("%i", "8017").replace("%d", "/run") for name, value in named.items()}
        urls = {"/run/redis_url": "redis://r", "/run/postgres_url": "postgresql://p"}
        assert Config.from_environ(plain, urls.__getitem__).ops_port


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_knows_every_line(path: Path, tmp_path: Path) -> None:
    configparser.ConfigParser(strict=False, interpolation=None).read_string(path.read_text())
    if shutil.which("systemd-analyze") is None:
        return
    copy = tmp_path / path.name.replace("@", "@8017")
    copy.write_text(path.read_text().replace("/opt/sluice/bin/sluice", "/bin/true"))
    checked = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, check=False)
    assert copy.name not in checked.stderr, checked.stderr


# -- Prometheus and Grafana


def exported() -> set[str]:
    """The names of all series that a gateway exports."""
    names = set(METRICS)
    return names | {f"{name.removesuffix('_total')}{suffix}" for name in names for suffix in SUFFIXES}


def expressions() -> list[str]:
    rules = [rule["expr"] for group in RULES["groups"] for rule in group["rules"]]
    panels = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
    variables = [each["definition"] for each in DASHBOARD["templating"]["list"] if "definition" in each]
    return [*rules, *panels, *variables]


def test_every_metric_that_is_asked_for_is_exported_with_its_labels() -> None:
    of_process = {"process_cpu_seconds_total", "process_resident_memory_bytes"}
    labels = {label for row in METRICS.values() for label in row.labels} | {"instance", "le", "job"}
    for expression in expressions():
        assert set(WORD.findall(expression)) <= exported() | of_process, expression
        matched = re.findall(r"[{,] *([a-z_]+) *(?:=~|=|!=|!~)", expression)
        grouped = [
            name.strip() for each in re.findall(r"\bby \(([^)]*)\)", expression) for name in each.split(",")
        ]
        assert {*matched, *grouped} <= labels, expression


def test_every_alert_says_what_it_is_and_where_to_read_on() -> None:
    rules = [rule for group in RULES["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules) > 10
    for rule in rules:
        assert rule["labels"]["severity"] in ("page", "ticket")
        notes = rule["annotations"]
        assert notes["summary"] and notes["description"]
        page, _, anchor = notes["runbook"].partition("#")
        text = (ROOT / page).read_text()
        assert not anchor or anchor in anchors(text), notes["runbook"]


def test_promtool_accepts_the_rules() -> None:
    if shutil.which("promtool") is None:  # the two tests above read them without it
        return
    rules = DEPLOY / "prometheus/sluice.rules.yaml"
    checked = subprocess.run(
        ["promtool", "check", "rules", rules], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_log_events_that_alerts_name_are_logged() -> None:
    known = set(LOG_EVENTS)
    for expression in expressions():
        for names in re.findall(r'event=~?"([^"]+)"', expression):
            assert set(names.split("|")) <= known


def test_the_dashboard_is_one_that_grafana_imports() -> None:
    panels = DASHBOARD["panels"]
    assert DASHBOARD["uid"] == "sluice" and DASHBOARD["schemaVersion"] >= 39
    assert len({panel["id"] for panel in panels}) == len(panels) > 15
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells
        for target in panel.get("targets", ()):
            assert target["expr"] and target["refId"] and target["datasource"]["uid"] == "${datasource}"
