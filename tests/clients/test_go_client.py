"""The Go client: its own tests with the race detector, and its use in an empty project."""
import os
import re
import shutil

import pytest

from .toolchains import ROOT, run

HOME = ROOT / "clients" / "go"
# Modules come from what scripts/setup has downloaded.
ENVIRONMENT = os.environ | {"GOFLAGS": "-mod=mod -buildvcs=false", "GONOSUMDB": "*", "GOTOOLCHAIN": "local"}

PROGRAM = """package main

import (
	"context"
	"fmt"
	"log"

	tavern "tavern.example/client"
)

func main() {
	ctx := context.Background()
	client, err := tavern.Connect(ctx, "%s", tavern.Options{User: "ann"})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	published, err := client.Channel("go#package").Publish(ctx, map[string]int{"n": 1})
	fmt.Println(published.Receivers, err)
}
"""


def test_the_sources_are_formatted_and_pass_vet():
    assert run(["gofmt", "-l", "."], HOME) == ""
    run(["go", "vet", "./..."], HOME)


def test_unit_tests_pass_with_the_race_detector():
    assert "ok" in run(["go", "test", "-race", "-count=1", "."], HOME)


def test_the_module_is_used_by_an_empty_project(tmp_path, dev):
    # What a user gets: the module without its tests and without the rest of this repository.
    module, project = tmp_path / "module", tmp_path / "project"
    shutil.copytree(HOME, module, ignore=shutil.ignore_patterns("*_test.go", "internal"))
    for name in ("LICENSE", "README.md", "CHANGELOG.md", "go.sum"):
        assert (module / name).exists(), name
    project.mkdir()
    (project / "main.go").write_text(PROGRAM % dev.url)
    run(["go", "mod", "init", "example"], project, ENVIRONMENT)
    replaced = f"-replace=tavern.example/client={module}"
    run(["go", "mod", "edit", "-require=tavern.example/client@v0.1.0", replaced], project, ENVIRONMENT)
    assert run(["go", "run", "."], project, ENVIRONMENT).endswith("0 <nil>\n")


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
