# A link to the folder of clisp, whose path has its version.
set -eu
ln -sfn "$(echo /usr/lib/clisp-*)" clisp
