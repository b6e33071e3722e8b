# syntax=docker/dockerfile:1
# A small image with the server: `docker build -t tavern .`. See docs/deploy/docker.md.
FROM rust:1.95-slim-bookworm AS build
# A C compiler for SQLite and the cryptography library.
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /src
# The dependencies alone, with empty crates in place of ours: this layer stays valid while Cargo.toml and Cargo.lock do.
COPY Cargo.toml Cargo.lock ./
COPY bench/Cargo.toml bench/
COPY bench/guard/Cargo.toml bench/guard/
COPY crates/client/Cargo.toml crates/client/
COPY crates/domain/Cargo.toml crates/domain/
COPY crates/engines/Cargo.toml crates/engines/
COPY crates/hub/Cargo.toml crates/hub/
COPY crates/interleavings/Cargo.toml crates/interleavings/
COPY crates/local/Cargo.toml crates/local/
COPY crates/pusher/Cargo.toml crates/pusher/
COPY crates/server/Cargo.toml crates/server/
COPY crates/sim/Cargo.toml crates/sim/
COPY crates/store/Cargo.toml crates/store/
COPY crates/wire/Cargo.toml crates/wire/
RUN for crate in bench bench/guard crates/*; do mkdir -p $crate/src && touch $crate/src/lib.rs && echo 'fn main() {}' >$crate/src/main.rs; done \
    && cargo build --release --locked -p tavern
COPY . .
# Newer than the empty files that were built before.
RUN find crates bench -name '*.rs' -exec touch {} + && cargo build --release --locked -p tavern && strip target/release/tavern

FROM debian:bookworm-slim
RUN groupadd --system --gid 7400 tavern \
    && useradd --system --uid 7400 --gid tavern --home-dir /var/lib/tavern --shell /usr/sbin/nologin tavern \
    && install -d -o tavern -g tavern -m 0750 /var/lib/tavern
COPY --from=build /src/target/release/tavern /usr/local/bin/tavern
# Not loopback, which is private to the container. Publish the ports with care: without TLS they are unencrypted.
ENV TAVERN_LISTEN=0.0.0.0:7400 TAVERN_RESP=0.0.0.0:7401 TAVERN_DATA=/var/lib/tavern TAVERN_LOG=json
USER 7400:7400
WORKDIR /var/lib/tavern
VOLUME /var/lib/tavern
EXPOSE 7400 7401
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s --retries=3 CMD ["tavern", "ready"]
ENTRYPOINT ["tavern"]
CMD ["serve"]
