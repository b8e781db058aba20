# Tests with the token of the agent on the first node. Sourced by tests/stolen-token.sh.

pod advanced "$space" "labels: {app: more}, $of_more"
own=$(pod_on "$near") other=$(pod_on "$far")
bound=$(k -n yurt-ds-edge create token yurt-ds-ota-server --bound-object-kind Pod --bound-object-name "$space")
unbound=$(k -n yurt-ds-edge create token yurt-ds-ota-server)
need() { # POD STATUS: sets PodNeedUpgrade as the controller does
  k -n "$space" patch "$1" --subresource status -p "{\"status\": {\"conditions\": [{\"type\": \"PodNeedUpgrade\", \"status\": \"$2\"}]}}" > /dev/null
}
need pod/lone True
marks() { # TOKEN POD PATCH [QUERY [TYPE]]: patches the status of the pod
  call "$1" PATCH "/api/v1/namespaces/$space/pods/${2#pod/}/status${4:-}" "$3" "${5:-$strategic}"
}
ready='{"status": {"conditions": [{"type": "PodImageReady", "status": "False", "reason": "WaitPullImage"}]}}'
in_force "the token is of an agent on no node" marks "$unbound" "$other" "$ready" '?dryRun=All'

refused "a pod for which no new version waits" "no new version waits" thief "$bound" delete "$own" --wait=false
need "$own" True
need "$other" True
refused "the pod of another node" "the pod is on $far" thief "$bound" delete "$other" --wait=false
refused "a condition of another node's pod" "the pod is on $far" marks "$bound" "$other" "$ready"
refused "a pod of no DaemonSet" "pods of DaemonSets" thief "$bound" delete pod/lone --wait=false
refused "a condition of such a pod" "pods of DaemonSets" marks "$bound" pod/lone "$ready"
refused "a deletion that waits for nothing" "grace period" thief "$bound" delete "$own" --force --grace-period 0 --wait=false
refused "a token that names no node" "on no node" thief "$unbound" delete "$own" --wait=false
refused "another condition" "the condition PodImageReady, and no other" marks "$bound" "$own" \
  '{"status": {"conditions": [{"type": "PodNeedUpgrade", "status": "False"}]}}'
refused "a condition that is new" "the condition PodImageReady, and no other" marks "$bound" "$own" \
  '{"status": {"conditions": [{"type": "example.io/mine", "status": "True"}]}}'
refused "conditions that go" "the condition PodImageReady, and no other" marks "$bound" "$own" '{"status": {"conditions": []}}' '' "$merge"
for field in '"phase": "Failed"' '"message": "x"' '"podIP": "192.0.2.1", "podIPs": [{"ip": "192.0.2.1"}]' '"reason": "Evicted"'; do
  refused "the status ${field%%:*}" "nothing of a pod's status but its conditions" marks "$bound" "$own" "{\"status\": {$field}}"
done
for field in '"labels": {"app": "mine"}' '"annotations": {"example.io/mine": "true"}' '"finalizers": ["example.io/mine"]'; do
  refused "the metadata ${field%%:*}" "nothing of a pod's metadata" marks "$bound" "$own" "{\"metadata\": {$field}}"
done
refused "another image" "Forbidden" thief "$bound" patch "$own" -p '{"spec": {"containers": [{"name": "main", "image": "mine"}]}}'
refused "a pod of its own" "Forbidden" thief "$bound" run mine --image mine
refused "an eviction" "Forbidden" thief "$bound" create --raw "/api/v1/namespaces/$space/$(sed s#pod/#pods/# <<< "$own")/eviction" -f /dev/null
refused "all pods at once" "Forbidden" thief "$bound" delete --raw "/api/v1/namespaces/$space/pods"
refused "a Secret" "Forbidden" thief "$bound" get secrets
refused "a DaemonSet" "Forbidden" thief "$bound" delete daemonset web --wait=false
refused "a node" "Forbidden" thief "$bound" delete node "$far" --wait=false
refused "the policy itself" "Forbidden" thief "$bound" delete validatingadmissionpolicy yurt-ds-ota-server --wait=false
refused "another token" "forbidden" thief "$bound" -n yurt-ds-edge create token yurt-ds-ota-server

# Writes of a real agent, which must be allowed.
allowed "a pre-pull for its own pod" marks "$bound" "$own" "$ready"
need pod/advanced True
allowed "a pre-pull for a pod of an Advanced DaemonSet" marks "$bound" pod/advanced "$ready"
allowed "the upgrade of a pod of an Advanced DaemonSet" thief "$bound" delete pod/advanced --wait=false
allowed "the upgrade of its own pod" thief "$bound" delete "$own" --wait=false
[ -n "$(k -n "$space" get "$own" -o 'jsonpath={.metadata.deletionTimestamp}' --ignore-not-found)" ] ||
  [ "$(pod_on "$near")" != "$own" ] || fail "the pod was not deleted"
for survivor in "$other" pod/lone; do
  [ -z "$(k -n "$space" get "$survivor" -o 'jsonpath={.metadata.deletionTimestamp}')" ] || fail "$survivor was deleted"
done
