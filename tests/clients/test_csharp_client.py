"""The C# client: its own tests with Mono, and its NuGet package in an empty project."""
import os
import re
import shutil
import subprocess

import pytest

from support import tokens

from .toolchains import CSHARP, MCS, ROOT, run

# As a game and as its backend.
PROGRAM = """
using System;
using System.Collections.Concurrent;
using System.Collections.Generic;
using System.Linq;
using System.Threading.Tasks;
using Tavern;

static class Program
{
    static void Main(string[] given) => Run(given[0], given[1], given[2]).Wait();

    static async Task Run(string url, string key, string secret)
    {
        var backend = new Backend(url, key);
        var allow = new Dictionary<string, string[]> { { "*", new[] { "subscribe", "publish" } } };
        var client = new Client(url, new Options { Token = Backend.SignToken(secret, "ann", allow: allow) });
        var closed = new TaskCompletionSource<string>();
        client.OnClosed += why => closed.TrySetResult(why.Code);
        await client.ConnectAsync();
        var heard = new BlockingCollection<string>();
        var room = client.Channel("game#csharp");
        room.OnMessage += message => heard.Add(message.User + ": " + message.Data.AsString());
        client.Me.OnInbox += message => heard.Add("inbox: " + message.Data);
        await room.SubscribeAsync();
        await room.PublishAsync("own");
        await backend.PublishAsync("game#csharp", "published");
        var results = await backend.BroadcastAsync(new[] { "game#csharp", "user#x" }, "broadcast");
        await backend.SendToInboxAsync("ann", 7);
        for (var left = 4; left > 0; left--) Console.WriteLine(heard.Take());
        Console.WriteLine(results[0]["receivers"] + " " + results[1].Has("error"));
        await backend.CallAsync("PUT", new[] { "subscriptions", "csharp" }, "", new { topics = new[] { "csharp" }, pull = true });
        await backend.PublishEventsAsync("csharp", new object[] { new { type = "a", data = 1 }, new { type = "b" } });
        foreach (var one in await backend.PullAsync("csharp", 0, TimeSpan.FromSeconds(5))) Console.WriteLine(one["type"].AsString() + " " + one["data"]);
        try
        {
            await backend.UnbanAsync("ann");
        }
        catch (TavernException refused)
        {
            Console.WriteLine(refused.Code);
        }
        await backend.DisconnectAsync("ann");
        Console.WriteLine(await closed.Task);
    }
}
"""
SEEN = """ann: own
: published
: broadcast
inbox: 7
1 True
a 1
b null
not_found
gone
"""


def sources():
    return sorted((CSHARP / "Tavern").glob("*.cs"))


def test_unit_tests_pass(tmp_path):
    program = tmp_path / "tests.exe"
    # The fields of a test's class are filled by reflection.
    run([*MCS, "-nowarn:649", f"-out:{program}", *sources(), CSHARP / "tests/Tests.cs"], CSHARP)
    assert " tests passed" in run(["mono", "--debug", program, ROOT / "clients/vectors"], tmp_path)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A copy of the project with its library, compiled."""
    project = tmp_path_factory.mktemp("csharp") / "csharp"
    shutil.copytree(CSHARP, project, ignore=shutil.ignore_patterns("tests", "build"))
    (project / "build").mkdir()
    run([*MCS, "-target:library", "-doc:build/Tavern.xml", "-out:build/Tavern.dll", *sources()], project)
    return project


def test_the_package_is_used_by_an_empty_project(library, tmp_path, serve):
    environment = os.environ | {"HOME": str(tmp_path), "TERM": "dumb"}
    packed = subprocess.run(
        ["nuget", "pack", "Tavern.nuspec", "-NoPackageAnalysis", "-NonInteractive", "-OutputDirectory", tmp_path], cwd=library, env=environment,
        stdin=subprocess.DEVNULL, text=True, capture_output=True, timeout=300)
    assert packed.returncode == 0, packed.stdout + packed.stderr
    installed = subprocess.run(
        ["nuget", "install", "Tavern.Client", "-Source", tmp_path, "-OutputDirectory", tmp_path / "packages", "-NonInteractive"], cwd=tmp_path,
        env=environment, stdin=subprocess.DEVNULL, text=True, capture_output=True, timeout=300)
    assert installed.returncode == 0, installed.stdout + installed.stderr
    package = tmp_path / "packages" / "Tavern.Client.0.1.0"
    for name in ("README.md", "LICENSE.txt", "CHANGELOG.md", "lib/netstandard2.0/Tavern.xml"):
        assert (package / name).exists(), name
    project = tmp_path / "project"
    project.mkdir()
    shutil.copy(package / "lib/netstandard2.0/Tavern.dll", project)
    (project / "Program.cs").write_text(PROGRAM)
    run(["mcs", "-r:Tavern.dll", "-out:program.exe", "Program.cs"], project)
    assert run(["mono", "program.exe", serve.url, serve.key, tokens.SECRET], project) == SEEN


@pytest.mark.parametrize("wrong, message", [
    ('client.Channel("a").OnMesage += message => { };', "CS1061"),
    ('client.Channel("a").OnMessage += (string text) => { };', "CS1661|CS1678"),
    ('client.Session.WhyEnded = null;', "CS0122|CS1061"),
    ('long id = client.Party.Current.Members[0].Online;', "CS0029"),
    ('client.Me.SetVisibilityAsync("nobody");', "CS1503|CS1502"),
])
def test_wrong_uses_do_not_compile(library, tmp_path, wrong, message):
    (tmp_path / "Program.cs").write_text(f"static class Program {{ static void Main() {{ }} static void Use(Tavern.Client client) {{ {wrong} }} }}")
    with pytest.raises(AssertionError) as refused:
        run(["mcs", f"-r:{library}/build/Tavern.dll", "-out:program.exe", "Program.cs"], tmp_path)
    assert re.search(message, str(refused.value)), refused.value
