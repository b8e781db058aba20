# shellcheck shell=bash disable=SC2154
# Announced updates, and their confirmation by the node owner. Sourced by tests/real-ota.sh.

conditions() {
  local node
  daemonset "$name" default "$old" "hostNetwork: true" 'env: [{name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]'
  for node in "${nodes[@]}"; do
    until_true 60 "1.19.4 on $node" says "$node" 1.19.4
    until_true 30 "PodNeedUpgrade False on $node" tells "$node" "$name-" "$need_upgrade" "False controllerrevision: $(hash_of "$name")"
  done
  set_image "$new"
  for node in "${nodes[@]}"; do until_true 30 "PodNeedUpgrade True on $node" waits_for_owner "$node"; done
  say "53: False on both before the image changed, True with $(hash_of "$name") after"
}

reading() {
  local node head
  for node in "${nodes[@]}"; do
    head=$(curl --silent --max-time 5 --dump-header - --output "$dir/pods.json" "$(server "$node")/pods" | tr -d '\r')
    grep -q '^HTTP/1.1 200' <<< "$head" || fail "GET /pods on $node: $head"
    grep -qix 'content-type: application/json' <<< "$head" || fail "GET /pods on $node: $head"
    python3 - "$dir/pods.json" "$node" <<'END_OF_CHECK' || fail "GET /pods on $node is not the list of its pods"
import json, sys
document, node = json.load(open(sys.argv[1])), sys.argv[2]
assert (document["kind"], document["apiVersion"]) == ("PodList", "v1")
assert {pod["spec"]["nodeName"] for pod in document["items"]} == {node}
assert any(pod["metadata"]["namespace"] == "yurt-ds" for pod in document["items"]), "pods of all namespaces"
END_OF_CHECK
  done
  say "61: 200, a PodList with the pods of that node alone, PodNeedUpgrade True"
  ctl "$near" upgrade
}

confirming() {
  local pod kept before
  kept=$(uid_on "$far") before=$(uid_on "$near")
  pod=default/$(pod_on "$near")
  answers "200 Start updating pod $pod" "$near" "$pod" upgrade
  until_true 60 "1.19.5 on $near" says "$near" 1.19.5
  [ "$(uid_on "$near")" != "$before" ] || fail "$near says 1.19.5 in the same pod"
  throughout 3 "the pod on $far is the same" tells "$far" "$name-" 'p["metadata"]["uid"]' "$kept"
  says "$far" 1.19.4 || fail "$far does not say 1.19.4 any more"
  answers "500 Get pod failed, pods \"${pod#*/}\" not found" "$near" "$pod" upgrade
  pod=default/$(pod_on "$far")
  answers "403 Pre check update pod failed, Failed to check pod $pod status, error: Pod: $pod is running on $far, can not be updated" \
    "$near" "$pod" upgrade
  say "63: $near runs 1.19.5, the pod on $far is the same and says 1.19.4"
}
