# shellcheck shell=bash disable=SC2154
# Updates in place: the pod stays, its images are pulled before a container stops, and only changed containers restart.
# Sourced by tests/real-rollout.sh.
stories+=(in_place)

# restarts, started: print a field of a container's status
restarts() { pod place "$1" ".status.containerStatuses[?(@.name==\"$2\")].restartCount"; } # NODE CONTAINER
started() { pod place "$1" ".status.containerStatuses[?(@.name==\"$2\")].state.running.startedAt"; } # NODE CONTAINER
counted_as_updated() {
  [ "$(kubectl get daemonset place -o 'jsonpath={.status.updatedNumberScheduled} {.status.numberAvailable}')" = "2 2" ]
}
# asks_url URL FILE: sends 20 requests per second. Writes the longest time between two responses so far, in milliseconds, to FILE.
asks_url() {
  exec python3 - "$1" "$2" <<'END_OF_PYTHON'
import os, sys, time, urllib.request
last, longest = time.monotonic(), 0
while True:
    try:
        urllib.request.urlopen(sys.argv[1], timeout=0.5).read()
        now = time.monotonic()
        longest, last = max(longest, now - last), now
        with open(sys.argv[2] + ".new", "w") as new:
            new.write(str(round(longest * 1000)))
        os.replace(sys.argv[2] + ".new", sys.argv[2])  # atomic, so that readers always find a number
    except OSError:
        pass
    time.sleep(0.05)
END_OF_PYTHON
}

in_place() {
  local node big asking=() away
  declare -A before address_before side_before
  daemonset place "$old" '{"max-unavailable": "1", "rolling-update-type": "InPlaceIfPossible"}' "" \
    "imagePullPolicy: IfNotPresent}, {name: side, image: \"$old\", args: [\"-listen\", \":8081\"]"
  until_true 90 "version 1 on both" both_serve place 1
  until_true 30 "complete" is_complete place
  for node in "${nodes[@]}"; do
    before[$node]=$(uid place "$node") address_before[$node]=$(address_of place "$node") side_before[$node]=$(started "$node" side)
    asks_url "http://${address_before[$node]}:8080/" "$dir/away-$node" &
    asking+=($!) background+=($!)
  done
  sleep 1

  say "an image of 250 MiB, behind a registry that takes 12 s for it"
  big=$(image hello:big -random 250)
  echo 20 > "$dir/registry/rate"
  set_image place "$big"
  until_true 180 "the big version on both" both_serve place big
  until_true 60 "complete" is_complete place
  rm "$dir/registry/rate"
  sleep 1
  kill "${asking[@]}"
  for node in "${nodes[@]}"; do
    is_same place "$node" "${before[$node]}" || fail "$node has another pod"
    [ "$(address_of place "$node")" = "${address_before[$node]}" ] || fail "the pod on $node has another address"
    [ "$(restarts "$node" main) $(restarts "$node" side)" = "1 0" ] ||
      fail "restarts on $node: main $(restarts "$node" main), side $(restarts "$node" side)"
    [ "$(started "$node" side)" = "${side_before[$node]}" ] || fail "the other container on $node was started again"
    has_verdict place "$node" Done || fail "the verdict of $node is $(verdict place "$node")"
    away=$(cat "$dir/away-$node")
    say "$node did not answer for $away ms at most"
    [ "$away" -lt 3000 ] || fail "$node was away for $away ms"
  done
  until_true 20 "the native controller counts both as updated" counted_as_updated

  say "back in the middle of another one, whose image is not there"
  kubectl annotate daemonset place apps.openyurt.io/predownload=best-effort > /dev/null
  set_image place "${old%:*}:missing"
  until_true 60 "an image that cannot be pulled on one node" has_failing_image
  set_image place "$old"
  until_true 120 "version 1 on both" both_serve place 1
  until_true 60 "complete" is_complete place
  for node in "${nodes[@]}"; do
    is_same place "$node" "${before[$node]}" || fail "$node has another pod after the rollback"
  done

  say "a change of the environment makes new pods"
  kubectl set env daemonset/place -c main GREETING=hello > /dev/null
  until_true 120 "other pods on both" both_are_new
  until_true 60 "complete" is_complete place
}
has_failing_image() {
  grep -q -e ErrImagePull -e ImagePullBackOff <<< \
    "$(kubectl get pods -l app=place -o 'jsonpath={.items[*].status.containerStatuses[*].state.waiting.reason}')"
}
both_are_new() {
  local node
  for node in "${nodes[@]}"; do
    [ -n "$(uid place "$node")" ] && ! is_same place "$node" "${before[$node]}" && serves place "$node" 1 || return 1
  done
}
