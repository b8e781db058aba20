#!/usr/bin/env bash
# Records the DaemonSets of tests/gitops/objects on a real control plane: one in each phase of a rollout.
#
#   record.sh BINARY     yurt-ds; needs ../shared/control-plane
#
# After a change of the conditions, run this script, and then YURT_DS_GOLDEN=1 tests/gitops.sh.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# = 1 ] || { sed -n '2,6p' "$0" >&2; exit 2; }
binary=$(realpath "$1")
control_plane=$(realpath ../shared/control-plane)
work=$(mktemp -d /tmp/ydg.XXXX) space=gitops
# shellcheck source=tests/gitops/fleet.sh
. tests/gitops/fleet.sh

fail() { echo "record: $*" >&2; exit 1; }
finish() {
  local code=$?
  stop_programs || true
  [ ! -e "$work/plane/kube-controller-manager.pid" ] || kill -CONT "$(cat "$work/plane/kube-controller-manager.pid")" || true
  "$control_plane/down" "$work/plane" || true
  if [ $code = 0 ]; then rm -rf "$work"; else echo "record: logs are in $work" >&2; fi
}
trap finish EXIT
save() { # FILE [DAEMONSET]: writes the DaemonSet without managedFields to the file
  k get "${2:-ds/web}" -o json | python3 -c '
import json, sys
object = json.load(sys.stdin)
object["metadata"].pop("managedFields", None)
json.dump(object, sys.stdout, indent=2)
print()' > "tests/gitops/objects/$1.json"
  echo "recorded $1"
}
image() { k set image "${2:-ds/web}" "web=web:$1" > /dev/null; } # TAG [DAEMONSET]
annotate() { k annotate --overwrite ds/web "apps.openyurt.io/$1" > /dev/null; } # KEY=VALUE or KEY-
reaches() { until_true "$2" holds "${3:-ds/web}" "$2"; save "$1" "${3:-ds/web}"; } # FILE EXPRESSION [DAEMONSET]
complete='reported and is_true("RolloutComplete")'
completes() { until_true "$complete" holds "${1:-ds/web}" "$complete"; }
offline() { # NODE
  local pod
  for pod in $(k get pods --field-selector "spec.nodeName=$1" -o name); do k annotate "$pod" offline=true > /dev/null; done
  k annotate node "$1" offline=true > /dev/null
  k patch node "$1" --subresource status --type merge \
    -p '{"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}}' > /dev/null
}

CONTROLLER_MANAGER_FLAGS=--node-monitor-grace-period=1h "$control_plane/up" "$work/plane" > /dev/null
admin=$work/plane/kubeconfig
kubectl=("$("$control_plane/build")" kubectl)
"${kubectl[@]}" --kubeconfig "$admin" create namespace "$space" > /dev/null
k apply --server-side -f manifests/components/advanced/crd.yaml > /dev/null
k wait --for condition=Established crd/daemonsets.apps.kruise.io > /dev/null
start_kwok
add_nodes 3
ours='apps.openyurt.io/update-strategy: AdvancedRollingUpdate, apps.openyurt.io/max-unavailable: "1"'

manifest plain web:1 "" | sed 's/type: OnDelete/type: RollingUpdate/' | k apply -f - > /dev/null
manifest web web:1 "$ours" | k apply -f - > /dev/null
reaches unmanaged 'observed and status.get("numberAvailable") == 3' ds/plain
reaches not-reported 'observed and status.get("numberAvailable") == 3'

start_controller
completes
image 2
reaches progressing 'reported and is_true("Progressing") and status.get("updatedNumberScheduled", 0) in (1, 2)'
completes
reaches complete 'reported and is_true("RolloutComplete") and status["updatedNumberScheduled"] == 3'

kill -STOP "$controller"
image 3
reaches just-changed observed
kill -CONT "$controller"
completes

manager=$(cat "$work/plane/kube-controller-manager.pid")
kill -STOP "$manager"
image 4
sleep 2 # until the controller reports that Kubernetes is behind
save not-observed
kill -CONT "$manager"
completes

ctl pause web > /dev/null
image 5
reaches paused 'reported and is_true("Paused")'
ctl resume web > /dev/null
completes

annotate 'waves=[{"name": "first", "selector": "pool=pool-1"}, {"name": "others", "selector": "pool!=pool-1", "approve": "manual"}]'
image 6
reaches wave 'reported and condition("RolloutComplete")["reason"] == "WaveNotOpen"'
annotate waves-
completes

annotate max-unavailable=abc
reaches invalid 'is_true("InvalidSettings")'
annotate max-unavailable=1
completes

manifest ota web:1 'apps.openyurt.io/update-strategy: OTA' | k apply -f - > /dev/null
completes ds/ota
image 2 ds/ota
reaches owners 'reported and not is_true("RolloutComplete") and not is_true("Progressing")' ds/ota

# With the annotation offline, kwok ignores the new pods. So they fail with the status that the script writes in place of a kubelet.
manifest bad web:1 "$ours" | k apply -f - > /dev/null
completes ds/bad
k patch ds/bad --type merge -p '{"spec": {"template": {"metadata": {"annotations": {"offline": "true"}}}}}' > /dev/null
image 2 ds/bad
failing() {
  local pod
  for pod in $(k get pods -l app=bad --field-selector status.phase=Pending -o name); do
    k patch "$pod" --subresource status --type merge -p '{"status": {"containerStatuses": [{"name": "web", "image": "web:2",
      "imageID": "", "ready": false, "restartCount": 0, "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}]}}'
  done > /dev/null
  holds ds/bad 'reported and is_true("Stalled")'
}
until_true "a stall" failing
save stalled ds/bad

advanced=ads/advanced
manifest advanced web:1 '' apps.kruise.io/v1beta1 | k apply -f - > /dev/null
completes $advanced
change() { k patch $advanced --type merge -p "{\"spec\": {\"template\": {\"spec\": {\"containers\": [{\"name\": \"web\", \"image\": \"web:$1\"}]}}}}" > /dev/null; }
change 2
reaches advanced-progressing 'reported and is_true("Progressing")' $advanced
completes $advanced
reaches advanced-complete "$complete" $advanced
kill -STOP "$controller"
change 3
save advanced-just-changed $advanced
kill -CONT "$controller"
completes $advanced
ctl pause $advanced > /dev/null
change 4
reaches advanced-paused 'reported and is_true("Paused")' $advanced

offline "$space-3"
image 7
reaches offline 'reported and is_true("RolloutComplete") and status["updatedNumberScheduled"] == 2'
