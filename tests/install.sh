#!/usr/bin/env bash
# Installs yurt-ds on two real nodes of this machine, as the README says, and takes the leader away in the middle of a rollout.
#
#   install.sh BINARY     the static one that `.ci/static build` makes; needs root and ../shared/control-plane
#
# Story: two replicas and an agent run as pods with their own service accounts. The image of a DaemonSet changes; when the first node has
# the new version, and the second waits for minReadySeconds, the leader's process is killed. The other replica has to finish.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# = 1 ] || { sed -n '2,8p' "$0" >&2; exit 2; }
binary=$(realpath "$1")
plane=$(realpath ../shared/control-plane)
dir=$(mktemp -d /tmp/ydi.XXXX) # short: the path of containerd's socket has a limit
nodes=(alder birch)
declare -A socket=()

say() { printf '%4d s  %s\n' $SECONDS "$*"; }
fail() { echo "install.sh: $*" >&2; exit 1; }
kubectl() { "$("$plane/build")" kubectl --kubeconfig "$dir/kubeconfig" "$@"; }
until_true() { # SECONDS WHAT COMMAND...
  local deadline=$((SECONDS + $1)) what=$2; shift 2
  until "$@"; do
    [ $SECONDS -lt $deadline ] || fail "not within its time: $what"
    sleep 0.5
  done
}
finish() {
  local code=$?
  if [ $code != 0 ]; then
    kubectl -n yurt-ds get pods,leases,events -o wide || true
    kubectl -n yurt-ds-edge get daemonsets,pods,events -o wide || true
    kubectl -n yurt-ds-edge logs daemonset/yurt-ds-ota-server --tail 50 || true
    kubectl get daemonsets,pods -o wide || true
    for pod in $(replicas); do echo "--- $pod"; kubectl -n yurt-ds logs "$pod" --tail 50 || true; done
  fi >&2
  for node in "${nodes[@]}"; do "$plane/node-down" "$dir" "$node" || true; done
  "$plane/down" "$dir" || true
  rm -rf "$dir"
}
replicas() { kubectl -n yurt-ds get pods -l app.kubernetes.io/component=controller -o name; }
agent_tells() { # what its owner would read on that node
  curl --silent --max-time 2 http://127.0.0.1:10267/pods | grep -F "\"nodeName\":\"${nodes[0]}\"" | grep -F "\"$1" > /dev/null
}
has_leader() { [ -n "$(holder)" ]; }
another_leads() { has_leader && [ "$(holder)" != "$leader" ]; }
holder() { kubectl -n yurt-ds get lease yurt-ds-controller -o 'jsonpath={.spec.holderIdentity}'; }
# The replica whose log says that it became the leader under that identity.
replica_named() {
  local pod
  for pod in $(replicas); do
    if kubectl -n yurt-ds logs "$pod" 2> /dev/null | grep -F "$1" > /dev/null; then echo "$pod" && return; fi
  done
}
revision_of() { kubectl get pods -l app=hello --field-selector "spec.nodeName=$1" -o 'jsonpath={.items[*].spec.containers[0].image}'; }
version_of() { # what the pod on that node says over HTTP
  local ip
  ip=$(kubectl get pods -l app=hello --field-selector "spec.nodeName=$1" -o 'jsonpath={.items[0].status.podIP}')
  curl --silent --max-time 2 "http://$ip:8080/" || true
}
one_says() { says "${nodes[0]}" "$1" || says "${nodes[1]}" "$1"; }
says() { [ "$(version_of "$1")" = "$2" ]; }

trap finish EXIT
say "control plane and two nodes"
"$plane/up" "$dir" > /dev/null
read -r _ _ api_port _ < "$dir/ports"
for node in "${nodes[@]}"; do socket[$node]=$("$plane/node-up" "$dir" "$node"); done
image=$("$plane/image" "$dir" yurt-ds:test "$binary=/yurt-ds")
old=$("$plane/image" "$dir" hello:1)
new=$("$plane/image" "$dir" hello:2)

