"""The files in deploy/: they can be parsed, and agree with each other and with forebay."""

import json
import re
import tomllib
from pathlib import Path

import yaml
from forebay import telemetry
from forebay.config.load import load_settings

DEPLOY = Path(__file__).parents[2] / "deploy"


def test_the_configurations_are_valid_and_leave_time_to_drain() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    documents = {each["kind"]: each for each in yaml.safe_load_all((DEPLOY / "kubernetes/forebay.yaml").read_text())}
    pod = documents["Deployment"]["spec"]["template"]["spec"]
    seconds = {
        "forebay.toml": (int(compose["services"]["replica-1"]["stop_grace_period"].removesuffix("s")), None),
        "kubernetes": (pod["terminationGracePeriodSeconds"], documents["ConfigMap"]["data"]["forebay.toml"]),
    }
    for allowed, text in seconds.values():
        config = tomllib.loads(text or (DEPLOY / "forebay.toml").read_text())
        assert config["shutdown_delay_seconds"] + config["shutdown_grace_seconds"] < allowed


def test_forebay_takes_the_configuration(tmp_path: Path) -> None:
    text = (DEPLOY / "forebay.toml").read_text()
    path = tmp_path / "forebay.toml"
    path.write_text(text)
    (tmp_path / "tokens").write_text("")
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    hosts = compose["x-replica"]["environment"]["FOREBAY_ALLOWED_HOSTS"].partition(":-")[2].rstrip("}")
    settings = load_settings("serve", {"config": str(path), "http": "0.0.0.0:8000"}, {"FOREBAY_ALLOWED_HOSTS": hosts})
    assert settings.shutdown_delay_seconds == 5
    assert [*settings.upstreams] == ["example"]


def test_the_probes_ask_what_forebay_answers() -> None:
    documents = yaml.safe_load_all((DEPLOY / "kubernetes/forebay.yaml").read_text())
    (deployment,) = [each for each in documents if each["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    paths = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
    # A store that is away must not restart the process, only take it out of the rotation.
    assert paths == {"startup": "/health", "liveness": "/health", "readiness": "/ready"}
    assert deployment["spec"]["selector"]["matchLabels"] == deployment["spec"]["template"]["metadata"]["labels"]
    assert "httpchk GET /ready" in (DEPLOY / "haproxy.cfg").read_text()


def test_the_dashboard_shows_metrics_that_exist() -> None:
    dashboard = json.loads((DEPLOY / "grafana.json").read_text())
    source = Path(telemetry.__file__).read_text()
    metrics = {name.replace(".", "_") for name in re.findall(r'"(forebay\.\w+)"', source)}
    shown = {
        name
        for panel in dashboard["panels"]
        for target in panel["targets"]
        for name in re.findall(r"forebay_\w+", target["expr"])
    }
    assert shown
    # The exporter for Prometheus adds the unit and, to counters, `total`.
    assert {re.sub(r"(_bytes)?(_total)?$", "", name) for name in shown} <= metrics
