"""The image and the compose files. Tests do not use Docker: they parse the files as Docker does, and start the servers of each
compose file with its environment on real engines, which get the flags from the file.
"""
import contextlib
import os
import pathlib
import re
import subprocess

import pytest
import yaml

from install.files import PACKAGING, ROOT, SECRET, SPARE_DESCRIPTORS, check, check_report, seconds
from support.postgres_server import PostgresServer
from support.process import until
from support.redis_server import RedisServer
from support.tavern import Tavern, environment, program

COMPOSE = sorted((PACKAGING / "compose").glob("*.yaml"))
NAMES = [path.stem for path in COMPOSE]
SITES = {"SITE": "https://tavern.example", "ORIGINS": "https://app.example,https://www.app.example"}
PASSWORDS = SITES | {"TAVERN_SECRET": SECRET, "REDIS_PASSWORD": "red" * 8, "POSTGRES_PASSWORD": "pos" * 8}


def filled(value, variables):
    """Substitutes variables by the rules of compose; a required variable that is not set is an error."""
    if isinstance(value, dict):
        return {key: filled(one, variables) for key, one in value.items()}
    if isinstance(value, list):
        return [filled(one, variables) for one in value]
    if not isinstance(value, str):
        return value

    def put(found):
        if found[0] == "$$":
            return "$"
        name, _, message = found[1].partition(":?")
        if not variables.get(name):
            raise KeyError(f"{name}: {message}")
        return variables[name]

    return re.sub(r"\$\$|\$\{([^}]+)\}", put, value)


def services(path, variables=PASSWORDS):
    return filled(yaml.safe_load(path.read_text()), variables)["services"]


def image():
    """The instructions of the last stage: (name, arguments), with continuation lines joined."""
    text = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text())
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    last = max(n for n, line in enumerate(lines) if line[0] == "FROM")
    return [tuple(line) for line in lines[last:]], lines[:last]


def image_environment():
    steps, _ = image()
    return dict(pair.split("=", 1) for name, rest in steps if name == "ENV" for pair in rest.split())


def taverns(path):
    return {name: of for name, of in services(path).items() if of["image"] == "tavern"}


def test_the_compose_files_exist():
    assert NAMES == ["postgres", "redis", "sqlite"]


def test_the_image_runs_as_an_unprivileged_user(tmp_path):
    steps, before = image()
    given = dict(steps)
    assert given["USER"] == "7400:7400" and given["EXPOSE"].split() == ["7400", "7401"]
    assert any("cargo build --release --locked -p tavern" in step[1] for step in before)
    code, errors, values = check(tmp_path, TAVERN_SECRET=SECRET, **image_environment())
    assert (code, errors) == (0, [])
    assert values["listen"] == "0.0.0.0:7400" and values["resp"] == "0.0.0.0:7401"
    assert values["data"] == given["VOLUME"] == given["WORKDIR"]
    # The pinned compiler is the rust-version of the workspace.
    asked = re.search(r'^rust-version = "(.+)"', (ROOT / "Cargo.toml").read_text(), flags=re.M)[1]
    assert before[0][1].startswith(f"rust:{asked}-")


def test_the_commands_of_the_image_exist():
    given = dict(image()[0])
    command_line = yaml.safe_load(given["HEALTHCHECK"].split(" CMD ")[1])
    for command in (command_line, yaml.safe_load(given["ENTRYPOINT"]) + yaml.safe_load(given["CMD"])):
        assert command[0] == "tavern"
        run = subprocess.run([program(), *command[1:], "--help"], capture_output=True, text=True, timeout=20)
        assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("path", COMPOSE, ids=NAMES)
