# Make the data directory where there is none, run the scripts once, then become the server.
set -euo pipefail
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  initdb --username="$POSTGRES_USER" --pwfile=<(printf %s "$POSTGRES_PASSWORD") --auth-local=trust --auth-host=scram-sha-256 \
    --encoding=UTF8
  echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
  pg_ctl --wait start --options="-c listen_addresses= -c unix_socket_directories=/tmp"
  createdb --host=/tmp --username="$POSTGRES_USER" "$POSTGRES_DB"
  for script in /docker-entrypoint-initdb.d/*.sql; do
    [ ! -e "$script" ] || psql --host=/tmp --username="$POSTGRES_USER" --dbname="$POSTGRES_DB" --set=ON_ERROR_STOP=1 --file="$script"
  done
  pg_ctl --wait --mode=fast stop
fi
exec "$@" -c "listen_addresses=*" -c unix_socket_directories=/tmp
