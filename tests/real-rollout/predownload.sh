# shellcheck shell=bash disable=SC2154
# Images that nodes pull before their update, one node at a time. Sourced by tests/real-rollout.sh.
stories+=(pulled_ahead missing_ahead)

image_on() { pod ahead "$1" '.status.conditions[?(@.type=="PodImageReady")].reason'; } # NODE
is_image_on() { [ "$(image_on "$1")" = "$2" ]; } # NODE REASON
asked_for() { grep -c "GET /v2/ahead/" "$dir/registry.log" || true; } # prints the number of requests that the registry received
# Prints the seconds between the starts of successive layer downloads, as the registry logged them. Omits simultaneous starts.
apart() {
  grep "GET /v2/ahead/blobs/" "$dir/registry.log" | tail -n "+$1" | python3 -c '
import datetime, sys
at = [datetime.datetime.strptime(line[:19], "%Y/%m/%d %H:%M:%S") for line in sys.stdin]
gaps = [int((b - a).total_seconds()) for a, b in zip(at, at[1:])]
print(*[gap for gap in gaps if gap > 1])'
}

pulled_ahead() {
  local node begun asked gaps since
  declare -A before
  daemonset ahead "$(image ahead:1)" '{"max-unavailable": "100%", "image-predownload-parallelism": "1", "predownload": "required"}'
  until_true 90 "version 1 on both" both_serve ahead 1
  for node in "${nodes[@]}"; do before[$node]=$(uid ahead "$node"); done
  # The maintenance window is closed. It limits updates but not pulls.
  annotate ahead "{\"maintenance-window\": \"$(LC_ALL=C date -u -d '+2 days' +%a) 00:00-01:00 UTC\"}"
  echo 10 > "$dir/registry/rate"
  begun=$(grep -c "GET /v2/ahead/blobs/" "$dir/registry.log" || true)
  since=$SECONDS
  set_image ahead "$(image ahead:2 -random 80)"
  until_true 30 "the first is asked to pull" is_image_on "$near" WaitPullImage
  until_true 60 "the images on $near, and nobody pulls beside it" near_is_first
  for node in "${nodes[@]}"; do until_true 120 "the images on $node" is_image_on "$node" PullImageSuccess; done
  for node in "${nodes[@]}"; do
    is_same ahead "$node" "${before[$node]}" || fail "the pod on $node was replaced before its window"
    has_verdict ahead "$node" OutOfWindow || fail "the verdict of $node is $(verdict ahead "$node")"
  done
  gaps=$(apart $((begun + 1)))
  say "both pulled 80 MiB at 10 MiB/s ahead, in $((SECONDS - since)) s; downloads began $gaps s apart"
  # Each pull takes eight seconds. Two parallel pulls would start at the same time.
  [ "${gaps%% *}" -ge 5 ] || fail "two nodes pulled at once: $gaps"
  until_true 30 "no Job is left" no_job
  asked=$(asked_for) since=$EPOCHREALTIME
  annotate ahead '{"maintenance-window": null}'
  until_true 60 "version 2 on both" both_serve ahead 2
  say "then both were replaced within $(python3 -c "print(f'{$EPOCHREALTIME - $since:.1f}')") s"
  [ "$(asked_for)" = "$asked" ] || fail "the replacement asked the registry $(($(asked_for) - asked)) times"
  rm "$dir/registry/rate"
  until_true 30 "complete" is_complete ahead
}
near_is_first() {
  local both
  both=$(kubectl get pods -l app=ahead -o 'jsonpath={range .items[*]}{.status.conditions[?(@.type=="PodImageReady")].reason} {end}')
  [ "$(grep -o WaitPullImage <<< "$both" | wc -l)" -le 1 ] || fail "two nodes pull at once: $both"
  is_image_on "$near" PullImageSuccess
}
no_job() { [ -z "$(kubectl get jobs -o name)" ]; }

missing_ahead() {
  local since=$SECONDS
  daemonset lacking "$(image lacking:1)" '{"max-unavailable": "100%", "image-predownload-parallelism": "2", "predownload": "required"}'
  until_true 90 "version 1 on both" both_serve lacking 1
  set_image lacking "127.0.0.1:$registry_port/lacking:3"
  until_true 90 "stalled by a missing image" says_condition lacking Stalled True "the new images cannot be pulled on"
  both_serve lacking 1 || fail "a node without the image was touched"
  "$binary" ctl --kubeconfig "$dir/kubeconfig" why default/lacking "$near" | sed 's/^/          /'
  since=$SECONDS
  image lacking:3 > /dev/null
  until_true 150 "version 3 on both" both_serve lacking 3
  say "pulled and replaced $((SECONDS - since)) s after the image was there"
}
