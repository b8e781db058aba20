# shellcheck shell=bash disable=SC2154
# Updates one node at a time by deletion. Sourced by tests/real-rollout.sh.
stories+=(one_at_a_time)

one_at_a_time() {
  local node
  declare -A before
  daemonset plain "$old" '{"max-unavailable": "1"}'
  until_true 90 "version 1 on both" both_serve plain 1
  for node in "${nodes[@]}"; do before[$node]=$(uid plain "$node"); done
  set_image plain "$new"
  until_true 90 "version 2 on both" both_serve plain 2
  until_true 30 "complete" is_complete plain
  for node in "${nodes[@]}"; do
    [ "$(uid plain "$node")" != "${before[$node]}" ] || fail "the pod on $node is the same"
    has_verdict plain "$node" Done || fail "the verdict of $node is $(verdict plain "$node")"
  done
  say "both say 2, in new pods"
}
