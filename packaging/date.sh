#!/bin/sh
# Prints the time that all files of a release carry, in seconds since 1970. It is the time of the last commit.
# `git archive` writes it into packaging/date, so that a source package has it too. SOURCE_DATE_EPOCH overrides both.
set -eu
cd "$(dirname "$0")/.."
written=$(cat packaging/date)
case "${SOURCE_DATE_EPOCH:-$written}" in
*[!0-9]*) git log -1 --format=%ct ;;
*) echo "${SOURCE_DATE_EPOCH:-$written}" ;;
esac
