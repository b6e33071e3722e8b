# Entry points for building, testing and measuring. `make` lists them.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup run audit check test test-all nightly test-clients cluster bench bench-guard bench-quick bench-presence bench-cluster bench-events bench-local bench-sql bench-appends bench-buses fmt fuzz sim storm many-nodes mutants openapi planted-faults journeys docs dist dist-clients reference torture torture-events torture-local torture-parties torture-sql truth bench-parties bench-history install clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install everything that tests and benchmarks need
	@scripts/setup all

run: ## start the server in dev mode: http://127.0.0.1:7400, Redis protocol on 7401
	cargo run --profile quick --locked -p tavern -- dev $(ARGS)

dist: ## make the files of a release in dist/: tarball, Debian package, SBOM, checksums; BIN: use this program
	@BIN='$(BIN)' OUT='$(OUT)' scripts/dist

dist-clients: ## make the packages of the clients in dist/clients: npm, PyPI, crates.io, NuGet, Unity, checksums
	@OUT='$(OUT)' scripts/dist-clients

install: ## install program, service, man pages and completions into PREFIX (/usr/local) below DESTDIR; BIN: use this program
ifndef BIN
	cargo build --release --locked -p tavern
endif
	@PREFIX='$(PREFIX)' SYSCONFDIR='$(SYSCONFDIR)' DESTDIR='$(DESTDIR)' BIN='$(BIN)' scripts/install

journeys: ## what a new user does, in full size: tokens from three languages, proxies with 1,500 clients, webhooks, upgrade, move
	JOURNEYS=full scripts/test -- tests/journeys

cluster: ## run three servers with load, a live table and keys that inject faults; ENGINE=sqlite|postgres|redis
	@cargo build --release -q -p tavern
	@scripts/cluster $(ENGINE) $(ARGS)

check: ## before each commit: format, lints, tests of the rules, the simulator with few seeds; needs only Rust, a C compiler and Python
	@scripts/test check

test: ## everything a change must pass on any machine: also real engines, real servers and clients; installs what it needs
	@scripts/test test

test-all: ## `test`, then every combination of engines, all browser tests, test suites of others, install files, measurements of time
	@scripts/test all

nightly: sim openapi torture torture-events torture-parties torture-sql torture-local mutants fuzz planted-faults ## the campaigns, one after another: several hours

audit: ## check the dependencies: licences, bans, sources, and published vulnerabilities (needs cargo-deny and the network)
	@scripts/audit

test-clients: ## run only the pytest suites; ARGS go to pytest, e.g. make test-clients ARGS='-k resume'
	@scripts/test -- $(ARGS)

bench: ## compare with redis-server and nats-server; writes bench/out and bench/RESULTS.md
	@scripts/bench full $(ARGS)

bench-quick: ## the same workloads, shorter; prints only
	@scripts/bench quick $(ARGS)

bench-presence: ## measure presence, compared with Radar on Redis; writes its section of bench/RESULTS.md
	@scripts/bench presence $(ARGS)

bench-cluster: ## measure clusters on Redis, Postgres and NATS; writes its section of bench/RESULTS.md
	@scripts/bench cluster $(ARGS)

bench-events: ## measure topics and webhooks on SQLite, compared with the disk and Redis; writes its section of bench/RESULTS.md
	@scripts/bench events $(ARGS)

bench-parties: ## measure parties on SQLite and in memory, with many parked polls; writes its section of bench/RESULTS.md
	@scripts/bench parties $(ARGS)

bench-history: ## measure channel history, compared with Redis Streams; writes its section of bench/RESULTS.md
	@scripts/bench history $(ARGS)

bench-local: ## measure pub/sub on a folder between two processes, compared with a Unix socket
	cargo run --release -q -p tavern-local --example speed

bench-sql: ## measure publishing from SQL beside plain INSERTs on Postgres; writes its section of bench/RESULTS.md
	@scripts/setup && cargo build --release --locked -p tavern
	@TAVERN_BIN="$${TAVERN_BIN:-$${CARGO_TARGET_DIR:-target}/release/tavern}" target/venv/bin/python scripts/bench-postgres sql $(ARGS)

