# shellcheck shell=bash disable=SC2154
# Evictions that a PodDisruptionBudget may block (disruption: evict). Sourced by tests/real-rollout.sh.
stories+=(a_budget_blocks_until_it_is_lowered a_budget_is_content_with_surge)

# budget NAME MIN-AVAILABLE: creates a PodDisruptionBudget for the pods of the DaemonSet NAME
budget() {
  kubectl apply -f - > /dev/null <<END
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: $1}
spec: {minAvailable: $2, selector: {matchLabels: {app: $1}}}
END
  until_true 30 "the budget is counted" is_counted "$1" "$2"
}
is_counted() { # NAME DESIRED: true if the status of the PodDisruptionBudget is up to date
  [ "$(kubectl get poddisruptionbudget "$1" -o 'jsonpath={.status.desiredHealthy} {.status.observedGeneration}')" = \
    "$2 $(kubectl get poddisruptionbudget "$1" -o 'jsonpath={.metadata.generation}')" ]
}
# writes_to DAEMONSET VERB SUBRESOURCE CODES: prints how many of the controller's requests for its pods got one of these codes
writes_to() {
  python3 - "$dir/audit.log" "$@" <<'END_OF_PYTHON'
import json, re, sys
path, daemonset, verb, subresource, codes = sys.argv[1:]
count = 0
for line in open(path):
    event = json.loads(line)
    what = event.get("objectRef", {})
    count += (
        event["userAgent"].startswith("yurt-ds/") and "(controller)" in event["userAgent"]
        and (event["verb"], what.get("resource"), what.get("subresource", "")) == (verb, "pods", subresource)
        and what.get("name", "").startswith(daemonset + "-")
        and re.fullmatch(codes, str(event["responseStatus"]["code"])) is not None
    )
print(count)
END_OF_PYTHON
}

a_budget_blocks_until_it_is_lowered() {
  local node before refused
  declare -A before
  daemonset evicted "$old" '{"max-unavailable": "1", "disruption": "evict"}'
  until_true 90 "version 1 on both" both_serve evicted 1
  for node in "${nodes[@]}"; do before[$node]=$(uid evicted "$node"); done
  budget evicted 2
  set_image evicted "$new"
  until_true 60 "blocked" says_condition evicted RolloutComplete False "PodDisruptionBudget evicted allows no eviction now"
  for node in "${nodes[@]}"; do has_verdict evicted "$node" BlockedByPDB || fail "$node is $(verdict evicted "$node")"; done
  "$binary" ctl --kubeconfig "$dir/kubeconfig" why default/evicted "$near"
  sleep 25
  for node in "${nodes[@]}"; do is_same evicted "$node" "${before[$node]}" || fail "the pod on $node went"; done
  refused=$(writes_to evicted create eviction 429)
  [ "$refused" -ge 2 ] && [ "$refused" -le 5 ] || fail "$refused evictions were refused within half a minute"
  budget evicted 1
  until_true 240 "complete" is_complete evicted
  until_true 30 "version 2 on both" both_serve evicted 2
  [ "$(writes_to evicted create eviction 201)" = 2 ] || fail "not two evictions"
  [ "$(writes_to evicted delete '' '.*')" = 0 ] || fail "a pod was deleted"
  kubectl delete poddisruptionbudget evicted > /dev/null
  say "nothing went while the budget said no, asked $refused times in half a minute; then both, evicted and not deleted"
}

a_budget_is_content_with_surge() {
  local node
  daemonset content "$old" '{"max-surge": "1", "disruption": "evict"}'
  until_true 90 "version 1 on both" both_serve content 1
  budget content 2
  ask_all content
  set_image content "$new"
  until_true 240 "complete" is_complete content
  until_true 30 "version 2 on both" both_serve content 2
  for node in "${nodes[@]}"; do until_true 30 "one pod on $node" has_pods content "$node" 1; done
  were_answered
  [ "$(writes_to content delete '' '.*')" = 0 ] || fail "a pod was deleted"
  kubectl delete poddisruptionbudget content > /dev/null
  say "the new pods counted, and the old ones were evicted; somebody answered at every moment"
}
