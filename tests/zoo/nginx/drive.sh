# Sends 50 requests, plain and compressed, then stops the server.
set -eu
case $1 in
ready)
    n=0
    until curl -sf --unix-socket socket http://localhost/index.txt >/dev/null; do
        n=$((n + 1))
        [ $n -lt 500 ]
        sleep 0.02
    done
    ;;
go)
    for i in $(seq 25); do
        curl -sf --unix-socket socket http://localhost/index.txt
        curl -sf --compressed --unix-socket socket http://localhost/index.txt
    done | cksum
    nginx -p . -c nginx.conf -s quit
    ;;
esac