def test_compose_files_use_valid_settings(path, tmp_path):
    found = taverns(path)
    assert found
    for name, of in found.items():
        code, errors, values = check(tmp_path, **image_environment() | of["environment"])
        assert (code, errors) == (0, []), name
        assert values["node"] == of["environment"]["TAVERN_NODE"]
        assert values["origins"] == ["https://app.example", "https://www.app.example"]
        slowest_ms = values["sessions.drain_ms"] + values["events.request_timeout_ms"]
        assert seconds(of["stop_grace_period"]) * 1_000 > slowest_ms
        assert of["ulimits"]["nofile"] >= values["limits.connections"] + SPARE_DESCRIPTORS
    nodes = [of["environment"]["TAVERN_NODE"] for of in found.values()]
    assert len(set(nodes)) == len(nodes)


@pytest.mark.parametrize("path", COMPOSE, ids=NAMES)
def test_a_misspelt_variable_is_detected(path, tmp_path):
    of = next(iter(taverns(path).values()))
    code, report = check_report(tmp_path, TAVERN_STOER="x", **of["environment"])
    assert code == 0 and report["errors"] == [] and "TAVERN_STOER" in str(report["warnings"])


@pytest.mark.parametrize("path", COMPOSE, ids=NAMES)
def test_every_service_has_a_health_check_and_is_waited_for(path):
    all_of = services(path)
    for name, of in all_of.items():
        test = of["healthcheck"]["test"]
        assert test[0] in ("CMD", "CMD-SHELL") and seconds(of["healthcheck"]["timeout"]) > 0
        assert of["restart"] == "unless-stopped"
        # Data is in a declared volume.
        for volume in (volume for volume in of.get("volumes", []) if not volume.startswith("./")):
            assert volume.split(":")[0] in yaml.safe_load(path.read_text())["volumes"]
        if name in taverns(path):
            assert test == ["CMD", "tavern", "ready"]
            assert all(port.startswith("127.0.0.1:") for port in of["ports"]), "unencrypted ports are bound to loopback"
            waits = {other for other, how in of.get("depends_on", {}).items() if how["condition"] == "service_healthy"}
            assert waits == set(all_of) - set(taverns(path)) - {"proxy"}
    ports = [port.rsplit(":", 1)[0] for of in all_of.values() for port in of.get("ports", [])]
    assert len(set(ports)) == len(ports)


@pytest.mark.parametrize("path", COMPOSE, ids=NAMES)
def test_secrets_are_required_variables(path):
    text = path.read_text()
    wanted = set(re.findall(r"\$\{(\w+):\?", text))
    assert "TAVERN_SECRET" in wanted and not re.search(r"\$\{\w+\}|\$\{\w+:?-", text)
    for name in wanted:
        with pytest.raises(KeyError, match="https://" if name in SITES else "openssl rand -hex 32"):
            services(path, PASSWORDS | {name: ""})


@pytest.mark.parametrize("path", COMPOSE, ids=NAMES)
def test_the_proxy_reaches_every_server_and_is_trusted(path, tmp_path):
    whole = filled(yaml.safe_load(path.read_text()), PASSWORDS)
    proxy, servers = whole["services"]["proxy"], taverns(path)
    assert proxy["environment"]["SERVERS"].split() == [f"{name}:7400" for name in servers]
    assert set(proxy["depends_on"]) == set(servers)
    (network,) = whole["networks"]["default"]["ipam"]["config"]
    for of in servers.values():
        assert of["environment"]["TAVERN_TRUSTED_PROXIES"] == network["subnet"]
    (mounted,) = (volume for volume in proxy["volumes"] if volume.startswith("./"))
    file = path.parent / mounted.split(":")[0]
    for site in ("https://tavern.example", "http://localhost:8080"):
        said = subprocess.run(
            ["caddy", "adapt", "--adapter", "caddyfile", "--config", file], capture_output=True, text=True, timeout=20,
            env=os.environ | proxy["environment"] | {"SITE": site},
        )
        assert said.returncode == 0, said.stderr
        assert all(f'"dial":"{name}:7400"' in said.stdout for name in servers)


