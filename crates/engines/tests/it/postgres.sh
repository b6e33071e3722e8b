# A Postgres server of its own for one test binary: made in a new folder, gone when standard input ends.
# $1 is its port on the loopback, where it does TLS. $2 is `durable` when its disk counts, as for a measurement. Says its folder, which holds its socket and its certificate, on
# standard output once it takes connections. Not to be run as root.
port=$1
# Nothing that tests write has to survive a loss of power.
settings="-c fsync=off -c log_lock_waits=on -c deadlock_timeout=200ms"
if [ "${2:-}" = durable ]; then
    settings="-c shared_buffers=256MB -c max_wal_size=4GB"
fi
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
# Its key must be readable by nobody else.
umask 077
if ! openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
    -addext subjectAltName=DNS:localhost -addext basicConstraints=critical,CA:FALSE \
    -keyout key.pem -out cert.pem >>log 2>&1; then
    cat log >&2
    exit 1
fi
# The tests may be another user.
chmod 711 .
chmod 644 cert.pem
# shellcheck disable=SC2086 # The settings are words.
"$bin/postgres" -D data -k "$home" -p "$port" -c listen_addresses=127.0.0.1 -c unix_socket_permissions=0777 \
    -c ssl=on -c ssl_cert_file="$home/cert.pem" -c ssl_key_file="$home/key.pem" -c max_connections=400 \
    $settings >>log 2>&1 &
pid=$!
tries=0
until "$bin/pg_isready" -q -h "$home" -p "$port"; do
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
# A test may have ended it.
kill -INT "$pid" 2>/dev/null
wait "$pid"
