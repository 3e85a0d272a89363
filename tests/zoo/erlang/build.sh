# Compiles the module and its C part into this folder, and makes a link to the emulator, whose path contains the
# version.
set -eu
here=$1 shared=$2
erlc -o . "$here/zoo.erl"
runtime=$(echo /usr/lib/erlang/erts-*)
cc -g -O1 -shared -fPIC -I"$runtime/include" -I/usr/lib/erlang/usr/include "$here/nif.c" -o zoo_nif.so "$shared/libblocks.so" -Wl,-rpath,"$shared"
ln -sfn "$runtime/bin" bin
