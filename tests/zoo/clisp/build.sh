# Makes a link to clisp's folder, whose path contains the version.
set -eu
ln -sfn "$(echo /usr/lib/clisp-*)" clisp
