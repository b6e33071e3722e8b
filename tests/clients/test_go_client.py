"""The Go client: its own tests with the race detector, and its use in an empty project."""
import os
import re
import shutil

import pytest

from support import tokens

from .toolchains import ROOT, run

HOME = ROOT / "clients" / "go"
# Modules come from what scripts/setup has downloaded.
ENVIRONMENT = os.environ | {"GOFLAGS": "-mod=mod -buildvcs=false", "GONOSUMDB": "*", "GOTOOLCHAIN": "local"}

PROGRAM = """package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	tavern "tavern.example/client"
)

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	ctx, url := context.Background(), os.Args[1]
	backend, err := tavern.NewBackend(url, os.Args[2])
	must(err)
	token, err := tavern.SignToken(os.Args[3], tavern.UserToken{User: "ann", Allow: map[string][]string{"*": {"subscribe", "publish"}}})
	must(err)
	client, err := tavern.Connect(ctx, url, tavern.Options{Token: token})
	must(err)
	heard := make(chan string, 8)
	room := client.Channel("game#go")
	room.OnMessage(func(message tavern.Message) { heard <- message.User + ": " + message.Text() })
	client.Me().OnInbox(func(message tavern.InboxMessage) { heard <- "inbox: " + string(message.Data) })
	must(room.Subscribe(ctx))
	_, err = room.Publish(ctx, "own")
	must(err)
	_, err = backend.Publish(ctx, "game#go", "published")
	must(err)
	results, err := backend.Broadcast(ctx, []string{"game#go", "user#x"}, "broadcast")
	must(err)
	many, err := backend.PublishMany(ctx, []tavern.ChannelMessage{{Channel: "game#go", Data: "many"}})
	must(err)
	must(backend.SendToInbox(ctx, "ann", 7))
	for range [5]int{} {
		fmt.Println(<-heard)
	}
	fmt.Println(results[0].Receivers, results[1].Error != nil, many[0].Receivers)
	_, err = backend.Call(ctx, "PUT", []string{"subscriptions", "go"}, nil, map[string]any{"topics": []string{"go"}, "pull": true})
	must(err)
	must(backend.PublishEvents(ctx, "go", tavern.NewEvent{Type: "a", Data: 1}, tavern.NewEvent{Type: "b"}))
	events, err := backend.Pull(ctx, "go", 0, 5*time.Second)
	must(err)
	for _, event := range events {
		fmt.Println(event.Type, string(event.Data))
	}
	fmt.Println(tavern.CodeOf(backend.Unban(ctx, "ann")))
	must(backend.Disconnect(ctx, "ann", tavern.DisconnectOptions{}))
	for client.State() != tavern.StateClosed {
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println(tavern.CodeOf(client.Err()))
}
"""
SEEN = """ann: own
: published
: broadcast
: many
inbox: 7
1 true 1
a 1
b null
not_found
gone
"""


def test_the_sources_are_formatted_and_pass_vet():
    assert run(["gofmt", "-l", "."], HOME) == ""
    run(["go", "vet", "./..."], HOME)


def test_unit_tests_pass_with_the_race_detector():
    assert "ok" in run(["go", "test", "-race", "-count=1", "."], HOME)


def test_the_module_is_used_by_an_empty_project(tmp_path, serve):
    # As a game and as its backend.
    # What a user gets: the module without its tests and without the rest of this repository.
    module, project = tmp_path / "module", tmp_path / "project"
    shutil.copytree(HOME, module, ignore=shutil.ignore_patterns("*_test.go", "internal"))
    for name in ("LICENSE", "README.md", "CHANGELOG.md", "go.sum"):
        assert (module / name).exists(), name
    project.mkdir()
    (project / "main.go").write_text(PROGRAM)
    run(["go", "mod", "init", "example"], project, ENVIRONMENT)
    replaced = f"-replace=tavern.example/client={module}"
    run(["go", "mod", "edit", "-require=tavern.example/client@v0.1.0", replaced], project, ENVIRONMENT)
    seen = run(["go", "run", ".", serve.url, serve.key, tokens.SECRET], project, ENVIRONMENT)
    assert seen.endswith(SEEN), seen


@pytest.mark.parametrize("wrong, message", [
    ('client.Channel("a").OnMessage(func(text string) {})', "cannot use"),
    ('client.Channel("a").Publish("no context")', "not enough arguments"),
    ('client.On("mesage", nil)', "undefined"),
    ('client.session.ended = nil', "undefined|unexported"),
    ('var _ string = client.Party().Current().Members[0].Online', "cannot use"),
])
def test_wrong_uses_do_not_compile(tmp_path, wrong, message):
    (tmp_path / "main.go").write_text(
        f'package main\n\nimport tavern "tavern.example/client"\n\nfunc use(client *tavern.Client) {{\n\t{wrong}\n}}\n\nfunc main() {{ use(nil) }}\n')
    run(["go", "mod", "init", "example"], tmp_path, ENVIRONMENT)
    run(["go", "mod", "edit", "-require=tavern.example/client@v0.1.0", f"-replace=tavern.example/client={HOME}"], tmp_path, ENVIRONMENT)
    with pytest.raises(AssertionError) as refused:
        run(["go", "build", "./..."], tmp_path, ENVIRONMENT)
    assert re.search(message, str(refused.value)), refused.value
