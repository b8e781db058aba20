#!/usr/bin/env bash
# Checks that a second apply of the same manifest changes and restarts nothing, during and after a rollout that ctl controls.
#
#   drift.sh KUBECONFIG BINARY [KUBECTL...]     of a cluster administrator; BINARY: yurt-ds; needs ../shared/control-plane, helm 4
#
# Four DaemonSets are rolled out at the same time. Each is applied in another way: by kubectl on the client or on the server, and by
# helm with a 3-way merge or on the server.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 2 ] || { sed -n '2,7p' "$0" >&2; exit 2; }
admin=$1 binary=$2
shift 2
[ $# -gt 0 ] || set -- kubectl
kubectl=("$@")
control_plane=$(realpath ../shared/control-plane)
work=$(mktemp -d) space=drift-test
export HELM_CACHE_HOME=$work/cache HELM_CONFIG_HOME=$work/config HELM_DATA_HOME=$work/data
# shellcheck source=tests/gitops/fleet.sh
. tests/gitops/fleet.sh

say() { printf 'drift: %s\n' "$*"; }
fail() { echo "drift: $*" >&2; tail -n 20 "$work/controller.log" >&2; exit 1; }
finish() {
  stop_programs
  k delete namespace "$space" --wait=false
  k delete pods --all --force --grace-period 0
  k delete node "$space-1" "$space-2"
  rm -rf "$work"
} > /dev/null 2>&1
trap finish EXIT

ways=(client server helm helm-server)
mkdir -p "$work/chart/templates"
printf 'apiVersion: v2\nname: web\nversion: 1.0.0\n' > "$work/chart/Chart.yaml"
ours='apps.openyurt.io/update-strategy: AdvancedRollingUpdate, apps.openyurt.io/max-unavailable: "1"'
ours+=', apps.openyurt.io/waves: "[{name: first, selector: pool=pool-1}, {name: others, selector: pool=pool-2, approve: manual}]"'
helm_apply() { # RELEASE ON-SERVER [ARGUMENT]...
  helm --kubeconfig "$admin" -n "$space" upgrade --install "$1" "$work/chart" --server-side="$2" --set "name=$1" "${@:3}"
}
manifest '{{ .Values.name }}' '{{ .Values.image }}' "$ours" > "$work/chart/templates/web.yaml"
apply() { # WAY TAG [ARGUMENT]...
  case $1 in
    client) manifest "$1" "web:$2" "$ours" | k apply -f - "${@:3}" ;;
    server) manifest "$1" "web:$2" "$ours" | k apply --server-side -f - "${@:3}" ;;
    helm) helm_apply "$1" false --set "image=web:$2" "${@:3}" ;;
    helm-server) helm_apply "$1" true --set "image=web:$2" "${@:3}" ;;
  esac > "$work/said" 2>&1 || fail "$1: $(cat "$work/said")"
}
state() { # prints the state that must not change: one line per DaemonSet, and one per pod
  k get daemonsets,pods -o json | python3 -c '
import json, sys
for object in json.load(sys.stdin)["items"]:
    meta = object["metadata"]
    if object["kind"] == "Pod":
        print("pod", meta["labels"]["app"], meta["uid"], "deletionTimestamp" in meta)
    else:
        own = {key: value for key, value in meta["annotations"].items() if key.startswith("apps.openyurt.io/")}
        print("daemonset", meta["name"], meta["generation"], json.dumps(own, sort_keys=True))' | sort
}
unchanged() { # WHEN TAG [ANNOTATION]: checks that another apply changes nothing; every DaemonSet must have the annotation
  local way
  state > "$work/before"
  [ $# = 2 ] || [ "$(grep -cF "apps.openyurt.io/$3" "$work/before")" = ${#ways[@]} ] || fail "$1: not all have $3: $(cat "$work/before")"
  for way in "${ways[@]}"; do apply "$way" "$2"; done
  sleep 1.5 # after this time, a deleted pod would be visible
  state > "$work/after"
  cmp -s "$work/before" "$work/after" || fail "$1: $(diff "$work/before" "$work/after")"
  say "nothing changed: $1"
}
all_reach() { # EXPRESSION
  local way
  for way in "${ways[@]}"; do until_true "$way: $1" holds "ds/$way" "$1"; done
}
complete='reported and is_true("RolloutComplete")'
waits='reported and condition("RolloutComplete")["reason"] == "WaveNotOpen"'

k create namespace "$space" > /dev/null
start_kwok
add_nodes 2
start_controller
for way in "${ways[@]}"; do apply "$way" 1; done
all_reach "$complete and status.get('numberAvailable') == 2"
unchanged "complete" 1

for way in "${ways[@]}"; do apply "$way" 2; done
all_reach "$waits"
unchanged "one of two nodes is updated" 2
for way in "${ways[@]}"; do ctl pause "$way" > /dev/null; done
all_reach 'is_true("Paused")'
unchanged "paused" 2 paused
for way in "${ways[@]}"; do
  ctl resume "$way" > /dev/null
  ctl approve "$way" others > /dev/null
done
all_reach "$complete"
unchanged "complete after an approval" 2 approved-waves

for way in "${ways[@]}"; do ctl undo "$way" > /dev/null; done
all_reach "$waits"
unchanged "rolled back by ctl, and in Git" 1 rolled-back-from
conflict() { ! (apply "$1" 3) 2> /dev/null && grep -q yurt-ds-ctl "$work/said"; }
for way in server helm-server; do
  conflict "$way" || fail "$way: no conflict with the rollback: $(cat "$work/said")"
  apply "$way" 3 --force-conflicts
done
say "the next version needs --force-conflicts on the server"
