#!/usr/bin/env bash
# Checks the Helm chart. Needs helm 4 and PyYAML.
#
#   chart.sh [KUBECONFIG [KUBECTL...]]     of a cluster administrator, on a cluster without yurt-ds
#
# First without a cluster: the chart passes the linter, its package renders the same objects as the manifests, and its schema
# rejects mistakes. Then on the cluster: the API server accepts all objects. Install, upgrade, rollback and uninstall keep the
# objects of users and don't restart their pods. An installation by kustomize can be converted to one by Helm.
set -euo pipefail
cd "$(dirname "$0")/.."
admin=${1:-}
[ $# = 0 ] || shift
[ $# -gt 0 ] || set -- kubectl
kubectl=("$@")
space=chart-test crd=daemonsets.apps.kruise.io
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HELM_CACHE_HOME=$work/cache HELM_CONFIG_HOME=$work/config HELM_DATA_HOME=$work/data

say() { printf 'chart: %s\n' "$*"; }
fail() { echo "chart: $*" >&2; exit 1; }
everything=(--values tests/chart/everything.yaml)
helm_template() { # VERSION [ARGUMENT]...
  helm template yurt-ds "$package" --namespace yurt-ds --kube-version "$1" "${@:2}"
}

say "lint"
helm lint --strict charts/yurt-ds > "$work/lint" 2>&1 || fail "$(cat "$work/lint")"
helm lint --strict charts/yurt-ds "${everything[@]}" > "$work/lint" 2>&1 || fail "$(cat "$work/lint")"
# From here on, test the package. It contains files where the chart contains links.
helm package charts/yurt-ds --destination "$work" > "$work/packed" 2>&1 || fail "$(cat "$work/packed")"
package=$(echo "$work"/yurt-ds-*.tgz)
[ "$(tar -tvf "$package" | grep -c '^l' || true)" = 0 ] || fail "the package contains links"

say "values, schema and table"
python3 -c 'import yaml' 2> /dev/null || {
  python3 -m pip install --quiet --target "$work/python" PyYAML
  export PYTHONPATH=$work/python
}
python3 tests/chart/check.py values || fail "the values are not described"
accepted() { helm_template 1.36.0 --set "$1" > "$work/said" 2>&1 || fail "$1 is rejected: $(cat "$work/said")"; }
rejected() { # VALUE WORDS
  ! helm_template 1.36.0 --set "$1" > "$work/said" 2>&1 || fail "$1 is not rejected"
  grep -qF -- "$2" "$work/said" || fail "$1 is rejected with other words than '$2': $(cat "$work/said")"
}
accepted global.anything=1
accepted enabled=true # the condition by which a parent chart enables this chart
accepted agent.enabled=false
rejected replica=3 "'replica' not allowed"
rejected features.inplace=true "'inplace' not allowed"
rejected agent.imagee=x "'imagee' not allowed"
rejected image.pullPolicy=Sometimes "image/pullPolicy"
rejected image.digest=sha256:short "image/digest"
rejected serviceAccount.create=false "serviceAccount/name"
rejected notifications.url=hooks.example "notifications/url"
rejected notifications.url=https://me:secret@hooks.example "notifications/url"
! helm_template 1.27.0 > "$work/said" 2>&1 || fail "Kubernetes 1.27 is not rejected"

same() { # VERSION VALUES MANIFESTS...
  local manifest
  helm_template "$1" --set "$2" > "$work/chart.yaml"
  for manifest in "${@:3}"; do
    "${kubectl[@]}" kustomize "manifests/$manifest"
    echo ---
  done > "$work/manifests.yaml"
  python3 tests/chart/check.py same "$work/chart.yaml" "$work/manifests.yaml" || fail "${2:-the default} on $1 is not ${*:3}"
  say "equal on $1: ${2:-default values} and ${*:3}"
}
bound="components/controller-bound components/agent-bound-to-node"
# shellcheck disable=SC2086
{
  same 1.28.0 "" base
  same 1.30.0 "" base $bound
  same 1.36.0 "policies.controllerBound=false,policies.agentBoundToNode=false" base
  same 1.36.0 "features.inPlace=true" base $bound components/in-place
  same 1.36.0 "features.lifecycle=true" base $bound components/lifecycle
  same 1.36.0 "features.maxSurge=true" base $bound components/max-surge
  same 1.36.0 "features.prePull=true" base $bound components/pre-pull
  same 1.36.0 "features.advanced=true" base $bound components/advanced
  same 1.28.0 "replicas=1" overlays/single-replica
  same 1.28.0 "agent.port=10271" overlays/beside-yurthub
  same 1.28.0 "agent.socket.enabled=true" overlays/agent-socket
  same 1.28.0 "agent.staticPods.enabled=true" overlays/static-pods
  same 1.28.0 "hostNetwork=true,apiServer.host=127.0.0.1" overlays/host-network
}
# If the controller uses another service account, the policies must limit that account.
helm_template 1.36.0 --namespace other --set serviceAccount.create=false,serviceAccount.name=mine,fullnameOverride=fleet > "$work/chart.yaml"
! grep -nE 'system:serviceaccount:yurt-ds:|name: yurt-ds-(controller|viewer|operator)$' "$work/chart.yaml" || fail "names are not replaced"
grep -qF '"system:serviceaccount:other:mine"' "$work/chart.yaml" || fail "the policies don't name the account"

say "notifications"
helm_template 1.36.0 --set notifications.url=https://hooks.example,notifications.secretName=hooks > "$work/chart.yaml"
file=$(grep -A1 'name: YURT_DS_NOTIFY_SECRET_FILE' "$work/chart.yaml" | sed -n 's/ *value: //p')
mount=$(grep -B1 -A1 "mountPath: ${file%/*}\$" "$work/chart.yaml")
grep -qx ' *- name: notifications' <<< "$mount" && grep -qx ' *readOnly: true' <<< "$mount" || fail "no read-only mount for $file"
grep -qF "items: [{key: ${file##*/}, path: ${file##*/}}]" "$work/chart.yaml" || fail "the Secret has no file $file"
helm_template 1.36.0 > "$work/chart.yaml"
! grep -i NOTIFY "$work/chart.yaml" > "$work/said" || fail "without notifications: $(cat "$work/said")"

say "as a part of another chart"
mkdir -p "$work/parent/charts"
cp "$package" "$work/parent/charts"
cat > "$work/parent/Chart.yaml" <<END
apiVersion: v2
name: parent
version: 1.0.0
dependencies: [{name: yurt-ds, version: "*", condition: yurt-ds.enabled}]
END
helm template app "$work/parent" --set yurt-ds.enabled=false,global.a=b > "$work/chart.yaml"
! grep . "$work/chart.yaml" || fail "yurt-ds.enabled=false renders objects"
helm template app "$work/parent" --set yurt-ds.enabled=true,global.a=b > "$work/chart.yaml"
grep -qx '  name: app-yurt-ds-controller' "$work/chart.yaml" || fail "yurt-ds.enabled=true renders no controller"
[ -n "$admin" ] || exit 0

k() { "${kubectl[@]}" --kubeconfig "$admin" "$@"; }
h() { helm --kubeconfig "$admin" "$@"; }
there() { [ -n "$(k get "$@" -o name --ignore-not-found)" ]; }
gone() { ! there "$@"; }
nodes=(chart-test-1 chart-test-2)
clean() {
  h uninstall yurt-ds --namespace yurt-ds
  k delete -k manifests/base --wait=false
  k delete crd "$crd"
  k delete clusterrolebinding "$space"
  k delete namespace "$space" yurt-ds yurt-ds-edge --wait=false
  k delete node "${nodes[@]}"
  k delete pods --all --force --grace-period 0 -n "$space"
  k delete pods --all --force --grace-period 0 -n yurt-ds-edge
  k delete pods --all --force --grace-period 0 -n yurt-ds
  k wait --for=delete namespace "$space" yurt-ds yurt-ds-edge --timeout 2m
} > /dev/null 2>&1
gone namespace yurt-ds yurt-ds-edge || fail "there is a namespace yurt-ds or yurt-ds-edge"
gone crd "$crd" || fail "there is a $crd"
trap 'clean || true; rm -rf "$work"' EXIT
version=$(k version -o json | python3 -c 'import json, sys; print(json.load(sys.stdin)["serverVersion"]["gitVersion"])')

say "all objects on $version"
for namespace in yurt-ds yurt-ds-edge "$space"; do k create namespace "$namespace" --save-config > /dev/null; done
# Omit objects of the Prometheus Operator, because its CRDs are not installed.
for values in charts/yurt-ds/values.yaml tests/chart/everything.yaml; do
  helm_template "$version" --values "$values" --skip-tests | python3 -c 'import sys, yaml
for one in yaml.safe_load_all(sys.stdin):
  if one and not one["apiVersion"].startswith("monitoring."): print("---", yaml.safe_dump(one), sep="\n")' > "$work/objects.yaml"
  k apply --dry-run=server --validate=strict -f "$work/objects.yaml" > "$work/said" 2>&1 ||
    fail "$(grep -v 'server dry run' "$work/said")"
  ! grep -i warning "$work/said" || fail "the API server warns"
  say "$(wc -l < "$work/said") objects of $values accepted"
done
k delete namespace yurt-ds yurt-ds-edge > /dev/null

say "a user's objects"
until_true() { # WHAT COMMAND
  local tries
  for ((tries = 0; tries < 240; tries++)); do
    ! "${@:2}" || return 0
    sleep 0.5
  done
  fail "not within its time: $1"
}
for node in "${nodes[@]}"; do
  k apply -f - > /dev/null <<END
apiVersion: v1
kind: Node
metadata: {name: $node, labels: {kubernetes.io/os: linux, kubernetes.io/hostname: $node}}
END
done
daemonset() { # APIVERSION
  cat <<END
apiVersion: $1
kind: DaemonSet
metadata: {name: web, namespace: $space, annotations: {apps.openyurt.io/update-strategy: AdvancedRollingUpdate}}
spec:
  updateStrategy: {type: OnDelete}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web:1}], tolerations: [{operator: Exists}]}
