# Builds redis-server with the jemalloc of its own sources, which is linked into it under the prefix je_. Debian's package
# uses the shared libjemalloc instead.
set -eu
[ ! -x redis-server ] || exit 0
sh "$(dirname "$0")/../blocks/get_source.sh" redis
make -C redis-*/src -j2 MALLOC=jemalloc BUILD_TLS=no USE_SYSTEMD=no redis-server >make.log 2>&1 || { tail -20 make.log >&2; exit 1; }
cp redis-*/src/redis-server .
