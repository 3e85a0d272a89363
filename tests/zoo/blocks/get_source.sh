# Downloads the sources of a Debian package into this folder and unpacks the original ones: get_source.sh PACKAGE. They come
# from where this system gets its packages, whose own lists stay as they are.
set -eu
mkdir -p sources.d lists/partial
for file in /etc/apt/sources.list.d/*.sources; do
    [ ! -e "$file" ] || sed 's/^Types:.*/Types: deb-src/' "$file" >"sources.d/${file##*/}"
done
[ ! -e /etc/apt/sources.list ] || sed -n 's/^deb /deb-src /p' /etc/apt/sources.list >sources.d/main.list
apt() {
    apt-get -qq -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$PWD/sources.d" -o Dir::State::lists="$PWD/lists" "$@"
}
apt update
apt source --download-only "$1"
tar xf "$1"_*.orig.tar.*
