# The front door: every routine of this repository by name. `make` alone lists them.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup run test test-clients cluster bench bench-quick bench-presence bench-cluster bench-events bench-local fmt fuzz sim mutants torture torture-events torture-local torture-parties bench-parties install clean

help: ## list the routines
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what the tests and benchmarks need and is missing
	@scripts/setup

run: ## start the server in dev mode: http://127.0.0.1:7400, Redis protocol on 7401
	cargo run --release -p tavern -- dev $(ARGS)

install: ## the program, service, manual and completions into PREFIX (/usr/local), below DESTDIR; BIN names one that is built
ifndef BIN
	cargo build --release --locked -p tavern
endif
	@PREFIX='$(PREFIX)' SYSCONFDIR='$(SYSCONFDIR)' DESTDIR='$(DESTDIR)' BIN='$(BIN)' scripts/install

cluster: ## three servers on one engine, some load, a live table and keys to break things; ENGINE=sqlite|postgres|redis
	@cargo build --release -q -p tavern
	@scripts/cluster $(ENGINE) $(ARGS)

test: ## everything that must hold: format, lints, Rust tests, real clients against a real server
	@scripts/test

test-clients: ## only the real-client suites; ARGS go to pytest, e.g. make test-clients ARGS='-k resume'
	@scripts/test clients -- $(ARGS)

bench: ## side by side with redis-server and nats-server; writes bench/out
	@scripts/bench full $(ARGS)

bench-quick: ## the same workloads, shorter: for a look, not for quoting
	@scripts/bench quick $(ARGS)

bench-presence: ## what presence costs, beside the original Radar on Redis; writes its section of bench/RESULTS.md
	@scripts/bench presence $(ARGS)

bench-cluster: ## what several nodes cost on Redis, Postgres and NATS; writes its section of bench/RESULTS.md
	@scripts/bench cluster $(ARGS)

bench-events: ## what topics and webhooks cost on SQLite, beside the disk and Redis; writes its section of bench/RESULTS.md
	@scripts/bench events $(ARGS)

bench-parties: ## what parties cost on SQLite and in memory, with many polls waiting; writes its section of bench/RESULTS.md
	@scripts/bench parties $(ARGS)

bench-local: ## pub/sub on a folder between two processes, beside a unix socket
	cargo run --release -q -p tavern-local --example speed

fmt: ## format the Rust code
	cargo fmt --all

fuzz: ## fuzz each target for FUZZ_SECONDS (60)
	@scripts/fuzz

sim: ## the deterministic simulator, a long run of every workload, then random runs of the rules, then parties and deliveries in virtual time; ARGS go to it
	cargo run --release -p tavern-sim -- --runs 20000 $(ARGS)
	PROPTEST_CASES=20000 cargo test --release -p tavern-domain
	TAVERN_PARTY_SEEDS=2000 TAVERN_DELIVERY_SEEDS=5000 cargo test --release -p tavern-hub --test parties_campaign --test deliveries

mutants: ## change the rules one expression at a time and check that a test notices; ARGS: a smaller sample, e.g. 0/40
	@scripts/mutants $(ARGS)

torture: ## three servers on every combination of engines while these fail; ARGS go to scripts/torture; writes bench/TORTURE.md
	@scripts/torture $(ARGS)

torture-events: ## kill servers 5,000 times while events are published and delivered; KILLS and ARGS (to pytest) may be given
	@scripts/torture-events $(ARGS)

torture-local: ## kill publishers and subscribers of a folder at random moments, 1,000 times
	cargo build --release -p tavern-local --examples
	TAVERN_LOCAL_KILLS=1000 cargo test --release -p tavern-local --test killed -- --nocapture

torture-parties: ## commands about parties given at the same moment on two servers, 1,000 times each, on every combination
	TAVERN_PARTY_RACES=1000 scripts/test clients -- tests/parties/test_races.py -n 2

clean: ## remove what was built, installed and measured here
	cargo clean
	rm -rf bench/out
