#!/usr/bin/env bash
# Tests kubectl with the CRD of the Advanced DaemonSet (manifests/components/advanced), on a real API server.
#
#   advanced-crd.sh KUBECONFIG [KUBECTL...]     of a cluster administrator; the CRD must not be installed on the cluster
#
# The CRD replaces another one with a conversion webhook, as OpenKruise has. Each is created or applied, client-side or server-side.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 1 ] || { sed -n '2,6p' "$0" >&2; exit 2; }
admin=$1
shift
[ $# -gt 0 ] || set -- kubectl
kubectl=("$@")
space=advanced-crd-kubectl crd=daemonsets.apps.kruise.io component=manifests/components/advanced
work=$(mktemp -d)

k() { "${kubectl[@]}" --kubeconfig "$admin" "$@"; }
fail() { echo "advanced-crd: $*" >&2; exit 1; }
finish() {
  k delete namespace "$space" --wait=false
  k delete -k "$component"
  rm -rf "$work"
} > /dev/null 2>&1
[ -z "$(k get crd "$crd" -o name --ignore-not-found)" ] || fail "$crd is there already"
trap finish EXIT

# An old CRD: it has the same names, but no validation, and a conversion webhook.
cat > "$work/old.yaml" <<END
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: $crd}
spec:
  group: apps.kruise.io
  names: {kind: DaemonSet, listKind: DaemonSetList, plural: daemonsets, singular: daemonset, shortNames: [daemon, ads]}
  scope: Namespaced
  conversion:
    strategy: Webhook
    webhook:
      clientConfig: {service: {namespace: kruise-system, name: kruise-webhook-service, path: /convert}}
      conversionReviewVersions: [v1, v1beta1]
  versions:
    - &version
      name: v1alpha1
      served: true
      storage: false
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
      subresources: {status: {}}
    - <<: *version
      name: v1beta1
      storage: true
END
conversion() { k get crd "$crd" -o 'jsonpath={.spec.conversion}'; }
over() { # COMMAND FOR THE OLD CRD, --, COMMAND FOR OURS: replaces the old CRD with ours
  local old=()
  while [ "$1" != -- ]; do old+=("$1"); shift; done
  shift
  k delete crd "$crd" --ignore-not-found > /dev/null
  k "${old[@]}" -f "$work/old.yaml" > /dev/null 2>&1
  [[ $(conversion) = *kruise-webhook-service* ]] || fail "the old definition is not there after ${old[*]}"
  if [ "$1" = patch ]; then
    shift
    k patch crd "$crd" --type merge -p '{"spec": {"conversion": {"strategy": "None", "webhook": null}}}' > /dev/null
  fi
  k "$@" -k "$component" > "$work/said" 2>&1 || fail "$* after ${old[*]}: $(cat "$work/said")"
  [ "$(conversion)" = '{"strategy":"None"}' ] || fail "$* after ${old[*]} leaves $(conversion)"
  echo "in the place of an old one: $* after ${old[*]}"
}
over create -- apply
over create -- patch apply --server-side --force-conflicts
over apply -- apply
over apply -- patch apply --server-side --force-conflicts
over apply --server-side --field-manager helm -- apply
over apply --server-side --field-manager helm -- patch apply --server-side --force-conflicts

k wait --for condition=Established "crd/$crd" > /dev/null
k create namespace "$space" > /dev/null
web() { # VERSION [LINE IN THE SPEC]: prints an Advanced DaemonSet
  cat <<END
apiVersion: apps.kruise.io/$1
kind: DaemonSet
metadata: {name: web-$1, namespace: $space}
spec:
  selector: {matchLabels: {app: web}}
  ${2:-}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: web:1}, {name: side, image: side:2}]}
