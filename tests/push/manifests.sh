#!/bin/sh
# Checks the manifests in packaging/kubernetes against the schemas of Kubernetes, and the unit with systemd's own checker.
#
#     manifests.sh FOLDER       FOLDER: for kubernetes-validate, which carries the schemas
set -eu
here=$(dirname "$0")/../..
folder=$1
if [ ! -d "$folder" ]; then
    /usr/bin/python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --target "$folder" kubernetes-validate==1.37.0
fi
for manifest in "$here"/packaging/kubernetes/*.yaml; do
    PYTHONPATH=$folder /usr/bin/python3 -m kubernetes_validate --strict "$manifest"
done
# The programs of the unit are not installed here.
unit=$(mktemp -d)/shop.service
sed 's#/usr/bin/heaptrack#/bin/true#' "$here/packaging/systemd/shop.service" >"$unit"
systemd-analyze verify "$unit"
rm -r "$(dirname "$unit")"
