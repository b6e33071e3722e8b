# A Postgres server for one measurement: made in a new folder, gone when standard input ends. $1 is its port on the loopback.
# Says a word on standard output once it takes connections. Not to be run as root.
port=$1
trap '' INT TERM
# Debian keeps the programs of a server together in a folder that is on nobody's path.
server=$(ls /usr/lib/postgresql/*/bin/postgres 2>/dev/null | sort -V | tail -n 1)
server=${server:-$(readlink -f "$(command -v postgres)")}
if [ -z "$server" ]; then
    echo "Postgres is missing: scripts/setup installs it" >&2
    exit 1
fi
bin=$(dirname "$server")
home=$(mktemp -d /tmp/tavern-bench-postgres.XXXXXX) || exit 1
trap 'rm -rf "$home"' EXIT
cd "$home" || exit 1
if ! "$bin/initdb" -D data -U postgres -A trust -E UTF8 --locale=C >log 2>&1; then
    cat log >&2
    exit 1
fi
"$bin/postgres" -D data -k "$home" -p "$port" -c listen_addresses=127.0.0.1 -c max_connections=300 \
    -c shared_buffers=256MB -c max_wal_size=4GB >>log 2>&1 &
pid=$!
tries=0
until "$bin/pg_isready" -q -h 127.0.0.1 -p "$port"; do
    tries=$((tries + 1))
    if [ "$tries" -gt 400 ] || ! kill -0 "$pid" 2>/dev/null; then
        kill -INT "$pid"
        cat log >&2
        exit 1
    fi
    sleep 0.05
done
echo ready
cat >/dev/null
kill -INT "$pid"
wait "$pid"
