# Fills the database, lets the server save it in the background by a fork, then stops the server.
set -eu
case $1 in
ready)
    n=0
    until [ "$(redis-cli -s socket ping 2>/dev/null)" = PONG ]; do
        n=$((n + 1))
        [ $n -lt 500 ]
        sleep 0.02
    done
    ;;
go)
    for i in $(seq 2000); do echo "SET key$i value$i"; echo "LPUSH list $i"; done | redis-cli -s socket | sort | uniq -c | wc -l
    redis-cli -s socket bgsave
    redis-cli -s socket eval 'local n = 0 for i = 1, 1000 do n = n + redis.call("STRLEN", "key" .. i) end return n' 0
    redis-cli -s socket dbsize
    until [ "$(redis-cli -s socket info persistence | tr -d '\r' | sed -n 's/^rdb_bgsave_in_progress://p')" = 0 ]; do sleep 0.02; done
    redis-cli -s socket shutdown nosave || true
    ;;
esac