bench-buses: ## measure a bus between 3, 10 and 30 nodes on Postgres, NATS and Redis, in turn; writes its section of bench/RESULTS.md
	@scripts/setup && cargo build --release --locked -p tavern-engines --examples
	@target/venv/bin/python scripts/bench-postgres buses $(ARGS)

bench-appends: ## measure appends to the log of topics by 3, 10 and 30 nodes on Postgres and Redis, in turn; writes its section of bench/RESULTS.md
	@scripts/setup && cargo build --release --locked -p tavern-engines --examples
	@target/venv/bin/python scripts/bench-postgres appends $(ARGS)

bench-guard: ## count the instructions of hot paths and compare with bench/guard.json (needs valgrind); BASE: compare with this revision; ARGS=--write: record
	@scripts/bench-guard $(if $(BASE),--base $(BASE)) $(ARGS)

docs: ## write the documentation as a static site; OUT: the folder (dist/docs)
	cargo build -q --profile quick --locked -p tavern
	@scripts/setup >/dev/null && TAVERN_BIN=target/quick/tavern target/venv/bin/python scripts/docs-export $(OUT)

reference: ## write the pages of docs/reference that come from the program, and packaging/tavern.toml
	TAVERN_WRITE=1 cargo test -q -p tavern --lib config::example
	cargo build -q -p tavern
	@TAVERN_BIN=target/debug/tavern target/venv/bin/python scripts/reference

fmt: ## format the Rust code
	cargo fmt --all

fuzz: ## fuzz each target for FUZZ_SECONDS (60)
	@scripts/fuzz

sim: ## long runs of the deterministic simulator (ARGS go to it), then property tests of the rules
	cargo run --release -p tavern-sim -- --runs 20000 --swarm $(ARGS)
	PROPTEST_CASES=20000 cargo test --release -p tavern-domain

openapi: ## compare the server with its OpenAPI document: 300 generated requests for each operation
	TAVERN_OPENAPI_EXAMPLES=300 scripts/test -- tests/openapi

mutants: ## change the rules one expression at a time and check that a test notices; ARGS: a smaller sample, e.g. 0/40
	@scripts/mutants $(ARGS)

planted-faults: ## build ten faults into engines and hub, one at a time: which suite is the first to find each
	@scripts/planted-faults $(ARGS)

torture: ## fault injection on three servers and every combination of engines; ARGS go to scripts/torture; writes bench/TORTURE.md
	@scripts/torture $(ARGS)

torture-events: ## kill servers 5,000 times during publishing and delivery of events; KILLS sets the number, ARGS go to pytest
	@scripts/torture-events $(ARGS)

torture-local: ## kill publishers and subscribers of a folder 1,000 times
	cargo build --release -p tavern-local --examples
	TAVERN_LOCAL_KILLS=1000 cargo test --release -p tavern-local --test it killed -- --nocapture

torture-parties: ## race concurrent party commands on two servers, 1,000 times each, on every combination of engines
	TAVERN_PARTY_RACES=1000 scripts/test -- tests/parties/test_races.py -n 2

torture-sql: ## kill servers, connections of applications and Postgres 500 times while applications publish from SQL; KILLS sets the number
	TAVERN_SQL_KILLS=$${KILLS:-500} scripts/test -- tests/cluster/test_sql_kills.py -rP

many-nodes: ## twenty real servers on each combination of engines: 2,000 clients, a rolling restart, a kill; ARGS go to scripts/many-nodes
	@scripts/setup all && cargo build --release --locked -p tavern
	@TAVERN_BIN="$${TAVERN_BIN:-$${CARGO_TARGET_DIR:-target}/release/tavern}" target/venv/bin/python scripts/many-nodes $(ARGS)

storm: ## clients that all connect to one server at once, while others exchange messages; ARGS go to scripts/storm
	@scripts/setup && cargo build --release --locked -p tavern
	@TAVERN_BIN="$${TAVERN_BIN:-$${CARGO_TARGET_DIR:-target}/release/tavern}" target/venv/bin/python scripts/storm $(ARGS)

truth: ## how true is presence? Tavern beside Radar, Socket.IO and others, with cut cables and killed servers; writes bench/TRUTH.md
	@scripts/truth $(ARGS)

clean: ## remove build output and benchmark output
	cargo clean
	rm -rf bench/out
