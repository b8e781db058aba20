# shellcheck shell=bash disable=SC2034
# Functions of the scripts that test on two real nodes of this machine. The scripts source this file.
#
#   begin BINARY          parses the argument; from here on, everything is cleaned up at the end
#   start_nodes           starts the control plane and the nodes
#   install_us IMAGE      installs yurt-ds from manifests/, as the README describes; with another image, upgrades it
#   run_controller        instead of install_us: runs the controller next to the control plane, with the role of manifests/
#
# A script may define `show`, which prints its own objects after a failure.
plane=$(realpath ../shared/control-plane)
kubectl_binary=$("$plane/build")
nodes=(alder birch)
near=${nodes[0]} far=${nodes[1]}
declare -A socket=() address=()
background=()
rule=() # iptables rule to remove at the end; empty if there is none
# Kubelets renew their Lease every two seconds. The grace period is long, so that a slow machine makes no running node NotReady.
soon_offline="--node-monitor-grace-period=20s --node-monitor-period=1s"
never_offline="--node-monitor-grace-period=1h"

say() { printf '%4d s  %s\n' $SECONDS "$*"; }
fail() { echo "${0##*/}: $*" >&2; exit 1; }
kubectl() { "$kubectl_binary" kubectl --kubeconfig "$dir/kubeconfig" "$@"; }
# SECONDS are for a quiet machine. With eight busy loops on two cores, everything takes about five times as long. So an error is
# reported only after five times SECONDS.
until_true() { # SECONDS WHAT COMMAND...
  local deadline=$((SECONDS + 5 * $1)) what=$2; shift 2
  until "$@"; do
    [ $SECONDS -lt $deadline ] || fail "not within its time: $what"
    sleep 0.5
  done
}
throughout() { # SECONDS WHAT COMMAND...
  local deadline=$((SECONDS + $1)) what=$2; shift 2
  while [ $SECONDS -lt $deadline ]; do
    "$@" || fail "did not hold: $what"
    sleep 0.5
  done
}

begin() { # BINARY
  binary=$(realpath "$1")
  dir=$(mktemp -d /tmp/ydn.XXXX) # short, because the path of containerd's socket has a length limit
  trap finish EXIT
}
show() { :; }
finish() {
  local code=$? node
  set +e
  kill -CONT "$(cat "$dir/registry.pid")" "$(cat "$dir/kube-apiserver.pid")" 2> /dev/null
  if [ $code != 0 ]; then
    kubectl get nodes -o wide
    kubectl -n yurt-ds get pods,leases,events -o wide
    kubectl -n yurt-ds-edge get daemonsets,pods,events -o wide
    kubectl get daemonsets,pods,jobs -o wide
    show
    keep_logs
  fi >&2
  [ ${#rule[@]} = 0 ] || iptables -D "${rule[@]}"
  [ ${#background[@]} = 0 ] || kill "${background[@]}" 2> /dev/null
  for node in "${nodes[@]}"; do "$plane/node-down" "$dir" "$node"; done
  "$plane/down" "$dir"
  rm -rf "$dir"
  exit $code
}
keep_logs() {
  local kept=$dir.logs node
  mkdir -p "$kept"
  cp "$dir"/*.log "$kept"
  for node in "${nodes[@]}"; do
    mkdir "$kept/$node"
    cp -r "$dir/nodes/$node"/*.log "$dir/nodes/$node/root/var/log/pods" "$kept/$node"
  done
  echo "logs: $kept"
}

start_nodes() {
  local node
  "$plane/up" "$dir" > /dev/null
  read -r _ _ api_port registry_port < "$dir/ports"
  for node in "${nodes[@]}"; do
    socket[$node]=$("$plane/node-up" "$dir" "$node")
    address[$node]=198.18.$(cat "$dir/nodes/$node/number").1
  done
  cp -r manifests "$dir/manifests"
}
image() { "$plane/image" "$dir" "$@"; }

# OVERLAY_PATCHES contains further patches of the caller, in the format of kustomize.
install_us() { # IMAGE
  mkdir -p "$dir/overlay"
  cat > "$dir/overlay/kustomization.yaml" <<END_OF_OVERLAY
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../manifests/overlays/host-network]
images: [{name: yurt-ds, newName: ${1%:*}, newTag: "${1##*:}"}]
patches:
  - patch: |
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: yurt-ds-controller, namespace: yurt-ds}
      spec:
        template:
          spec:
            containers: [{name: controller, env: [{name: KUBERNETES_SERVICE_PORT, value: "$api_port"}]}]
  - patch: |
      apiVersion: apps/v1
      kind: DaemonSet
      metadata: {name: yurt-ds-ota-server, namespace: yurt-ds-edge}
      spec:
        template:
          spec:
            containers: [{name: ota-server, env: [{name: KUBERNETES_SERVICE_PORT, value: "$api_port"}]}]
${OVERLAY_PATCHES:-}
END_OF_OVERLAY
  kubectl apply -k "$dir/overlay" > /dev/null
  add_components agent-bound-to-node "${components[@]}"
}
components=(controller-bound in-place lifecycle max-surge pre-pull)
add_components() { # NAMES
  local name
  for name in "$@"; do kubectl apply -k "manifests/components/$name" > /dev/null; done
}
run_controller() {
  local token
  kubectl apply -f manifests/base/namespace.yaml > /dev/null
  kubectl apply -k manifests/base/rbac > /dev/null
  add_components "${components[@]}"
  token=$(kubectl -n yurt-ds create token yurt-ds-controller --duration 1h)
  cat > "$dir/controller.yaml" <<END_OF_KUBECONFIG
apiVersion: v1
kind: Config
clusters: [{name: local, cluster: {server: "https://127.0.0.1:$api_port", certificate-authority: "$dir/ca.crt"}}]
users: [{name: controller, user: {token: "$token"}}]
contexts: [{name: local, context: {cluster: local, user: controller}}]
current-context: local
END_OF_KUBECONFIG
  "$binary" controller --kubeconfig "$dir/controller.yaml" --listen 127.0.0.1:0 --lease-namespace yurt-ds >> "$dir/controller.log" 2>&1 &
  controller=$!
  background+=("$controller")
}
await_us() {
  kubectl -n yurt-ds rollout status deployment/yurt-ds-controller --timeout 10m > /dev/null
  until_true 60 "a leader" has_leader
}
has_leader() { [ -n "$(holder)" ]; }
holder() { kubectl -n yurt-ds get lease yurt-ds-controller --ignore-not-found -o 'jsonpath={.spec.holderIdentity}'; }
replicas() { kubectl -n yurt-ds get pods -l app.kubernetes.io/component=controller -o name; }

# Field selector for the pods on a node that a DaemonSet counts. A deleted pod that has ended stays in the API for a moment. The
# DaemonSet controller doesn't wait until it is gone, so the old pod and the new pod exist at the same time.
on_node() { echo "spec.nodeName=$1,status.phase!=Succeeded,status.phase!=Failed"; } # NODE

# Returns the process ID of a pod's first container.
process_of() { # NAMESPACE POD
  local node container
  read -r node container < <(kubectl -n "$1" get "$2" -o \
    'jsonpath={.spec.nodeName} {.status.containerStatuses[0].containerID}{"\n"}')
  ctr -a "${socket[$node]}" -n k8s.io tasks ls | awk -v id="${container#containerd://}" '$1 == id { print $2 }'
}