END
}
create_advanced() { daemonset apps.kruise.io/v1beta1 | k apply -f - > /dev/null 2>&1; }
pods() { k -n "$1" get pods -o jsonpath='{range .items[*]}{.metadata.name}{" "}{.metadata.uid}{"\n"}{end}' | sort; }
has_pods() { [ "$(pods "$1" | wc -l)" = "$2" ]; }
kept() { # prints the objects of a user, and the CRD
  pods "$space"
  k -n "$space" get daemonsets.apps,"$crd",rolebindings,controllerrevisions.apps -o name | sort
  k -n "$space" get daemonsets.apps,"$crd" web -o jsonpath='{.items[*].metadata.uid} {.items[*].metadata.generation}'
  k -n yurt-ds-edge get configmap notes -o jsonpath='{.metadata.uid}'
  k get crd "$crd" -o jsonpath='{.metadata.uid}'
}
unchanged() { # WHAT
  sleep 3 # after this time, a restarted pod would be visible
  [ "$(kept)" = "$before" ] || fail "$1 changed what a user has: $(diff <(echo "$before") <(kept))"
  say "nothing of a user changed: $1"
}
install=(install yurt-ds "$package" --namespace yurt-ds --create-namespace)
h "${install[@]}" --set features.advanced=true > /dev/null
k wait --for condition=Established "crd/$crd" > /dev/null
daemonset apps/v1 | k apply -f - > /dev/null
until_true "the Advanced DaemonSet" create_advanced
k -n "$space" create rolebinding jane --clusterrole yurt-ds-operator --user jane > /dev/null
k -n yurt-ds-edge create configmap notes --from-literal a=b > /dev/null
until_true "pods of the DaemonSet" has_pods "$space" 2
until_true "agents" has_pods yurt-ds-edge 2
before=$(kept) agents=$(pods yurt-ds-edge)

