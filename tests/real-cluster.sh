#!/usr/bin/env bash
# Plays all scenarios on a real control plane, with the real binary under the role of manifests/.
#
# Without YURT_DS_SUITE_KUBECONFIG it starts one itself, of the current Kubernetes and then of the oldest that is
# supported, from CONTROL_PLANE (default ../shared/control-plane beside the repository), and takes it down afterwards.
# With YURT_DS_SUITE_KUBECONFIG=FILE it uses that cluster; its user has to be an administrator. Nodes in it are made and
# removed; its node lifecycle controller must not judge them (--node-monitor-grace-period=1h).
#
# Exits 0 when everything passed or when there is no cluster to be had, and then says so.
set -euo pipefail
cd "$(dirname "$0")/.."
control_plane=$(cd "${CONTROL_PLANE:-../shared/control-plane}" 2> /dev/null && pwd) || control_plane=
directory=

suite() { # KUBECONFIG
  YURT_DS_SUITE_KUBECONFIG=$1 cargo test --locked --test main -- the_scenarios_hold_on_a_real_control_plane --nocapture
}

take_down() {
  [ -z "$directory" ] || "$control_plane/down" "$directory" || true
  [ -z "$directory" ] || rm -rf "$directory"
  directory=
}
trap take_down EXIT

if [ -n "${YURT_DS_SUITE_KUBECONFIG:-}" ]; then
  suite "$YURT_DS_SUITE_KUBECONFIG"
  exit
fi
if [ -z "$control_plane" ]; then
  printf '\n*** SKIPPED: the scenarios on a real control plane.\n' >&2
  printf '*** There is none here: set YURT_DS_SUITE_KUBECONFIG, or CONTROL_PLANE to a folder with up and down.\n\n' >&2
  exit 0
fi
for version in ${YURT_DS_SUITE_VERSIONS:-current 1.28}; do
  echo "--- scenarios on Kubernetes $version"
  directory=$(mktemp -d /tmp/yurt-ds-suite.XXXXXX)
  if [ "$version" = current ]; then unset KUBERNETES; else export KUBERNETES=$version; fi
  AUDIT=1 CONTROLLER_MANAGER_FLAGS=--node-monitor-grace-period=1h "$control_plane/up" "$directory" > /dev/null
  suite "$directory/kubeconfig"
  take_down
done
