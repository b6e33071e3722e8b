"""The Helm chart, with the real Helm: it lints, its output is what Kubernetes expects, and Tavern accepts its configuration."""
import pathlib
import re
import subprocess

import pytest
import yaml

from install.files import PACKAGING, ROOT, SECRET, check
from install.test_containers import image_environment

CHART = PACKAGING / "helm" / "tavern"
HELM = ROOT / "target/go/bin/helm"
VALUES = re.search(r"```yaml\n# values.yaml\n(.*?)```", (ROOT / "docs/deploy/kubernetes.md").read_text(), flags=re.S)[1]


def helm(command, *arguments):
    # Without a cluster, Helm assumes an old version of Kubernetes.
    version = ["--kube-version", "1.30.0"]
    return subprocess.run([HELM, command, *arguments, *version], capture_output=True, text=True, timeout=60)


def rendered(*arguments, name="tavern"):
    done = helm("template", name, CHART, "--set", f"secret.value={SECRET}", *arguments)
    assert done.returncode == 0, done.stderr
    found = [one for one in yaml.safe_load_all(done.stdout) if one]
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


@pytest.fixture
def documented(tmp_path):
    """The values that the documentation shows."""
    path = tmp_path / "values.yaml"
    path.write_text(VALUES)
    return path


def container(objects, name="tavern"):
    (one,) = objects["StatefulSet", name]["spec"]["template"]["spec"]["containers"]
    return one


def test_the_chart_lints(documented):
    done = helm("lint", "--strict", CHART, "--set", f"secret.value={SECRET}", "--values", documented)
    assert done.returncode == 0, done.stdout + done.stderr


def test_one_server_keeps_its_data_in_a_volume():
    objects = rendered()
    spec = objects["StatefulSet", "tavern"]["spec"]
    assert [one["metadata"]["name"] for one in spec["volumeClaimTemplates"]] == ["data"]
    assert not any(kind in ("Ingress", "PodDisruptionBudget", "ServiceMonitor") for kind, _ in objects)


def test_the_documented_values_give_a_cluster(documented):
    objects = rendered("--values", documented)
    spec = objects["StatefulSet", "tavern"]["spec"]
    assert spec["replicas"] == 3 and "volumeClaimTemplates" not in spec
    assert ("PodDisruptionBudget", "tavern") in objects and ("Secret", "tavern") not in objects
    paths = objects["Ingress", "tavern"]["spec"]["rules"][0]["http"]["paths"]
    assert [path["path"] for path in paths] == ["/v1", "/client.js"]


def test_several_servers_without_a_store_are_refused():
    done = helm("template", "tavern", CHART, "--set", f"secret.value={SECRET}", "--set", "replicas=2")
    assert done.returncode != 0 and "external store" in done.stderr


def test_a_missing_secret_is_refused_with_advice():
    done = helm("template", "tavern", CHART)
    assert done.returncode != 0 and "openssl rand -hex 32" in done.stderr


def test_tavern_accepts_the_configuration(documented, tmp_path):
    objects = rendered("--values", documented)
    file = tmp_path / "tavern.toml"
    file.write_text(objects["ConfigMap", "tavern"]["data"]["tavern.toml"])
    variables = {one["name"]: "tavern-0" for one in container(objects)["env"] if one["name"] == "TAVERN_NODE"}
    code, errors, values = check(tmp_path, "--config", file, TAVERN_SECRET=SECRET, **image_environment() | variables)
    assert (code, errors) == (0, []), file.read_text()
    assert values["origins"] == ["https://app.example"] and values["sessions.drain_ms"] == 20_000
    assert values["trusted_proxies"] == ["10.0.0.0/8"] and values["node"] == "tavern-0"
    assert values["kinds.room.allow"] == ["subscribe", "publish", "join", "presence"]


def test_the_pod_fits_the_server(tmp_path):
    objects = rendered()
    pod = objects["StatefulSet", "tavern"]["spec"]["template"]["spec"]
    _, _, values = check(tmp_path, TAVERN_SECRET=SECRET)
    assert pod["terminationGracePeriodSeconds"] * 1_000 > values["sessions.drain_ms"] + values["events.request_timeout_ms"]
    one = container(objects)
    assert one["readinessProbe"]["httpGet"]["path"] == "/readyz" and one["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert {port["containerPort"] for port in one["ports"]} == {7400, 7401}
    # No secret is in the configuration or on the command line.
    assert SECRET not in str(objects["ConfigMap", "tavern"]) and SECRET not in str(one)
    assert pathlib.Path(one["args"][2]).parent.as_posix() == one["volumeMounts"][0]["mountPath"]


def test_every_service_selects_the_pods():
    objects = rendered("--set", "serviceMonitor.enabled=true", name="blue")
    labels = objects["StatefulSet", "blue-tavern"]["spec"]["template"]["metadata"]["labels"]
    services = [one for (kind, _), one in objects.items() if kind == "Service"]
    assert len(services) == 2
    for one in services:
        assert one["spec"]["selector"].items() <= labels.items()
    # Each pod is scraped once.
    wanted = objects["ServiceMonitor", "blue-tavern"]["spec"]["selector"]["matchLabels"]
    assert sum(wanted.items() <= one["metadata"]["labels"].items() for one in services) == 1


def test_the_version_is_that_of_the_program():
    version = re.search(r'^version = "(.+)"', (ROOT / "Cargo.toml").read_text(), flags=re.M)[1]
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == version
