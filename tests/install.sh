#!/usr/bin/env bash
# Installs yurt-ds on two real nodes of this machine, as the README describes, and kills the leader in the middle of a rollout.
#
#   install.sh BINARY     BINARY: the static one of `.ci/static build`; needs root and ../shared/control-plane
#
# Two replicas and an agent run as pods with their own service accounts. The image of a DaemonSet changes. The new pod on the first
# node stays not Ready until the test opens its readiness gate. Meanwhile, the leader is killed. The other replica must wait for that
# pod, too, and then complete the rollout.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# = 1 ] || { sed -n '2,8p' "$0" >&2; exit 2; }
. tests/nodes.sh
begin "$1"

show() {
  kubectl -n yurt-ds-edge logs daemonset/yurt-ds-ota-server --tail 50
  for pod in $(replicas); do echo "--- $pod"; kubectl -n yurt-ds logs "$pod" --tail 50; done
}
agent_tells() { # true if the agent on the first node lists a pod whose name begins with the argument
  curl --silent --max-time 10 http://127.0.0.1:10267/pods | grep -F "\"nodeName\":\"${nodes[0]}\"" | grep -F "\"$1" > /dev/null
}
another_leads() { has_leader && [ "$(holder)" != "$leader" ]; }
# Prints the replica whose log reports that it leads with this identity. Other replicas may log the identity as holder of the Lease.
replica_named() {
  local pod
  for pod in $(replicas); do
    if kubectl -n yurt-ds logs "$pod" 2> /dev/null | grep -F "Leading identity=$1" > /dev/null; then echo "$pod" && return; fi
  done
}
revision_of() { kubectl get pods -l app=hello --field-selector "$(on_node "$1")" -o 'jsonpath={.items[*].spec.containers[0].image}'; }
version_of() { # prints the HTTP response of the pod on the node
  local ip
  ip=$(kubectl get pods -l app=hello --field-selector "$(on_node "$1")" -o 'jsonpath={.items[0].status.podIP}')
  curl --silent --max-time 10 "http://$ip:8080/" || true
}
says() { [ "$(version_of "$1")" = "$2" ]; }
one_says() { says "${nodes[0]}" "$1" || says "${nodes[1]}" "$1"; }
uid_on() { kubectl get pods -l app=hello --field-selector "$(on_node "$1")" -o 'jsonpath={.items[*].metadata.uid}'; }
is_same() { [ "$(uid_on "$1")" = "$2" ]; } # NODE UID
# Opens the readiness gate of the pod on the node, so that the kubelet sets it Ready.
open_gate() {
  local pod
  pod=$(kubectl get pods -l app=hello --field-selector "$(on_node "$1")" -o name)
  kubectl patch "$pod" --subresource status -p '{"status": {"conditions": [{"type": "example.io/gate", "status": "True"}]}}' > /dev/null
}

say "control plane and two nodes"
CONTROLLER_MANAGER_FLAGS=$never_offline start_nodes
old=$(image hello:1)
new=$(image hello:2)

say "kubectl apply -k"
# The nodes share one network, in which only one agent can use the port. So only one node gets an agent.
OVERLAY_PATCHES=$(cat <<END
  - patch: |
      apiVersion: apps/v1
      kind: DaemonSet
      metadata: {name: yurt-ds-ota-server, namespace: yurt-ds-edge}
      spec: {template: {spec: {nodeSelector: {kubernetes.io/hostname: "$near"}}}}
END
)
install_us "$(image yurt-ds:test "$binary=/yurt-ds")"
await_us
on=$(kubectl -n yurt-ds get pods -o 'jsonpath={range .items[*]}{.spec.nodeName}{"\n"}{end}' | sort | paste -sd ' ')
[ "$on" = "${nodes[*]}" ] || fail "the replicas run on: $on"
until_true 30 "an agent on ${nodes[0]} that tells its pods" agent_tells yurt-ds-ota-server-
kubectl -n yurt-ds-edge wait --for=condition=RolloutComplete daemonset/yurt-ds-ota-server --timeout 5m > /dev/null

say "a DaemonSet with version 1"
kubectl apply -f - > /dev/null <<END
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: hello
  annotations: {apps.openyurt.io/update-strategy: AdvancedRollingUpdate, apps.openyurt.io/max-unavailable: "1"}
spec:
  updateStrategy: {type: OnDelete}
  selector: {matchLabels: {app: hello}}
  template:
    metadata: {labels: {app: hello}}
    spec:
      terminationGracePeriodSeconds: 2
      containers: [{name: hello, image: "$old", readinessProbe: {httpGet: {path: /readyz, port: 8080}, periodSeconds: 1}}]
END
for node in "${nodes[@]}"; do until_true 60 "version 1 on $node" says "$node" 1; done
kubectl wait --for=condition=RolloutComplete daemonset/hello --timeout 5m > /dev/null

say "version 2; the leader dies when the first node has it"
kubectl patch daemonset hello -p '{"spec": {"template": {"spec": {
  "readinessGates": [{"conditionType": "example.io/gate"}], "containers": [{"name": "hello", "image": "'"$new"'"}]}}}}' > /dev/null
until_true 60 "a first node with version 2" one_says 2
first=${nodes[0]} second=${nodes[1]}
says "$first" 2 || first=${nodes[1]} second=${nodes[0]}
kept=$(uid_on "$second")
leader=$(holder)
pod=$(replica_named "$leader")
node=$(kubectl -n yurt-ds get "$pod" -o 'jsonpath={.spec.nodeName}')
process=$(process_of yurt-ds "$pod")
grep -E 'VmRSS|RssAnon' "/proc/$process/status" | paste -sd ' '
"$plane/node-down" "$dir" "$node" kubelet # the kubelet would restart the container, which could then acquire the Lease again
kill -9 "$process"
say "killed $pod on $node"

until_true 60 "another leader" another_leads
heir=$(replica_named "$(holder)")
if [ -z "$heir" ] || [ "$heir" = "$pod" ]; then fail "the leader is '$heir', not the replica that was waiting"; fi
"$plane/node-up" "$dir" "$node" > /dev/null
throughout 10 "the pod on $second stays while that on $first is not Ready" is_same "$second" "$kept"
says "$second" 1 || fail "the pod on $second does not say 1"
say "$heir leads; $second still has version 1"
open_gate "$first"
until_true 60 "version 2 on $second" says "$second" 2
open_gate "$second"
kubectl wait --for=condition=RolloutComplete daemonset/hello --timeout 5m > /dev/null
for node in "${nodes[@]}"; do says "$node" 2 || fail "$node does not say 2: $(revision_of "$node")"; done
missing=$(kubectl -n yurt-ds get events -o 'jsonpath={.items[?(@.reason=="PermissionMissing")].message}')
[ -z "$missing" ] || fail "$missing"
agent_tells hello- || fail "the agent on ${nodes[0]} does not tell the pod of hello"
say "complete: both nodes say 2"