say "helm test"
tester=pod/yurt-ds-test
h test yurt-ds --namespace yurt-ds --timeout 2m > "$work/tested" 2>&1 &
until_true "the pod of the test" there -n yurt-ds "$tester"
# No kubelet runs the pod on these fake nodes, so set its phase here.
k -n yurt-ds patch "$tester" --subresource status --type merge -p '{"status": {"phase": "Succeeded"}}' > /dev/null
wait $! || fail "$(cat "$work/tested")"
gone clusterrolebinding yurt-ds-test yurt-ds-test-reviews yurt-ds-test-advanced || fail "the test left its binding"

h upgrade yurt-ds "$package" --namespace yurt-ds --set features.advanced=true,features.inPlace=true,features.maxSurge=true,image.tag=other > /dev/null
unchanged "an upgrade to a new image, with more features"
[ "$(pods yurt-ds-edge)" = "$agents" ] || fail "the upgrade restarted agents: yurt-ds rolls them out"
there clusterrole yurt-ds-controller-in-place || fail "the upgrade added no role"
h upgrade yurt-ds "$package" --namespace yurt-ds --reset-values > /dev/null
unchanged "an upgrade without features"
gone clusterrole yurt-ds-controller-in-place || fail "the right to change pods is still there"
h rollback yurt-ds 1 --namespace yurt-ds > /dev/null
unchanged "a rollback"
there clusterrole yurt-ds-controller-advanced || fail "the rollback brought no role back"
[ "$(k -n yurt-ds-edge get daemonset yurt-ds-ota-server -o jsonpath='{.spec.template.spec.containers[0].image}')" = yurt-ds:0.1.0 ] ||
  fail "the rollback left the image"
[ "$(pods yurt-ds-edge)" = "$agents" ] || fail "the rollback restarted agents"
h uninstall yurt-ds --namespace yurt-ds > /dev/null
unchanged "uninstall"
left=$(k get clusterroles,clusterrolebindings,priorityclasses -o name | grep yurt-ds || true)
[ -z "$left" ] || fail "uninstall left $left"
h "${install[@]}" --set features.advanced=true,crds.keep=false > /dev/null
unchanged "a new install over what was kept"
h uninstall yurt-ds --namespace yurt-ds > /dev/null
until_true "without crds.keep, the definition goes" gone crd "$crd"

say "from kustomize to Helm"
k delete namespace yurt-ds-edge > /dev/null
k apply -k manifests/base > /dev/null 2>&1
until_true "agents" has_pods yurt-ds-edge 2
until_true "replicas" has_pods yurt-ds 2
agents=$(pods yurt-ds-edge) replicas=$(pods yurt-ds)
h "${install[@]}" --take-ownership --force-conflicts > /dev/null
sleep 5 # until the controllers have seen the change
[ "$(pods yurt-ds-edge)" = "$agents" ] || fail "agents were restarted"
[ "$(pods yurt-ds)" = "$replicas" ] || fail "replicas were restarted"
[ "$(k -n yurt-ds-edge get controllerrevisions -o name | wc -l)" = 1 ] || fail "the agents have a new revision"
say "no pod restarted"
