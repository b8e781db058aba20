#!/usr/bin/env bash
# What the holder of an agent's token can do under manifests/components/agent-bound-to-node, on a real API server (Kubernetes 1.30 or
# newer, whose tokens say on which node their pod runs).
#
#   stolen-token.sh KUBECONFIG [KUBECTL...]     of a user who may do everything
#
# Two nodes, on each a pod of a DaemonSet, on the first one also a pod of nobody. The thief has the token of the agent there. Agents' account and
# role stay on the cluster, the policy only if it was there before.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 1 ] || { sed -n '2,9p' "$0" >&2; exit 2; }
admin=$1
shift
[ $# -gt 0 ] || set -- kubectl
kubectl=("$@")
space=stolen-token near=stolen-token-1 far=stolen-token-2
work=$(mktemp -d)

k() { "${kubectl[@]}" --kubeconfig "$admin" "$@"; }
fail() { echo "stolen-token: $*" >&2; exit 1; }
finish() {
  k delete namespace "$space" --wait=false
  k delete pods -n "$space" --all --force --grace-period 0
  k delete pod -n yurt-ds-edge "$space" --force --grace-period 0
  k delete node "$near" "$far"
  [ -n "${was_there-x}" ] || k delete -k manifests/components/agent-bound-to-node
  rm -rf "$work"
} > /dev/null 2>&1
trap finish EXIT

# What is there.
for part in base/namespace.yaml base/ota-server/namespace.yaml base/ota-server/serviceaccount.yaml base/ota-server/clusterrole.yaml \
  base/ota-server/binding.yaml; do
  k apply -f "manifests/$part" > /dev/null
done
was_there=$(k get validatingadmissionpolicy yurt-ds-ota-server -o name --ignore-not-found)
k apply -k manifests/components/agent-bound-to-node > /dev/null
k create namespace "$space" > /dev/null
for node in "$near" "$far"; do
  k create -f - > /dev/null <<END
{apiVersion: v1, kind: Node, metadata: {name: $node, labels: {scenario: $space}}}
END
  k patch node "$node" --subresource status -p '{"status": {"capacity": {"pods": "9"}, "allocatable": {"pods": "9"}}}' > /dev/null
done
k create -f - > /dev/null <<END
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: web, namespace: $space}
spec:
  updateStrategy: {type: OnDelete}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      nodeSelector: {scenario: $space}
      tolerations: [{operator: Exists}]
      containers: [{name: main, image: none}]
END
pod_on() { k -n "$space" get pods -l app=web --field-selector "spec.nodeName=$1" -o name; }
for ((tries = 0; tries < 600; tries++)); do
  own=$(pod_on "$near") other=$(pod_on "$far")
  [ -z "$own" ] || [ -z "$other" ] || break
  sleep 0.5
done
[ -n "$own" ] && [ -n "$other" ] || fail "the DaemonSet has no pods"
for ((tries = 0; tries < 600; tries++)); do
  [ -z "$(k -n "$space" get serviceaccount default -o name --ignore-not-found)" ] || break
  sleep 0.5
done
k create -f - > /dev/null <<END
apiVersion: v1
kind: Pod
metadata: {name: lone, namespace: $space}
spec: {nodeName: $near, containers: [{name: main, image: none}]}
END
need() { # POD STATUS: as the controller says it
  k -n "$space" patch "$1" --subresource status -p "{\"status\": {\"conditions\": [{\"type\": \"PodNeedUpgrade\", \"status\": \"$2\"}]}}" > /dev/null
}
need pod/lone True
k create -f - > /dev/null <<END
apiVersion: v1
kind: Pod
metadata: {name: $space, namespace: yurt-ds-edge}
spec: {nodeName: $near, serviceAccountName: yurt-ds-ota-server, containers: [{name: main, image: none}]}
END

# The thief.
server=$(k config view --raw --minify -o 'jsonpath={.clusters[0].cluster.server}')
k config view --raw --minify --flatten -o 'jsonpath={.clusters[0].cluster.certificate-authority-data}' | base64 -d > "$work/ca.crt"
bound=$(k -n yurt-ds-edge create token yurt-ds-ota-server --bound-object-kind Pod --bound-object-name "$space")
unbound=$(k -n yurt-ds-edge create token yurt-ds-ota-server)
thief() { # TOKEN ARGUMENTS
  local token=$1
  shift
  HOME=$work "${kubectl[@]}" --kubeconfig /dev/null --server "$server" --certificate-authority "$work/ca.crt" --token "$token" -n "$space" "$@" 2>&1
}
marks() { # TOKEN POD PATCH [QUERY [TYPE]]: its status; kubectl would read it first, which agents may not
  local code
  code=$(curl --silent --cacert "$work/ca.crt" --request PATCH --header "Authorization: Bearer $1" --data "$3" --output "$work/said" \
    --header "Content-Type: application/${5:-strategic-merge}-patch+json" --write-out '%{http_code}' \
    "$server/api/v1/namespaces/$space/pods/${2#pod/}/status${4:-}")
  cat "$work/said"
  [ "$code" = 200 ]
}
refused() { # WHAT WORDS COMMAND: with the words of who refuses
  local what=$1 words=$2 said
  shift 2
  if said=$("$@"); then fail "$what was not refused: $said"; fi
  grep -qF "$words" <<< "$said" || fail "$what was refused with other words than '$words': $said"
  echo "refused: $what"
}
allowed() { # WHAT COMMAND
  local what=$1 said
  shift
  said=$("$@") || fail "$what was refused: $said"
  echo "allowed: $what"
}
ready='{"status": {"conditions": [{"type": "PodImageReady", "status": "False", "reason": "WaitPullImage"}]}}'

# A new policy is in force a moment later.
for ((tries = 0; tries < 600; tries++)); do
  said=$(marks "$unbound" "$other" "$ready" '?dryRun=All' || true)
  ! grep -q "the token is of an agent on no node" <<< "$said" || break
  sleep 0.5
done

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
refused "conditions that go" "the condition PodImageReady, and no other" marks "$bound" "$own" '{"status": {"conditions": []}}' '' merge
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

# What an agent does.
allowed "a pre-pull for its own pod" marks "$bound" "$own" "$ready"
allowed "the upgrade of its own pod" thief "$bound" delete "$own" --wait=false
[ -n "$(k -n "$space" get "$own" -o 'jsonpath={.metadata.deletionTimestamp}' --ignore-not-found)" ] ||
  [ "$(pod_on "$near")" != "$own" ] || fail "the pod was not deleted"
for survivor in "$other" pod/lone; do
  [ -z "$(k -n "$space" get "$survivor" -o 'jsonpath={.metadata.deletionTimestamp}')" ] || fail "$survivor was deleted"
done
