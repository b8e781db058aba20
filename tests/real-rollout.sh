#!/usr/bin/env bash
# shellcheck disable=SC2034,SC2154
# Tests rollouts other than by plain deletion on two real nodes, with real kubelets, containerd and a registry.
#
#   real-rollout.sh BINARY     BINARY: yurt-ds; needs root and ../shared/control-plane
#
# The controller runs next to the control plane, with the role of manifests/. Each file of tests/real-rollout/ contains the
# stories of one topic: functions, with their names appended to `stories`. STORIES limits the run to some of them.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# = 1 ] || { sed -n '3,8p' "$0" >&2; exit 2; }
. tests/nodes.sh
begin "$1"

# Functions for all stories. Each story creates its own DaemonSet, so the stories are independent.

# daemonset NAME IMAGE ANNOTATIONS [SPEC-OF-POD [REST-OF-CONTAINER [TEMPLATE-METADATA [SPEC-OF-SET]]]]
# Creates a DaemonSet. ANNOTATIONS is a YAML flow mapping without the prefix of the keys: '{max-unavailable: "1"}'. The other
# arguments are lines of a YAML flow mapping. The container is named main, listens on 8080 and returns the tag of its image.
daemonset() {
  kubectl apply -f - > /dev/null <<END
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: $1
  annotations: {apps.openyurt.io/update-strategy: AdvancedRollingUpdate, apps.openyurt.io/ready-settle: 5s}
spec:
  updateStrategy: {type: OnDelete}
  selector: {matchLabels: {app: $1}}
  ${7:-}
  template:
    metadata: {labels: {app: $1}${6:+, $6}}
    spec:
      terminationGracePeriodSeconds: 2
      ${4:-}
      containers: [{name: main, image: "$2", readinessProbe: {httpGet: {path: /readyz, port: 8080}, periodSeconds: 1}${5:+, $5}}]
END
  annotate "$1" "$3"
}
# annotate DAEMONSET ANNOTATIONS: sets annotations; null removes one
annotate() {
  local patch
  patch=$(python3 - "$2" <<'END_OF_PYTHON'
import json, re, sys
# A flow mapping of plain keys and scalars, or JSON as it is.
text = re.sub(r'([{,]\s*)([a-z][a-z-]*)\s*:', r'\1"\2":', sys.argv[1])
prefix = "apps.openyurt.io/"
print(json.dumps({"metadata": {"annotations": {prefix + key: value for key, value in json.loads(text).items()}}}))
END_OF_PYTHON
  )
  kubectl patch daemonset "$1" --type merge -p "$patch" > /dev/null
}
set_image() { kubectl set image "daemonset/$1" "main=$2" > /dev/null; } # DAEMONSET IMAGE
pod() { # DAEMONSET NODE JSONPATH: prints a field of the node's pod that is not terminating
  kubectl get pods -l "app=$1" -o json | python3 -c '
import json, sys
for pod in json.load(sys.stdin)["items"]:
    if pod["spec"].get("nodeName") == sys.argv[1] and "deletionTimestamp" not in pod["metadata"]: print(pod["metadata"]["name"])
' "$2" | head -n 1 | while read -r name; do kubectl get pod "$name" -o "jsonpath={$3}"; done
}
uid() { pod "$1" "$2" .metadata.uid; }
address_of() { pod "$1" "$2" .status.podIP; }
is_same() { [ "$(uid "$1" "$2")" = "$3" ]; } # DAEMONSET NODE UID
serves() { # DAEMONSET NODE VERSION
  [ "$(curl --silent --max-time 10 "http://$(address_of "$1" "$2"):8080/")" = "$3" ]
}
both_serve() { local node; for node in "${nodes[@]}"; do serves "$1" "$node" "$2" || return 1; done; } # DAEMONSET VERSION
says_condition() { # DAEMONSET TYPE STATUS WORDS
  grep -q "^$3 .*$4" <<< \
    "$(kubectl get daemonset "$1" -o "jsonpath={.status.conditions[?(@.type==\"$2\")]['status','reason','message']}")"
}
is_complete() { says_condition "$1" RolloutComplete True ": complete"; } # DAEMONSET
verdict() { # DAEMONSET NODE: prints the verdict of the node
  "$binary" ctl --kubeconfig "$dir/kubeconfig" why "default/$1" "$2" -o json | python3 -c 'import json, sys; print(json.load(sys.stdin)["verdict"])'
}
has_verdict() { [ "$(verdict "$1" "$2")" = "$3" ]; } # DAEMONSET NODE WORD
restart_controller() { # simulates a crash of the controller
  kill -KILL "$controller"
  wait "$controller" 2> /dev/null || true
  run_controller
}
show() {
  kubectl get daemonsets -o 'jsonpath={range .items[*]}{.metadata.name}: {.metadata.annotations} {.status.conditions}{"\n"}{end}'
  kubectl get events --sort-by .lastTimestamp | tail -n 40
  tail -n 40 "$dir/controller.log"
}

stories=()
# shellcheck source=/dev/null
for topic in tests/real-rollout/*.sh; do . "$topic"; done

say "control plane, two nodes, and the controller under its own role"
AUDIT=1 CONTROLLER_MANAGER_FLAGS=$never_offline start_nodes
old=$(image hello:1)
new=$(image hello:2)
run_controller
for story in ${STORIES:-${stories[@]}}; do
  $story
  kubectl delete daemonsets --all --wait=false > /dev/null
done
say "done"
