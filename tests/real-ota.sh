#!/usr/bin/env bash
# shellcheck disable=SC2034,SC2154
# Tests OTA on two real nodes: the node owners read, pull and confirm with curl and with ctl.
#
#   real-ota.sh BINARY     BINARY: the static one of `.ci/static build`; needs root, iptables and
#                          ../shared/control-plane
#
# yurt-ds is installed from manifests/. The pods of the DaemonSet use the host network. So the version of each node can be read at
# one address, and the test measures the longest time without a response from there. STORIES limits the run to some stories.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# = 1 ] || { sed -n '3,10p' "$0" >&2; exit 2; }
. tests/nodes.sh
begin "$1"
# shellcheck source=/dev/null
for part in owner confirm pull cloud agent; do . "tests/real-ota/$part.sh"; done
name=nginx-daemonset

set_up() {
  say "two nodes, and yurt-ds installed on them"
  AUDIT=1 CONTROLLER_MANAGER_FLAGS=$soon_offline start_nodes
  us=$(image yurt-ds:one "$binary=/yurt-ds")
  newer_us=$(image yurt-ds:two "$binary=/yurt-ds")
  old=$(image nginx:1.19.4)
  new=$(image nginx:1.19.5)
  big=$(image big:1 -random 100)
  # The nodes share one network, in which only one process can listen on 127.0.0.1:10267. So each agent listens on the address
  # of its node. tests/install.sh tests the usual address.
  OVERLAY_PATCHES=$(cat <<'END_OF_PATCHES'
  - patch: |
      apiVersion: apps/v1
      kind: DaemonSet
      metadata: {name: yurt-ds-ota-server, namespace: yurt-ds-edge}
      spec:
        template:
          spec:
            containers:
              - name: ota-server
                env:
                  - {name: NODE_IP, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}
                  - {name: YURT_DS_LISTEN, value: "$(NODE_IP):10267"}
                livenessProbe: {httpGet: {host: null}}
                readinessProbe: {httpGet: {host: null}}
END_OF_PATCHES
)
  install_us "$us"
  await_us
  local node
  for node in "${nodes[@]}"; do until_true 60 "an agent on $node" pods "$node" > /dev/null; done
}

set_up
listen_to "$near" "http://${address[$near]}:8080/"
listen_to "$far" "http://${address[$far]}:8080/"
stories=${STORIES:-conditions reading memory confirming pulling_ahead missing_image dead_registry offline_node restricted \
private_registry without_cloud power_cut own_update static_pods memory roles own_confirmation}
for story in $stories; do $story; done
say "done"
