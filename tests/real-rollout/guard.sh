# shellcheck shell=bash disable=SC2154
# An image that crashes makes the guard stop the rollout. With `on-failure: RevertInPlace`, pods are rolled back. Sourced by
# tests/real-rollout.sh.
stories+=(guard_stops guard_takes_the_same_pod_back guard_takes_a_new_pod_back)

crashing() { image hello:crash -- -exit 1; }
is_stopped() { says_condition "$1" Stalled True "rollout stopped: the new version failed" && says_condition "$1" Guard True "failed: $near"; }
was_taken_back() { says_condition "$1" Stalled True "RevertInPlace rolled all pods on online nodes back"; } # DAEMONSET
restarts_of() { pod "$1" "$2" '.status.containerStatuses[0].restartCount'; } # DAEMONSET NODE
is_crashing() { [[ "$(restarts_of "$1" "$2")" -ge 1 ]] && ! serves "$1" "$2" 1; } # DAEMONSET NODE
revision_of() { pod "$1" "$2" '.metadata.labels.controller-revision-hash'; } # DAEMONSET NODE
# is_as_before DAEMONSET: true if both nodes serve version 1 and the native controller counts neither as updated
is_as_before() {
  both_serve "$1" 1 && [ "$(revision_of "$1" "$near")" = "$(revision_of "$1" "$far")" ] &&
    [ "$(kubectl get daemonset "$1" -o 'jsonpath={.status.updatedNumberScheduled} {.status.numberAvailable}')" = " 2" ]
}

guard_stops() {
  local before
  daemonset stops "$old" '{"max-unavailable": "1", "failure-threshold": "0"}'
  until_true 90 "version 1 on both" both_serve stops 1
  until_true 30 "complete" is_complete stops
  before=$(uid stops "$far")
  set_image stops "$(crashing)"
  until_true 150 "stopped" is_stopped stops
  throughout 10 "$near crashes and $far keeps its pod" guard_holds "$before"
  say "stopped after $(restarts_of stops "$near") restarts on $near"
  kubectl rollout undo daemonset/stops > /dev/null 2>&1
  until_true 90 "complete" is_complete stops
  is_same stops "$far" "$before" || fail "$far has another pod"
}
guard_holds() { is_stopped stops && is_crashing stops "$near" && is_same stops "$far" "$1"; }

guard_takes_the_same_pod_back() {
  local node began
  declare -A before address_before
  daemonset back "$old" '{"max-unavailable": "1", "failure-threshold": "0", "on-failure": "RevertInPlace", "rolling-update-type": "InPlaceIfPossible"}'
  until_true 90 "version 1 on both" both_serve back 1
  until_true 30 "complete" is_complete back
  for node in "${nodes[@]}"; do before[$node]=$(uid back "$node") address_before[$node]=$(address_of back "$node"); done
  set_image back "$(crashing)"
  until_true 60 "the image crashes on $near" is_crashing back "$near"
  until_true 150 "stopped" is_stopped back
  began=$SECONDS
  until_true 60 "taken back" was_taken_back back
  until_true 30 "version 1 on both" is_as_before back
  say "version 1 serves on $near $((SECONDS - began)) s after the stop, after $(restarts_of back "$near") restarts"
  for node in "${nodes[@]}"; do
    is_same back "$node" "${before[$node]}" || fail "$node has another pod"
    [ "$(address_of back "$node")" = "${address_before[$node]}" ] || fail "the pod on $node has another address"
  done
  has_verdict back "$near" Revert || fail "the verdict of $near is $(verdict back "$near")"
  restart_controller
  throughout 20 "it stays so" is_as_before back
  is_stopped back || fail "the stop was forgotten"

  say "another version is rolled out in place"
  set_image back "$new"
  until_true 120 "version 2 on both" both_serve back 2
  until_true 60 "complete" is_complete back

  say "an image that is not there: the kubelet has stopped the old container already"
  annotate back '{"predownload": "best-effort"}'
  set_image back "${old%:*}:missing"
  until_true 150 "stopped" is_stopped back
  until_true 60 "taken back" was_taken_back back
  until_true 30 "version 2 on both" both_serve back 2
  for node in "${nodes[@]}"; do is_same back "$node" "${before[$node]}" || fail "$node has another pod"; done
}

guard_takes_a_new_pod_back() {
  local bad
  daemonset anew "$old" '{"max-unavailable": "1", "failure-threshold": "0", "on-failure": "RevertInPlace"}'
  until_true 90 "version 1 on both" both_serve anew 1
  until_true 30 "complete" is_complete anew
  set_image anew "$(crashing)"
  until_true 60 "the image crashes on $near" is_crashing anew "$near"
  bad=$(uid anew "$near")
  until_true 150 "taken back" was_taken_back anew
  until_true 30 "version 1 on both" is_as_before anew
  is_same anew "$near" "$bad" || fail "$near has another pod than the one that crashed"

  say "somebody deletes that pod, and the native controller makes one of the bad template"
  kubectl delete pod -l app=anew --field-selector "$(on_node "$near")" > /dev/null
  until_true 90 "version 1 on both" is_as_before anew
  is_same anew "$near" "$bad" && fail "$near has the same pod"
  is_stopped anew || fail "the stop was forgotten"
  say "taken back after $(restarts_of anew "$near") restarts"
  kubectl rollout undo daemonset/anew > /dev/null 2>&1
  bad=$(uid anew "$near")
  until_true 60 "complete" is_complete anew
  is_same anew "$near" "$bad" || fail "the rollback restarted $near"
}
