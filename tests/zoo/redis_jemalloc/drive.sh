# The same work as that of Debian's redis-server.
. "$(dirname "$0")/../redis/drive.sh"