say "kubectl apply -k"
mkdir "$dir/overlay"
cat > "$dir/overlay/kustomization.yaml" <<END
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [$(realpath --relative-to "$dir/overlay" manifests/overlays/host-network)]
images: [{name: yurt-ds, newName: ${image%:*}, newTag: ${image##*:}}]
patches:
  - patch: |
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: yurt-ds-controller, namespace: yurt-ds}
      spec:
        template:
          spec:
            containers: [{name: controller, env: [{name: KUBERNETES_SERVICE_PORT, value: "$api_port"}]}]
  # These nodes share one network, in which only one agent finds its port free.
  - patch: |
      apiVersion: apps/v1
      kind: DaemonSet
      metadata: {name: yurt-ds-ota-server, namespace: yurt-ds-edge}
      spec:
        template:
          spec:
            nodeSelector: {kubernetes.io/hostname: "${nodes[0]}"}
            containers: [{name: ota-server, env: [{name: KUBERNETES_SERVICE_PORT, value: "$api_port"}]}]
END
kubectl apply -k "$dir/overlay" > /dev/null
kubectl -n yurt-ds rollout status deployment/yurt-ds-controller --timeout 90s > /dev/null
on=$(kubectl -n yurt-ds get pods -o 'jsonpath={range .items[*]}{.spec.nodeName}{"\n"}{end}' | sort | paste -sd ' ')
[ "$on" = "${nodes[*]}" ] || fail "the replicas run on: $on"
until_true 30 "a leader" has_leader
until_true 30 "an agent on ${nodes[0]} that tells its pods" agent_tells yurt-ds-ota-server-
kubectl -n yurt-ds-edge wait --for=condition=RolloutComplete daemonset/yurt-ds-ota-server --timeout 60s > /dev/null

say "a DaemonSet with version 1"
kubectl apply -f - > /dev/null <<END
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: hello
  annotations: {apps.openyurt.io/update-strategy: AdvancedRollingUpdate, apps.openyurt.io/max-unavailable: "1"}
spec:
  minReadySeconds: 20
  updateStrategy: {type: OnDelete}
  selector: {matchLabels: {app: hello}}
  template:
    metadata: {labels: {app: hello}}
    spec:
      terminationGracePeriodSeconds: 2
      containers: [{name: hello, image: "$old", readinessProbe: {httpGet: {path: /readyz, port: 8080}, periodSeconds: 1}}]
END
for node in "${nodes[@]}"; do until_true 60 "version 1 on $node" says "$node" 1; done
kubectl wait --for=condition=RolloutComplete daemonset/hello --timeout 60s > /dev/null

say "version 2; the leader dies when the first node has it"
kubectl set image daemonset/hello "hello=$new" > /dev/null
until_true 60 "a first node with version 2" one_says 2
first=${nodes[0]} second=${nodes[1]}
says "$first" 2 || { first=${nodes[1]} second=${nodes[0]}; }
leader=$(holder)
pod=$(replica_named "$leader")
read -r node container < <(kubectl -n yurt-ds get "$pod" -o \
  'jsonpath={.spec.nodeName} {.status.containerStatuses[0].containerID}{"\n"}')
process=$(ctr -a "${socket[$node]}" -n k8s.io tasks ls | awk -v id="${container#containerd://}" '$1 == id { print $2 }')
grep -E 'VmRSS|RssAnon' "/proc/$process/status" | paste -sd ' '
"$plane/node-down" "$dir" "$node" kubelet # it would start the container again, which could win the race for the Lease
kill -9 "$process"
says "$second" 1 || fail "$second was replaced before minReadySeconds had passed on $first"
say "killed $pod on $node; $second still has version 1"

until_true 60 "another leader" another_leads
heir=$(replica_named "$(holder)")
if [ -z "$heir" ] || [ "$heir" = "$pod" ]; then fail "the leader is '$heir', not the replica that was waiting"; fi
"$plane/node-up" "$dir" "$node" > /dev/null
say "$heir leads"
kubectl wait --for=condition=RolloutComplete daemonset/hello --timeout 90s > /dev/null
for node in "${nodes[@]}"; do says "$node" 2 || fail "$node does not say 2: $(revision_of "$node")"; done
missing=$(kubectl -n yurt-ds get events -o 'jsonpath={.items[?(@.reason=="PermissionMissing")].message}')
[ -z "$missing" ] || fail "$missing"
agent_tells hello- || fail "the agent on ${nodes[0]} does not tell the pod of hello"
say "complete: both nodes say 2"
