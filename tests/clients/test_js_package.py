"""The package @tavern/client: packed, installed into an empty project, used with import and require, with types, and with React."""
import json
import pathlib
import shutil
import subprocess

import pytest

from support.json_client import Socket

from .client_processes import MODULES

CLIENT = pathlib.Path(__file__).resolve().parents[2] / "clients" / "js"
HERE = pathlib.Path(__file__).resolve().parent
INSTALLED = MODULES / "node_modules"
USES = """
const tavern = new Tavern('http://localhost:1', { user: 'ann' });
console.log(JSON.stringify([tavern.state, typeof signToken, typeof TavernError]));
"""
APP = """
import { Tavern, TavernError, type Presence } from '@tavern/client';
import { Backend } from '@tavern/client/backend';
const tavern = new Tavern('http://localhost:7400', { user: 'ann', transports: ['websocket', 'poll'] });
export const room: Promise<Presence<{ seat: number }>> = tavern.channel<string, { seat: number }>('game#1').presence();
export const sent: Promise<void> = tavern.channel<string>('game#1').publish('x').then(() => {}, (error: TavernError) => console.log(error.retryAfterMs?.toFixed()));
export const backend = new Backend('http://localhost:7400', { key: 'tvk_x' });
// @ts-expect-error: a user name is a string
export const followed = tavern.me.follow(7);
"""
HOOKS = """
import { TavernProvider, useChannel, usePresence } from '@tavern/client/react';
export const Room = () => { const { messages } = useChannel<string>('x'); return <b>{messages.map(({ data }) => data.length)}{usePresence<{ n: 1 }>('x', { n: 1 }).count}</b>; };
export const App = ({ client }: { client: import('@tavern/client').Tavern }) => <TavernProvider client={client}><Room /></TavernProvider>;
"""


def run(*command, cwd):
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    """An empty project with the packed package installed."""
    home = tmp_path_factory.mktemp("app")
    source = home / "source"
    shutil.copytree(CLIENT, source, ignore=shutil.ignore_patterns("dist", "node_modules"))
    packed = run("npm", "pack", "--silent", "--pack-destination", home, cwd=source).split()[-1]
    (home / "package.json").write_text('{"name": "app", "private": true, "type": "module"}')
    run("npm", "install", "--silent", "--offline", "--no-audit", "--no-fund", "--ignore-scripts", home / packed, cwd=home)
    for name in ("react", "react-test-renderer", "react-is", "scheduler", "@types", "csstype"):
        (home / "node_modules" / name).symlink_to(INSTALLED / name)
    return home


def test_package_has_what_it_names(app):
    package = app / "node_modules" / "@tavern" / "client"
    described = json.loads((package / "package.json").read_text())
    for entry in described["exports"].values():
        for how in entry.values():
            for path in how.values():
                assert (package / path).exists(), path
    assert {"LICENSE", "CHANGELOG.md", "README.md"} <= {path.name for path in package.iterdir()}
    assert (package / "LICENSE").read_bytes() == (CLIENT.parents[1] / "LICENSE").read_bytes()
    assert not list(package.rglob("*.test.mjs"))


@pytest.mark.parametrize("how", ["import", "require"])
def test_package_runs(app, how):
    named = {"import": "import {} from '{}';", "require": "const {} = require('{}');"}[how].replace("{}", "%s")
    lines = [named % ("{ Tavern, TavernError }", "@tavern/client"), named % ("{ signToken }", "@tavern/client/backend"), USES]
    name = "run.mjs" if how == "import" else "run.cjs"
    (app / name).write_text("\n".join(lines))
    assert json.loads(run("node", name, cwd=app)) == ["idle", "function", "function"]


@pytest.mark.parametrize("name, options", [("app.ts", ["--module", "es2022", "--moduleResolution", "bundler"]), ("app.mts", ["--module", "nodenext"]), ("app.cts", ["--module", "nodenext"])])
def test_types_work(app, name, options):
    (app / name).write_text(APP)
    run(INSTALLED / ".bin" / "tsc", "--noEmit", "--strict", "--target", "es2022", "--lib", "es2022,dom,dom.iterable", "--types", "", *options, name, cwd=app)


def test_types_of_hooks_work(app):
    (app / "hooks.tsx").write_text(HOOKS)
    options = ["--module", "es2022", "--moduleResolution", "bundler", "--jsx", "react-jsx", "--lib", "es2022,dom,dom.iterable", "--types", ""]
    run(INSTALLED / ".bin" / "tsc", "--noEmit", "--strict", "--target", "es2022", *options, "hooks.tsx", cwd=app)


def test_types_work_when_the_folder_is_installed(tmp_path):
    (tmp_path / "package.json").write_text('{"name": "app", "private": true, "type": "module"}')
    (tmp_path / "node_modules" / "@tavern").mkdir(parents=True)
    (tmp_path / "node_modules" / "@tavern" / "client").symlink_to(CLIENT)
    (tmp_path / "app.ts").write_text(APP)
    options = ["--module", "es2022", "--moduleResolution", "bundler", "--lib", "es2022,dom,dom.iterable", "--types", ""]
    run(INSTALLED / ".bin" / "tsc", "--noEmit", "--strict", "--target", "es2022", *options, "app.ts", cwd=tmp_path)


def test_hooks_survive_strict_mode_without_a_flicker(app, dev):
    shutil.copy(HERE / "node" / "react_hooks.mjs", app)
    with Socket(dev, user="watcher") as watcher:
        watcher.ok("subscribe", channel="room#react", presence=True)
        facts = {}
        for line in run("node", "react_hooks.mjs", dev.url, cwd=app).splitlines():
            facts |= json.loads(line)
        assert facts == {"connection": "open", "messages": ["two", "three"], "others": ["one", "two", "three"], "party": ["bob", "ann"], "done": True, "receivers": 1}
        changes = [event for event in watcher.events_so_far() if event["event"] != "message"]
        assert [event["event"] for event in changes] == ["user_online", "client_online", "client_updated", "client_offline", "user_offline"]
