# A Postgres server of its own for one test binary: made in a new folder, gone when standard input ends.
# Says the folder of its socket on standard output once it takes connections. Not to be run as root.
trap '' INT TERM
# Debian keeps the programs of a server together in a folder that is on nobody's path.
server=$(ls /usr/lib/postgresql/*/bin/postgres 2>/dev/null | sort -V | tail -n 1)
server=${server:-$(readlink -f "$(command -v postgres)")}
if [ -z "$server" ]; then
    echo "Postgres is missing: scripts/setup installs it" >&2
    exit 1
fi
bin=$(dirname "$server")
home=$(mktemp -d /tmp/tavern-postgres.XXXXXX) || exit 1
trap 'rm -rf "$home"' EXIT
cd "$home" || exit 1
if ! "$bin/initdb" -D data -U postgres -A trust -E UTF8 --locale=C -N >log 2>&1; then
    cat log >&2
    exit 1
fi
# Nothing here has to survive a loss of power.
"$bin/postgres" -D data -k "$home" -c listen_addresses= -c max_connections=400 -c fsync=off \
    -c log_lock_waits=on -c deadlock_timeout=200ms >>log 2>&1 &
pid=$!
tries=0
until "$bin/pg_isready" -q -h "$home"; do
    tries=$((tries + 1))
    if [ "$tries" -gt 400 ] || ! kill -0 "$pid" 2>/dev/null; then
        kill -INT "$pid"
        cat log >&2
        exit 1
    fi
    sleep 0.05
done
echo "$home"
cat >/dev/null
kill -INT "$pid"
wait "$pid"