END
}
taken() { # WHAT COMMAND
  local what=$1 said
  shift
  said=$("$@" 2>&1) || fail "$what was refused: $said"
  echo "taken: $what"
}
refused() { # WHAT WORDS COMMAND
  local what=$1 words=$2 said
  shift 2
  if said=$("$@" 2>&1); then fail "$what was not refused: $said"; fi
  grep -qF -- "$words" <<< "$said" || fail "$what was refused with other words than '$words': $said"
  echo "refused: $what"
}
apply() { k apply -f - "${@:3}" <<< "$(web "$1" "$2")"; }
has() { # WORDS COMMAND: true if the output contains each word
  local word
  said=$("${@:2}" 2>&1) || return 1
  for word in $1; do grep -qwF -- "$word" <<< "$said" || return 1; done
}
shows() { # WHAT WORDS COMMAND: repeats the command, because the API server publishes a CRD with a delay
  local tries said=
  for ((tries = 0; tries < 100; tries++)); do
    ! has "${@:2}" || { echo "shown: $1"; return; }
    sleep 0.3
  done
  fail "$1 lacks one of $2: $said"
}

for example in $(grep -l apps.kruise.io examples/*.yaml); do
  taken "$example" k apply -f "$example" --dry-run=server --validate=strict
done
for version in v1alpha1 v1beta1; do
  # The API server uses a changed CRD only after a moment, so repeat until it rejects an invalid DaemonSet and accepts a valid one.
  for ((tries = 0; tries < 100; tries++)); do
    ! apply "$version" "burstReplicas: 0" --dry-run=server > /dev/null 2>&1 || { sleep 0.2; continue; }
    apply "$version" "" --dry-run=server > /dev/null 2>&1 && break
    sleep 0.2
  done
  refused "an unknown field ($version)" 'unknown field "spec.burstReplica"' apply "$version" "burstReplica: 5" --validate=strict
  refused "an unknown field, server-side ($version)" '.spec.burstReplica: field not declared in schema' \
    apply "$version" "burstReplica: 5" --validate=strict --server-side
  refused "two budgets ($version)" "remove one of them" \
    apply "$version" "updateStrategy: {rollingUpdate: {maxUnavailable: 1, maxSurge: 1}}"
  taken "a DaemonSet, strictly ($version)" apply "$version" "" --validate=strict
  taken "the same, server-side ($version)" apply "$version" "" --validate=strict --server-side --force-conflicts
  [ "$(k -n "$space" get ads "web-$version" -o 'jsonpath={.metadata.generation}')" = 1 ] || fail "applying it twice is a change"
  taken "a patch ($version)" k -n "$space" patch "daemonsets.$version.apps.kruise.io" "web-$version" --type merge \
    -p '{"spec": {"updateStrategy": {"rollingUpdate": {"paused": true}}}}'
  shows "explain ($version)" "type rollingUpdate RollingUpdate OnDelete" \
    k explain daemonsets.spec.updateStrategy --api-version "apps.kruise.io/$version"
  shows "explain of a field ($version)" "burstReplicas pods percentage" \
    k explain daemonsets.spec.burstReplicas --api-version "apps.kruise.io/$version"
done
# kubectl explains the native DaemonSet if the path contains the group's name, so use the short name.
shows "explain by the short name" "type rollingUpdate" k explain ads.spec.updateStrategy
k -n "$space" patch ads web-v1beta1 --subresource status --type merge -p '{"status": {"desiredNumberScheduled": 4, "currentNumberScheduled": 3,
  "numberReady": 2, "updatedNumberScheduled": 2, "numberAvailable": 1, "numberMisscheduled": 0}}' > /dev/null
shows "the status in columns" "web-v1beta1 4 3 2 1" k -n "$space" get ads web-v1beta1
shows "columns" "NAME DESIRED CURRENT READY UP-TO-DATE AVAILABLE AGE web-v1alpha1 web-v1beta1" k -n "$space" get ads
# If there are several containers, API servers show only the first one.
shows "wide columns" "CONTAINERS IMAGES main web:1" k -n "$space" get daemon -o wide
shows "both names" "ads daemon daemonsets" k api-resources --api-group apps.kruise.io
! k -n "$space" get all -o name | grep kruise || fail "it is in the category all"
! k get --raw /apis/apps.kruise.io/v1beta1 | grep -F daemonsets/scale || fail "it can be scaled"
