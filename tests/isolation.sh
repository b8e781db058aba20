#!/usr/bin/env bash
# Runs the stories of tests/isolation.rs on two separate control planes, in parallel.
#
#   isolation.sh [BINARY]     BINARY: yurt-ds (default: the program that cargo built); needs ../shared/control-plane
#
# The memory limits are meant for the static BINARY of `.ci/static build`. Stories of stale data, network and connections mostly
# wait, so they run on the second control plane, in parallel. YURT_DS_ISOLATION_ONLY selects stories, as in tests/isolation.rs.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -le 1 ] || { sed -n '2,7p' "$0" >&2; exit 2; }
[ $# = 0 ] || YURT_DS_ISOLATION_BINARY=$(realpath "$1")
[ $# = 0 ] || export YURT_DS_ISOLATION_BINARY
control_plane=$(realpath ../shared/control-plane)
work=$(mktemp -d /tmp/ydi.XXXX)
all=${YURT_DS_ISOLATION_ONLY:-objects,connections,memory,network,stale}
playing=

finish() {
  local code=$? plane
  [ -z "$playing" ] || kill -- "-$playing" 2> /dev/null || true
  for plane in "$work"/*/; do
    [ ! -e "$plane/kube-apiserver.pid" ] || "$control_plane/down" "$plane" || true
  done
  if [ $code = 0 ]; then rm -rf "$work"; else echo "isolation: logs are in $work" >&2; fi
}
trap finish EXIT

play() { # NAME PREFIXES: runs the stories with these name prefixes on a new control plane
  APISERVER_FLAGS=--http2-max-streams-per-connection=20 CONTROLLER_MANAGER_FLAGS=--node-monitor-grace-period=1h \
    "$control_plane/up" "$work/$1" > /dev/null
  YURT_DS_ISOLATION_KUBECONFIG="$work/$1/kubeconfig" YURT_DS_ISOLATION_ONLY=$2 \
    cargo test --locked --test main -- the_stories_of_isolation_hold_on_a_real_control_plane --nocapture
}
chosen() { # EXPRESSION: prints the selected prefixes that match
  tr , '\n' <<< "$all" | grep -E "$1" | paste -sd, || true
}

waiting=$(chosen '^(stale|network|connections)') others=$(chosen '^(objects|memory)')
code=0
if [ -n "$waiting" ]; then
  set -m # a separate process group, so that all its processes can be stopped
  (set +m; trap - EXIT; play waiting "$waiting") > "$work/waiting.log" 2>&1 &
  playing=$!
  set +m
fi
[ -z "$others" ] || play others "$others" || code=$?
if [ -n "$playing" ]; then
  wait "$playing" || code=$?
  playing=
  cat "$work/waiting.log"
fi
exit $code
