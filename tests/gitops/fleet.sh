# shellcheck shell=bash disable=SC2034
# Functions for record.sh and tests/drift.sh, which source this file. They run fake nodes (kwok) and the controller on a running
# control plane.
#
#   control_plane, admin, binary, work, space   variables that the sourcing script sets
#
# The nodes are named SPACE-1, SPACE-2 and so on.
programs=() # process IDs of the started programs

k() { "${kubectl[@]}" --kubeconfig "$admin" -n "$space" "$@"; }
ctl() { "$binary" ctl --kubeconfig "$admin" -n "$space" "$@"; }
start_kwok() {
  "$("$control_plane/build")" kwok --kubeconfig "$admin" --config "$control_plane/stages.yaml" \
    --manage-nodes-with-annotation-selector kwok.x-k8s.io/node=fake --node-lease-duration-seconds 40 > "$work/kwok.log" 2>&1 &
  programs+=($!)
}
start_controller() {
  "$binary" controller --kubeconfig "$admin" --listen 127.0.0.1:0 --lease-namespace "$space" > "$work/controller.log" 2>&1 &
  controller=$!
  programs+=("$controller")
}
stop_programs() {
  local program
  for program in "${programs[@]}"; do kill -CONT "$program" && kill "$program"; done 2> /dev/null
}
add_nodes() { # NUMBER
  local number
  for ((number = 1; number <= $1; number++)); do
    k apply -f - > /dev/null <<END
apiVersion: v1
kind: Node
metadata:
  name: $space-$number
  labels: {kubernetes.io/hostname: $space-$number, pool: "pool-$number"}
  annotations: {kwok.x-k8s.io/node: fake}
END
  done
}
manifest() { # NAME IMAGE ANNOTATIONS [APIVERSION]: annotations as lines of a YAML flow mapping
  cat <<END
apiVersion: ${4:-apps/v1}
kind: DaemonSet
metadata:
  name: $1
  namespace: $space
  annotations: {$3}
spec:
  updateStrategy: {type: $([ -n "${4:-}" ] && echo RollingUpdate || echo OnDelete)}
  selector: {matchLabels: {app: $1}}
  template:
    metadata: {labels: {app: $1}}
    spec:
      tolerations: [{operator: Exists}]
      containers: [{name: web, image: "$2"}]
END
}
until_true() { # WHAT COMMAND
  local tries
  for ((tries = 0; tries < 300; tries++)); do
    ! "${@:2}" || return 0
    sleep 0.2
  done
  fail "not within its time: $1"
}
# holds DAEMONSET EXPRESSION: evaluates a Python expression about a DaemonSet. It can use `status` and `condition(TYPE)`, a
# dictionary with status and reason.
holds() {
  k get "$1" -o json | python3 -c '
import json, sys
object = json.load(sys.stdin)
status = object.get("status", {})
generation = object["metadata"]["generation"]
conditions = {one["type"]: one for one in status.get("conditions", [])}
condition = lambda kind: conditions.get(kind, {"status": "", "reason": ""})
is_true = lambda kind: condition(kind)["status"] == "True"
observed = status.get("observedGeneration") == generation
reported = condition("RolloutState")["reason"] == f"Generation{generation}"
sys.exit(not eval(sys.argv[1]))
' "$2"
}
