"""The systemd unit and its configuration and secrets files."""
import re
import shutil
import subprocess

from install.files import PACKAGING, SECRET, SPARE_DESCRIPTORS, check, seconds, unit
from support.tavern import program

CONFIG = PACKAGING / "tavern.toml"
SERVICE = (PACKAGING / "systemd" / "tavern.service").read_text()


def uncommented():
    """The example configuration with all keys uncommented, without mutually exclusive ones."""
    keys = re.compile(r"#(\[.+\]|[a-z_]+ = .+)$")
    text = "\n".join(keys.sub(r"\1", line) for line in CONFIG.read_text().splitlines())
    # `store` excludes `data`, and the key file does not exist.
    return re.sub(r"^(data|store) = .*\n|^\[\[tokens.keys\]\]\n(.+\n)*", "", text + "\n", flags=re.M)


def test_the_example_is_a_valid_configuration(tmp_path):
    code, errors, values = check(tmp_path, "--config", CONFIG, TAVERN_SECRET=SECRET)
    assert (code, errors) == (0, [])
    assert values["data"] == "/var/lib/tavern"


def test_every_key_of_the_example_is_valid_with_its_real_default(tmp_path):
    whole = tmp_path / "whole.toml"
    text = uncommented()
    whole.write_text(text)
    code, errors, values = check(tmp_path, "--config", whole, TAVERN_SECRET=SECRET, TAVERN_PUSHER_APPS_0_SECRET=SECRET)
    assert (code, errors) == (0, []), errors
    _, _, presets = check(tmp_path, TAVERN_SECRET=SECRET)
    assert len(re.findall(r"^[a-z_]+ = ", text, flags=re.M)) > 20
    section, example = "", False
    for line in CONFIG.read_text().splitlines():
        bare = line.lstrip("#")
        if bare.startswith(" "):
            example = line == "# For example:"
        elif named := re.fullmatch(r"\[(.+)\]", bare):
            section = named[1] + "."
            # The following keys belong to one entry of a table.
            if example:
                break
        elif found := re.fullmatch(r"([a-z_]+) = .+", bare):
            key = section + found[1]
            if key not in ("data", "store") and not example:
                assert values[key] == presets[key], f"{key} has a different default"
        else:
            assert not bare, line


def test_a_misspelt_key_is_detected(tmp_path):
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(uncommented().replace("drain_ms", "drain_sm"))
    code, errors, _ = check(tmp_path, "--config", wrong, TAVERN_SECRET=SECRET)
    assert code == 1 and any("drain_sm" in error for error in errors)


def test_every_variable_of_the_secrets_file_is_valid(tmp_path):
    named = dict(re.findall(r"^#?(TAVERN_\w+)=(.*)$", (PACKAGING / "tavern.env").read_text(), flags=re.M))
    assert set(named) == {"TAVERN_SECRET", "TAVERN_ADMIN_KEY", "TAVERN_STORE", "TAVERN_BUS"}
    given = {name: value or SECRET for name, value in named.items()}
    assert check(tmp_path, **given)[:2] == (0, [])


def test_the_unit_matches_the_needs_of_the_server(tmp_path):
    service = unit(SERVICE)["Service"]
    _, _, values = check(tmp_path, "--config", CONFIG, TAVERN_SECRET=SECRET)
    slowest_ms = values["sessions.drain_ms"] + values["events.request_timeout_ms"]
    assert seconds(service["TimeoutStopSec"][0]) * 1_000 > slowest_ms
    assert int(service["LimitNOFILE"][0]) >= values["limits.connections"] + SPARE_DESCRIPTORS
    assert f"/var/lib/{service['StateDirectory'][0]}" == values["data"] == service["WorkingDirectory"][0]
    assert service["KillSignal"] == ["SIGTERM"] and service["Restart"] == ["on-failure"]
    users = (PACKAGING / "systemd" / "tavern.sysusers").read_text().splitlines()[-1].split()
    assert users[:2] == ["u", service["User"][0]]


def test_the_unit_is_hardened():
    service = unit(SERVICE)["Service"]
    for key in ("NoNewPrivileges", "ProtectHome", "PrivateTmp", "PrivateDevices", "MemoryDenyWriteExecute", "RestrictNamespaces"):
        assert service[key] == ["yes"], key
    assert service["ProtectSystem"] == ["strict"] and service["CapabilityBoundingSet"] == [""]
    assert service["EnvironmentFile"] == ["-/etc/tavern/tavern.env"]
    # No secrets on the command line, which all users can see.
    assert not re.search(r"secret|password|--admin-key", service["ExecStart"][0], flags=re.I)


def test_systemd_accepts_the_unit(tmp_path):
    """With systemd-analyze where installed; `unit` has parsed every line in any case."""
    service = unit(SERVICE)
    assert set(service) == {"Unit", "Service", "Install"}
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        return
    copy = tmp_path / "tavern.service"
    # systemd-analyze looks for the program and warns about unknown keys.
    copy.write_text(SERVICE.replace("/usr/local/bin/tavern", str(program())))
    judged = subprocess.run([analyze, "verify", "--man=no", copy], capture_output=True, text=True, timeout=60)
    about = [line for line in judged.stderr.splitlines() if "tavern.service" in line]
    assert (judged.returncode, about) == (0, []), judged.stderr