def test_the_dependency_layer_has_every_crate(tmp_path):
    """The image builds the dependencies with empty crates; cargo must accept them as the workspace."""
    _, steps = image()
    copied = [line[1].split() for line in steps if line[0] == "COPY" and line[1].split()[0].endswith(("Cargo.toml",))]
    for *sources, target in copied:
        for source in sources:
            place = tmp_path / target / pathlib.Path(source).name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes((ROOT / source).read_bytes())
    (fake,) = (line[1].split("&& cargo build")[0] for line in steps if line[0] == "RUN" and "touch $crate" in line[1])
    subprocess.run(["sh", "-ec", fake], cwd=tmp_path, check=True, timeout=20)
    host = re.search(r"^host: (\S+)$", subprocess.check_output(["rustc", "-vV"], text=True), flags=re.M)[1]
    asked = subprocess.run(["cargo", "metadata", "--locked", "--offline", "--format-version=1", "--filter-platform", host],
                           cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert asked.returncode == 0, asked.stderr


def flags(of):
    """The program and flags of an engine, as the shell of its command parses them."""
    shell, option, line = of["command"]
    assert (shell, option) == ("sh", "-c")
    said = subprocess.run(["sh", "-c", f"printf '%s\\n' {line.removeprefix('exec ')}"], env=of["environment"] | {"PATH": os.defpath},
                          capture_output=True, text=True, check=True)
    program, *rest = said.stdout.splitlines()
    return program, rest


class Container(Tavern):
    """A server with only the environment of a compose file."""

    def __init__(self, variables, **there):
        super().__init__("serve")
        self.config.unlink()
        self.variables = variables | {
            "TAVERN_LISTEN": f"127.0.0.1:{self.port}", "TAVERN_RESP": f"127.0.0.1:{self.resp_port}", "TAVERN_DATA": str(self.data),
        }
        for name, (old, new) in there.items():
            assert old in self.variables[name]
            self.variables[name] = self.variables[name].replace(old, new)

    def command(self):
        return [program(), "serve"]

    def environment(self):
        return environment() | self.variables


@contextlib.contextmanager
def engines(path, stack):
    """Starts the engines of a file with its flags; returns replacements for its addresses."""
    found, there = services(path), {}
    if "redis" in found:
        name, given = flags(found["redis"])
        assert name == "redis-server"
        server = stack.enter_context(RedisServer(*given))
        there["TAVERN_STORE"] = ("@redis:6379", f"@127.0.0.1:{server.resp_port}")
        asked = subprocess.run(
            ["sh", "-c", found["redis"]["healthcheck"]["test"][1].replace("redis-cli", f"redis-cli -p {server.resp_port}")],
            env=os.environ | found["redis"]["environment"], timeout=10,
        )
        assert asked.returncode == 0, "the health check passes"
    if "postgres" in found:
        login = found["postgres"]["environment"]
        server = stack.enter_context(PostgresServer())
        server.sql(f"CREATE ROLE {login['POSTGRES_USER']} LOGIN PASSWORD '{login['POSTGRES_PASSWORD']}'")
        server.sql(f"CREATE DATABASE {login['POSTGRES_DB']} OWNER {login['POSTGRES_USER']}")
        server.require_password(login["POSTGRES_USER"])
        there["TAVERN_STORE"] = ("@postgres:5432", f"@127.0.0.1:{server.port}")
    yield there


@pytest.mark.parametrize("path", COMPOSE, ids=NAMES)
def test_the_servers_of_a_file_form_one_cluster(path):
    with contextlib.ExitStack() as stack, engines(path, stack) as there:
        found = [stack.enter_context(Container(of["environment"], **there)) for of in taverns(path).values()]
        for server in found:
            asked = server.run("ready", "--url", server.url)
            assert (asked.returncode, asked.stdout) == (0, "ready\n"), asked.stderr
        made = found[0].run("key", "create", "--name", "x", "--scopes", "publish")
        assert made.returncode == 0, made.stderr
        # A key created on one server works on all.
        for server in found:
            until(lambda: "x" in server.run("key", "list").stdout, "the key to be listed")


def test_flags_are_parsed_like_a_shell():
    of = {"command": ["sh", "-c", 'exec it --pass "$P" -m 1'], "environment": {"P": "a b"}}
    assert flags(of) == ("it", ["--pass", "a b", "-m", "1"])
