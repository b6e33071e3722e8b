# A small image with the server: `docker build -t tavern .`. See docs/deploy/docker.md.
FROM rust:1.95-slim-bookworm AS build
# Build tools for the C code of SQLite and the cryptography library.
RUN apt-get update && apt-get install -y --no-install-recommends cmake make && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN cargo build --release --locked -p tavern && strip --strip-debug target/release/tavern

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
