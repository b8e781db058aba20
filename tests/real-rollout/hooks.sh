# shellcheck shell=bash disable=SC2154
# A preDelete hook keeps a pod until its label is removed. Meanwhile, a readiness gate makes the pod not Ready. Sourced by
# tests/real-rollout.sh.
stories+=(hook_holds_the_pod)

phase_of() { pod "$1" "$2" '.metadata.labels.lifecycle\.apps\.kruise\.io/state'; } # DAEMONSET NODE
is_ready() { [ "$(pod "$1" "$2" '.status.conditions[?(@.type=="Ready")].status')" = True ]; } # DAEMONSET NODE
waits() { # DAEMONSET NODE UID: true if the pod is marked, not Ready, and still serves
  [ "$(phase_of "$1" "$2")" = PreparingDelete ] && is_same "$1" "$2" "$3" && ! is_ready "$1" "$2" && serves "$1" "$2" 1
}
lets_go() { # DAEMONSET NODE: removes the hook's label, so that the pod may be deleted
  kubectl label pod -l "app=$1" --field-selector "$(on_node "$2")" example.io/drain- > /dev/null
}

hook_holds_the_pod() {
  local node
  declare -A before
  daemonset hooked "$old" '{"max-unavailable": "1", "lifecycle":
    "{\"preDelete\": {\"labelsHandler\": {\"example.io/drain\": \"true\"}, \"markPodNotReady\": true}}"}' \
    'readinessGates: [{conditionType: KruisePodReady}]'
  until_true 90 "version 1 on both" both_serve hooked 1
  kubectl label pod -l app=hooked example.io/drain=true > /dev/null
  until_true 60 "complete" is_complete hooked
  for node in "${nodes[@]}"; do before[$node]=$(uid hooked "$node"); done
  set_image hooked "$new"
  until_true 30 "the pod on $near waits" waits hooked "$near" "${before[$near]}"
  throughout 10 "it waits, and $far is as it was" one_waits
  has_verdict hooked "$near" HookPending || fail "the verdict of $near is $(verdict hooked "$near")"

  say "wanted again, the pod is Ready again"
  set_image hooked "$old"
  until_true 60 "complete" is_complete hooked
  for node in "${nodes[@]}"; do
    is_same hooked "$node" "${before[$node]}" || fail "$node has another pod"
    [ -z "$(phase_of hooked "$node")" ] || fail "the pod on $node is still marked"
    is_ready hooked "$node" || fail "the pod on $node is not Ready"
  done

  say "and again, until the label goes"
  set_image hooked "$new"
  for node in "${nodes[@]}"; do
    until_true 30 "the pod on $node waits" waits hooked "$node" "${before[$node]}"
    lets_go hooked "$node"
    until_true 60 "version 2 on $node" serves hooked "$node" 2
  done
  until_true 60 "complete" is_complete hooked
}
one_waits() {
  waits hooked "$near" "${before[$near]}" && is_same hooked "$far" "${before[$far]}" && is_ready hooked "$far"
}
