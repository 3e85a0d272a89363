# Sends a few queries, each to a backend that the server forks, then stops the server.
set -eu
export PATH=/usr/lib/postgresql/15/bin:$PATH
query() { psql -h "$PWD" -U postgres -At -c "$1" postgres; }
case $1 in
ready)
    n=0
    until query 'select 1' >/dev/null 2>&1; do
        n=$((n + 1))
        [ $n -lt 500 ]
        sleep 0.05
    done
    ;;
go)
    query 'create table t as select n, md5(n::text) as h from generate_series(1, 2000) n'
    query 'select count(*), min(h), max(h) from t'
    query 'select sum(length(a.h || b.h)) from t a join t b on b.n = a.n + 1'
    query 'select sum(n) from t where h ~ $$^[0-4]+$$ or h like $$%ab%$$'
    setpriv --reuid=postgres --regid=postgres --clear-groups pg_ctl -D data -m fast -w stop >/dev/null
    ;;
esac
