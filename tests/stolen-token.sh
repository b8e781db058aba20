#!/usr/bin/env bash
# Tests which requests a stolen token allows, on a real API server (Kubernetes 1.30 or newer): an agent's token with
# manifests/components/agent-bound-to-node, and the controller's with manifests/components/controller-bound.
#
#   stolen-token.sh KUBECONFIG [KUBECTL...]     of a cluster administrator; no controller of yurt-ds may run
#
# Each forbidden request must be rejected with the expected words, and each request of the real programs must pass. At the end,
# accounts and roles stay on the cluster. Policies and the CRD stay only if they existed before.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 1 ] || { sed -n '2,9p' "$0" >&2; exit 2; }
admin=$1
shift
[ $# -gt 0 ] || set -- kubectl
kubectl=("$@")
space=stolen-token near=stolen-token-1 far=stolen-token-2
advanced=daemonsets.apps.kruise.io
work=$(mktemp -d)
made=() # objects that are deleted at the end

k() { "${kubectl[@]}" --kubeconfig "$admin" "$@"; }
fail() { echo "stolen-token: $*" >&2; exit 1; }
finish() {
  set +e
  k delete namespace "$space" --wait=false
  k delete pods -n "$space" --all --force --grace-period 0
  k delete pod -n yurt-ds-edge "$space" --force --grace-period 0
  k delete pod -n kube-system "$space" --force --grace-period 0
  k delete node "$near" "$far"
  k delete clusterrolebinding "$space"
  for one in "${made[@]}"; do k delete "$one"; done
  rm -rf "$work"
} > /dev/null 2>&1
trap finish EXIT
add() { # OBJECT COMMAND: runs the command, which creates the object. At the end, the object is deleted unless it existed before
  [ -n "$(k get "$1" -o name --ignore-not-found)" ] || made+=("$1")
  "${@:2}"
}
until_there() { # WHAT COMMAND: repeats the command until it prints something
  local tries
  for ((tries = 0; tries < 600; tries++)); do
    [ -z "$("${@:2}")" ] || return 0
    sleep 0.5
  done
  fail "$1 did not come"
}

# Functions that send requests with a token.
server=$(k config view --raw --minify -o 'jsonpath={.clusters[0].cluster.server}')
k config view --raw --minify --flatten -o 'jsonpath={.clusters[0].cluster.certificate-authority-data}' | base64 -d > "$work/ca.crt"
thief() { # TOKEN ARGUMENTS: runs kubectl with the token
  local token=$1
  shift
  HOME=$work "${kubectl[@]}" --kubeconfig /dev/null --server "$server" --certificate-authority "$work/ca.crt" --token "$token" -n "$space" "$@" 2>&1
}
call() { # TOKEN METHOD PATH BODY [TYPE]: sends a request with curl, because kubectl reads an object before it patches it
  local code
  code=$(curl --silent --cacert "$work/ca.crt" --request "$2" --header "Authorization: Bearer $1" --data "$4" --output "$work/said" \
    --header "Content-Type: application/${5:-json}" --write-out '%{http_code}' "$server$3")
  cat "$work/said"
  [ "${code:0:1}" = 2 ]
}
strategic=strategic-merge-patch+json merge=merge-patch+json apply=apply-patch+yaml
refused() { # WHAT WORDS COMMAND: fails unless the command is rejected with these words
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
in_force() { # WORDS COMMAND: waits until the command is rejected, because a new policy applies only after a moment
  local tries said
  for ((tries = 0; tries < 600; tries++)); do
    said=$("${@:2}" || true)
    ! grep -qF "$1" <<< "$said" || return 0
    sleep 0.5
  done
  fail "no policy answers '$1': $said"
}

# Objects: two nodes, and DaemonSets: one with updates in place, one unmanaged, and an Advanced one. Also a pod without an owner.
for part in base/namespace.yaml base/ota-server/namespace.yaml base/ota-server/serviceaccount.yaml base/ota-server/clusterrole.yaml \
  base/ota-server/binding.yaml; do
  k apply -f "manifests/$part" > /dev/null
done
k apply -k manifests/base/rbac > /dev/null
for name in in-place lifecycle max-surge pre-pull; do k apply -k "manifests/components/$name" > /dev/null; done
for part in clusterrole binding agent; do k apply -f "manifests/components/advanced/$part.yaml" > /dev/null; done
add "crd/$advanced" k apply -f manifests/components/advanced/crd.yaml > /dev/null
k wait --for=condition=Established "crd/$advanced" --timeout 5m > /dev/null
for component in agent-bound-to-node controller-bound; do
  while read -r policy; do add "$policy" true; done < <(
    k kustomize "manifests/components/$component" | awk '/^kind: / { kind = tolower($2) } /^  name: / { print kind "/" $2 }')
  k apply -k "manifests/components/$component" > /dev/null
done
k create namespace "$space" > /dev/null
for node in "$near" "$far"; do
  k create -f - > /dev/null <<END
{apiVersion: v1, kind: Node, metadata: {name: $node, labels: {scenario: $space}}}
END
  k patch node "$node" --subresource status -p '{"status": {"capacity": {"pods": "99"}, "allocatable": {"pods": "99"}}}' > /dev/null
done
daemonset() { # NAME ANNOTATIONS [REQUESTS]
  k create -f - > /dev/null <<END
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: $1, namespace: $space, annotations: {$2}}
spec:
  updateStrategy: {type: OnDelete}
  selector: {matchLabels: {app: $1}}
  template:
    metadata: {labels: {app: $1}}
    spec:
      nodeSelector: {scenario: $space}
      tolerations: [{operator: Exists}]
      initContainers: [{name: first, image: none}]
      containers: [{name: main, image: none, securityContext: {privileged: true}, resources: {requests: {${3:-}}}}]
END
}
daemonset web ""
daemonset place 'apps.openyurt.io/update-strategy: AdvancedRollingUpdate, apps.openyurt.io/rolling-update-type: InPlaceIfPossible'
daemonset large 'apps.openyurt.io/update-strategy: AdvancedRollingUpdate' 'cpu: 1' # too much for a node
pod_on() { k -n "$space" get pods -l "app=${2:-web}" --field-selector "spec.nodeName=$1" -o name; } # NODE [DAEMONSET]
unscheduled() { k -n "$space" get pods -l "app=$1" --field-selector spec.nodeName= -o name | head -n 1; } # DAEMONSET
until_there "an unscheduled pod of large" unscheduled large
for name in web place; do
  for node in "$near" "$far"; do until_there "a pod of $name on $node" pod_on "$node" "$name"; done
done
until_there "the namespace's account" k -n "$space" get serviceaccount default -o name --ignore-not-found
k create -f - > /dev/null <<END
apiVersion: apps.kruise.io/v1beta1
kind: DaemonSet
metadata: {name: more, namespace: $space}
spec:
  selector: {matchLabels: {app: more}}
  template:
    metadata: {labels: {app: more}}
    spec: {containers: [{name: main, image: none}]}
END
more=$(k -n "$space" get "$advanced" more -o 'jsonpath={.metadata.uid}')
pod() { # NAME NAMESPACE [METADATA [SPEC]]
  k create -f - > /dev/null <<END
apiVersion: v1
kind: Pod
metadata: {name: $1, namespace: $2${3:+, $3}}
spec: {nodeName: $near, containers: [{name: main, image: none}]${4:+, $4}}
END
}
of_more="ownerReferences: [{apiVersion: apps.kruise.io/v1beta1, kind: DaemonSet, name: more, uid: $more, controller: true}]"
pod lone "$space"
pod "$space" yurt-ds-edge "" "serviceAccountName: yurt-ds-ota-server"

. tests/stolen-token/agent.sh
. tests/stolen-token/controller.sh
