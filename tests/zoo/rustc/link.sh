# Makes `program` lead to a tool of the Rust toolchain. The tool in the PATH may be one of rustup's, which executes another.
set -eu
ln -sf "$(rustc --print sysroot)/bin/$1" program
