# shellcheck shell=bash disable=SC2154
# Without the API server, agents answer reads, even after a restart or power cut, but replace nothing. Sourced by tests/real-ota.sh.

age_on() { # NODE: prints the age of the agent's data in seconds
  curl --silent --fail --max-time 5 --head "$(server "$1")/pods" | tr -d '\r' | sed -n 's/^x-cache-age: //pi'
}
is_older_than() { local age; age=$(age_on "$1"); [ -n "$age" ] && [ "$age" -ge "$2" ]; }
is_younger_than() { local age; age=$(age_on "$1"); [ -n "$age" ] && [ "$age" -lt "$2" ]; }
# The agent writes its state at most every ten seconds. So wait until the state is on disk before cutting the power.
is_on_disk() { # NODE WORDS
  local uid
  uid=$(uid_on "$1" yurt-ds-ota-server-)
  grep -rqF "$2" "$dir/nodes/$1/root/var/lib/kubelet/pods/$uid/volumes/kubernetes.io~empty-dir/state"
}
agent_on() { kubectl -n yurt-ds-edge get pods --field-selector "$(on_node "$1")" -o name; }

without_cloud() {
  local pod agent process age refused="503 OTA upgrade is not allowed when node is disconnected to cloud" since
  pod=default/$(pod_on "$near") agent=$(agent_on "$near")
  process=$(process_of yurt-ds-edge "$agent")
  until_true 30 "the pod on the disk of $near" is_on_disk "$near" "${pod#*/}"
  kill -STOP "$(cat "$dir/kube-apiserver.pid")"
  since=$EPOCHREALTIME
  answers "$refused" "$near" "$pod" upgrade
  answers "$refused" "$near" "$pod" imagepull
  say "65: the API server is frozen: both refused within $(awk -v a="$since" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f s", b - a }')"
  tells "$near" "$name-" 'p["metadata"]["name"]' "${pod#*/}" || fail "GET /pods on $near without the cloud"
  ctl "$near" pods
  kill -9 "$process"
  until_true 10 "the agent on $near is dead" [ ! -e "/proc/$process" ]
  until_true 120 "the agent on $near is back, and tells what it knew" is_older_than "$near" 5
  tells "$near" "$name-" 'p["metadata"]["name"]' "${pod#*/}" || fail "GET /pods on $near after a restart without the cloud"
  age=$(age_on "$near")
  kill -CONT "$(cat "$dir/kube-apiserver.pid")"
  until_true 90 "the agent on $near is in contact again" is_younger_than "$near" "$age"
  say "62: killed and restarted without the cloud, the agent on $near told its pods, $age s old"
}

power_cut() {
  local pod agent age
  agent=$(uid_on "$far" yurt-ds-ota-server-) pod=default/$(pod_on "$far")
  until_true 30 "the pod on the disk of $far" is_on_disk "$far" "${pod#*/}"
  # Without YurtHub, the kubelet needs the API server to start its pods. So cut off only the pods of yurt-ds.
  rule=(OUTPUT -m owner --uid-owner 65532 -p tcp --dport "$api_port" -j DROP)
  iptables -A "${rule[@]}"
  "$plane/node-down" "$dir" "$far"
  "$plane/node-up" "$dir" "$far" > /dev/null
  until_true 120 "the agent on $far is back, and tells what it knew" is_older_than "$far" 1
  tells "$far" "$name-" 'p["metadata"]["name"]' "${pod#*/}" || fail "GET /pods on $far after a power cut"
  tells "$far" yurt-ds-ota-server- 'p["metadata"]["uid"]' "$agent" || fail "another agent on $far"
  answers "503 OTA upgrade is not allowed when node is disconnected to cloud" "$far" "$pod" upgrade
  age=$(age_on "$far")
  ctl "$far" pods
  iptables -D "${rule[@]}"
  rule=()
  until_true 120 "the agent on $far is in contact again" is_younger_than "$far" "$age"
  say "62: after a power cut, cut off from the API server, the agent on $far told its pods, $age s old"
}
