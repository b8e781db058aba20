# Tests with the token of the controller. Sourced by tests/stolen-token.sh.

token=$(k -n yurt-ds create token yurt-ds-controller)
managed=$(pod_on "$near" place) spare=$(pod_on "$far" place) foreign=$(pod_on "$far")
pods=/api/v1/namespaces/$space/pods
apps=/apis/apps/v1/namespaces/$space
jobs=/apis/batch/v1/namespaces/$space/jobs
patch() { # POD PATCH [TYPE]
  call "$token" PATCH "$pods/${1#pod/}" "$2" "${3:-$strategic}"
}
status() { # POD PATCH [TYPE]
  call "$token" PATCH "$pods/${1#pod/}/status" "$2" "${3:-$strategic}"
}
uid() { k -n "$space" get "$@" -o 'jsonpath={.metadata.uid}'; } # OBJECT
image() { # IMAGE [ANNOTATION]: prints the patch of an in-place update
  echo "{\"metadata\": {\"labels\": {\"controller-revision-hash\": \"new\", \"pod-template-generation\": \"2\"},
    \"annotations\": {\"${2:-apps.openyurt.io/inplace-update-state}\": \"{\\\"revision\\\": \\\"new\\\", \\\"image\\\": \\\"$1\\\"}\"}},
    \"spec\": {\"containers\": [{\"name\": \"main\", \"image\": \"$1\"}]}}"
}
in_force "pods of DaemonSets, nothing else" patch pod/lone "$(image mine)"
in_force "yurt-ds does not manage DaemonSet web" thief "$token" delete "$foreign" --wait=false --dry-run=server
in_force "the controller creates and deletes Jobs" thief "$token" create job mine --image mine --dry-run=server
in_force "ControllerRevisions of Advanced DaemonSets" call "$token" POST "$apps/controllerrevisions?dryRun=All" \
  '{"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": "mine"}, "revision": 1, "data": {"mine": true}}'
in_force "nothing of a DaemonSet's metadata" call "$token" PATCH "$apps/daemonsets/web/status?dryRun=All" \
  '{"metadata": {"labels": {"mine": "true"}}}' "$merge"

# Requests with the role of the base only, by an account that no policy covers.
k create clusterrolebinding "$space" --clusterrole yurt-ds-controller --serviceaccount "$space:default" > /dev/null
base=$(k -n "$space" create token default)
refused "with the base: an image" "cannot patch resource" call "$base" PATCH "$pods/${managed#pod/}" "$(image mine)" "$strategic"
refused "with the base: a pod" "cannot create resource" thief "$base" run mine --image mine
refused "with the base: a Job" "cannot create resource" thief "$base" create job mine --image mine
refused "with the base: the deletion of a Job" "cannot delete resource" call "$base" DELETE "$jobs/mine" ''
refused "with the base: a ControllerRevision" "cannot delete resource" call "$base" DELETE "$apps/controllerrevisions/mine" ''
allowed "with the base: a condition" call "$base" PATCH "$pods/${managed#pod/}/status" \
  '{"status": {"conditions": [{"type": "PodNeedUpgrade", "status": "False"}]}}' "$strategic"

# A pod without a node: the API server deletes it at once, without a grace period.
allowed "the deletion of an unscheduled pod" thief "$token" delete "$(unscheduled large)" --wait=false

# Writes to pods that yurt-ds doesn't manage.
k -n kube-system create serviceaccount "$space" > /dev/null 2>&1 || true
k create -f - > /dev/null <<END
apiVersion: v1
kind: Pod
metadata: {name: $space, namespace: kube-system}
spec: {nodeName: $near, serviceAccountName: $space, containers: [{name: main, image: none, securityContext: {privileged: true}}]}
END
k -n kube-system delete serviceaccount "$space" > /dev/null
refused "the image of a privileged pod in kube-system" "pods of DaemonSets" call "$token" PATCH \
  "/api/v1/namespaces/kube-system/pods/$space" "$(image mine)" "$strategic"
refused "the deletion of that pod" "pods of DaemonSets" thief "$token" -n kube-system delete pod "$space" --wait=false
refused "a condition of that pod" "pods of DaemonSets" call "$token" PATCH "/api/v1/namespaces/kube-system/pods/$space/status" \
  '{"status": {"conditions": [{"type": "PodNeedUpgrade", "status": "False"}]}}' "$strategic"
refused "the image of a DaemonSet that yurt-ds does not manage" "does not update the pods of DaemonSet web in place" patch "$foreign" "$(image mine)"
refused "the deletion of such a pod" "does not manage DaemonSet web" thief "$token" delete "$foreign" --wait=false

# Writes to managed pods that the controller never makes.
refused "a deletion that waits for nothing" "grace period" thief "$token" delete "$managed" --force --grace-period 0 --wait=false
refused "an eviction that waits for nothing" "grace period" call "$token" POST "$pods/${managed#pod/}/eviction" \
  "{\"apiVersion\": \"policy/v1\", \"kind\": \"Eviction\", \"metadata\": {\"name\": \"${managed#pod/}\"}, \"deleteOptions\": {\"gracePeriodSeconds\": 0}}"
refused "an image that no annotation records" "inplace-update-state records" patch "$managed" \
  '{"spec": {"containers": [{"name": "main", "image": "mine"}]}}'
refused "the image of an init container" "nothing else of a pod's spec" patch "$managed" \
  '{"spec": {"initContainers": [{"name": "first", "image": "mine"}]}}'
refused "a deadline" "nothing else of a pod's spec" patch "$managed" '{"spec": {"activeDeadlineSeconds": 1}}'
refused "a toleration" "nothing else of a pod's spec" patch "$managed" \
  '[{"op": "add", "path": "/spec/tolerations/-", "value": {"key": "mine", "operator": "Exists"}}]' json-patch+json
for field in '"labels": {"app": "mine"}' '"labels": {"controller-revision-hash": "mine"}' '"annotations": {"example.io/mine": "true"}' \
  '"finalizers": ["example.io/mine"]'; do
  refused "the metadata $field" "in an update in place, or to mark it" patch "$managed" "{\"metadata\": {$field}}"
  refused "the same with the status" "nothing of a pod's metadata" status "$managed" "{\"metadata\": {$field}}"
done
refused "another owner" "hands a pod over to its own DaemonSet" patch "$managed" \
  "{\"metadata\": {\"ownerReferences\": [{\"apiVersion\": \"apps/v1\", \"kind\": \"DaemonSet\", \"name\": \"web\", \"uid\": \"$(uid daemonset/web)\", \"controller\": true}]}}" "$merge"
refused "no owner" "hands a pod over to its own DaemonSet" patch "$managed" '{"metadata": {"ownerReferences": []}}' "$merge"
refused "the adoption of a pod by a native DaemonSet" "pods of DaemonSets" patch pod/lone \
  "{\"metadata\": {\"ownerReferences\": [{\"apiVersion\": \"apps/v1\", \"kind\": \"DaemonSet\", \"name\": \"web\", \"uid\": \"$(uid daemonset/web)\", \"controller\": true}]}}"
refused "an adoption with an image" "in an update in place" patch pod/lone \
  "{\"metadata\": {\"ownerReferences\": [{\"apiVersion\": \"apps.kruise.io/v1beta1\", \"kind\": \"DaemonSet\", \"name\": \"more\", \"uid\": \"$more\", \"controller\": true}],
    \"annotations\": {\"apps.kruise.io/inplace-update-state\": \"{}\"}}, \"spec\": {\"containers\": [{\"name\": \"main\", \"image\": \"mine\"}]}}"
refused "the condition Ready" "and no other" status "$managed" '{"status": {"conditions": [{"type": "Ready", "status": "False"}]}}'
refused "conditions that go" "and no other" status "$managed" '{"status": {"conditions": []}}' "$merge"
for field in '"phase": "Failed"' '"podIP": "192.0.2.1", "podIPs": [{"ip": "192.0.2.1"}]' '"reason": "Evicted"'; do
  refused "the status ${field%%:*}" "nothing of a pod's status but its conditions" status "$managed" "{\"status\": {$field}}"
done
refused "a command in a pod" "orbidden" call "$token" POST "$pods/${managed#pod/}/exec?command=sh" ''
refused "an ephemeral container" "orbidden" call "$token" PATCH "$pods/${managed#pod/}/ephemeralcontainers" \
  '{"spec": {"ephemeralContainers": [{"name": "mine", "image": "mine"}]}}' "$strategic"

# Creation of pods and Jobs.
affinity='{"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [
  {"key": "metadata.name", "operator": "In", "values": ["'$near'"]}]}]}}}'
revision=$(k -n "$space" get controllerrevisions -l app=place -o 'jsonpath={.items[0].metadata.name}')
new_pod() { # METADATA [SPEC]
  echo "{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {$1}, \"spec\": {\"containers\": [{\"name\": \"main\", \"image\": \"none\"}]${2:+, $2}}}"
}
of_place="{\"apiVersion\": \"apps/v1\", \"kind\": \"ControllerRevision\", \"name\": \"$revision\", \"uid\": \"$(uid "controllerrevision/$revision")\", \"controller\": true},
  {\"apiVersion\": \"apps/v1\", \"kind\": \"DaemonSet\", \"name\": \"place\", \"uid\": \"$(uid daemonset/place)\"}"
advanced_owner="{\"apiVersion\": \"apps.kruise.io/v1beta1\", \"kind\": \"DaemonSet\", \"name\": \"more\", \"uid\": \"$more\", \"controller\": true, \"blockOwnerDeletion\": true}"
surge="\"name\": \"place-0\", \"generateName\": \"place-\", \"labels\": {\"app\": \"place\", \"controller-revision-hash\": \"x\"}, \"ownerReferences\": [$of_place]"
refused "a pod without an owner" "creates pods of DaemonSets" call "$token" POST "$pods" "$(new_pod '"name": "mine"' "\"affinity\": $affinity")"
refused "a pod of a StatefulSet" "creates pods of DaemonSets" call "$token" POST "$pods" "$(new_pod \
  '"name": "mine", "generateName": "x-", "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "x", "uid": "x", "controller": true}]')"
refused "a pod for any node" "for one node and one revision" call "$token" POST "$pods" "$(new_pod "$surge")"
job() { # METADATA POD CONTAINER: prints a pre-pull Job with these changes
  python3 - "$@" <<'END'
import json, os, sys
meta, pod, container = (json.loads(text) for text in sys.argv[1:])
uid = os.environ["POD_UID"]
print(json.dumps({
  "apiVersion": "batch/v1", "kind": "Job",
  "metadata": {
    "name": "image-pre-pull-a", "labels": {"apps.openyurt.io/image-pre-pull": uid},
    "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": os.environ["POD"], "uid": uid, "controller": False, "blockOwnerDeletion": False}],
    **meta},
  "spec": {
    "parallelism": 1, "completions": 1, "backoffLimit": 0, "activeDeadlineSeconds": 60, "ttlSecondsAfterFinished": 60,
    "template": {
      "metadata": {"labels": {"apps.openyurt.io/image-pre-pull": uid}, "annotations": {"sidecar.istio.io/inject": "false"}},
      "spec": {
        "nodeName": "stolen-token-1", "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False, "enableServiceLinks": False,
        "tolerations": [{"operator": "Exists", "effect": "NoExecute"}],
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65534, "runAsGroup": 65534, "seccompProfile": {"type": "RuntimeDefault"}},
        "imagePullSecrets": [{"name": "registry"}], "serviceAccountName": "default", "hostNetwork": True,
        "containers": [{
          "name": "prepull-0", "image": "none", "imagePullPolicy": "IfNotPresent", "command": ["true"],
          "resources": {"requests": {"cpu": "0"}, "limits": {"cpu": "100m"}},
          "securityContext": {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}},
          **container}],
        **pod}}}}))
END
}
POD=${managed#pod/} POD_UID=$(uid "$managed")
export POD POD_UID
new_job() { call "$token" POST "$jobs" "$(job "$@")"; } # METADATA POD CONTAINER
refused "a Job of another name" "that pull images for a pod" new_job '{"name": "mine"}' '{}' '{}'
refused "a Job without an owner" "that pull images for a pod" new_job '{"ownerReferences": []}' '{}' '{}'
for field in '"hostPID": true' '"volumes": [{"name": "disk", "hostPath": {"path": "/"}}]' '"automountServiceAccountToken": true' \
  '"initContainers": [{"name": "first", "image": "mine"}]' '"priorityClassName": "system-node-critical"' '"nodeName": ""'; do
  refused "a Job with ${field%%:*}" "has one node, no token, no volume" new_job '{}' "{$field}" '{}'
done
for field in '{}' '{"runAsNonRoot": true, "runAsUser": 1, "seccompProfile": {"type": "RuntimeDefault"}}' \
  '{"runAsNonRoot": true, "runAsUser": 65534, "fsGroup": 0, "seccompProfile": {"type": "RuntimeDefault"}}'; do
  refused "a Job of the user $field" "runs as the user 65534" new_job '{}' "{\"securityContext\": $field}" '{}'
done
for field in '"command": ["sh", "-c", "mine"]' '"args": ["mine"]' '"env": [{"name": "LD_PRELOAD", "value": "mine"}]' '"securityContext": {"privileged": true}' \
  '"securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}}' \
  '"lifecycle": {"postStart": {"exec": {"command": ["mine"]}}}'; do
  refused "a Job with $field" "run the command true, and have no privilege" new_job '{}' '{}' "{$field}"
done
k -n "$space" create job others --image none > /dev/null
refused "the deletion of another Job" "that pull images for a pod" call "$token" DELETE "$jobs/others" ''

# Writes to revisions and status.
refused "a ControllerRevision of a native DaemonSet" "ControllerRevisions of Advanced DaemonSets" call "$token" DELETE "$apps/controllerrevisions/$revision" ''
refused "its number" "ControllerRevisions of Advanced DaemonSets" call "$token" PATCH "$apps/controllerrevisions/$revision" '{"revision": 9}' "$merge"
of_set() { call "$token" PATCH "$apps/daemonsets/place/status" "$1" "${2:-$strategic}"; } # PATCH [TYPE]
refused "a foreign condition of a DaemonSet" "its own conditions of a DaemonSet" of_set '{"status": {"conditions": [{"type": "Mine", "status": "True"}]}}'
refused "numbers of a native DaemonSet" "nothing of a native DaemonSet's status" of_set '{"status": {"numberReady": 99}}'
for field in '"annotations": {"apps.openyurt.io/max-unavailable": "100%"}' '"labels": {"mine": "true"}' '"finalizers": ["example.io/mine"]'; do
  refused "the metadata ${field%%:*} of a DaemonSet" "nothing of a DaemonSet's metadata" of_set "{\"metadata\": {$field}}"
done
for what in "get secrets" "delete daemonset web --wait=false" "delete node $far --wait=false" "patch daemonset web -p {}" "get configmaps" \
  "delete validatingadmissionpolicy yurt-ds-controller-pods --wait=false" "-n yurt-ds create token yurt-ds-controller" "-n kube-system get secrets"; do
  # unquoted, because it contains several words
  refused "$what" "orbidden" thief "$token" $what
done

# Writes of the real controller, which must be allowed.
allowed "conditions of a pod" status "$managed" '{"status": {"conditions": [
  {"type": "PodNeedUpgrade", "status": "True"}, {"type": "PodImageReady", "status": "False"}, {"type": "KruisePodReady", "status": "True"},
  {"type": "InPlaceUpdateReady", "status": "True"}]}}'
allowed "the end of a condition" status "$managed" '{"status": {"conditions": [{"$patch": "delete", "type": "PodImageReady"}]}}'
allowed "the mark of a hook" patch "$managed" '{"metadata": {"labels": {"lifecycle.apps.kruise.io/state": "PreparingDelete"},
  "annotations": {"lifecycle.apps.kruise.io/timestamp": "2026-01-01T00:00:00Z"}}}' "$merge"
allowed "its end" patch "$managed" '{"metadata": {"labels": {"lifecycle.apps.kruise.io/state": null},
  "annotations": {"lifecycle.apps.kruise.io/timestamp": null}}}' "$merge"
allowed "an update in place" patch "$managed" "$(image new)"
allowed "a pod of max-surge" call "$token" POST "$pods" "$(new_pod "$surge" "\"affinity\": $affinity")"
allowed "an update in place of that pod" patch pod/place-0 "$(image new)"
hand_over() { # POD DAEMONSET
  patch "$1" "{\"metadata\": {\"ownerReferences\": [
    {\"apiVersion\": \"apps/v1\", \"kind\": \"DaemonSet\", \"name\": \"$2\", \"uid\": \"$(uid "daemonset/$2")\", \"controller\": true}]}}" "$merge"
}
allowed "its hand-over" hand_over pod/place-0 place
allowed "another pod of max-surge" call "$token" POST "$pods" "$(new_pod "${surge/place-0/place-1}" "\"affinity\": $affinity")"
# The garbage collector leaves such an owner reference if the DaemonSet is deleted without its pods.
k -n "$space" patch pod place-1 -p "{\"metadata\": {\"ownerReferences\": [{\"\$patch\": \"delete\", \"uid\": \"$(uid daemonset/place)\"}]}}" > /dev/null
refused "its hand-over to another DaemonSet" "hands a pod over to its own DaemonSet" hand_over pod/place-1 web
allowed "its hand-over to a new DaemonSet of the same name" hand_over pod/place-1 place
allowed "a pod of an Advanced DaemonSet" call "$token" POST "$pods" "$(new_pod \
  "\"generateName\": \"more-\", \"labels\": {\"app\": \"more\", \"controller-revision-hash\": \"x\"}, \"ownerReferences\": [$advanced_owner]" "\"affinity\": $affinity")"
allowed "an adoption" patch pod/lone "{\"metadata\": {\"ownerReferences\": [$advanced_owner]}}"
allowed "another revision hash" patch pod/lone '{"metadata": {"labels": {"controller-revision-hash": "y"}}}' "$merge"
allowed "an update in place of an Advanced DaemonSet's pod" patch pod/lone "$(image new apps.kruise.io/inplace-update-state)"
allowed "a release" patch pod/lone "{\"metadata\": {\"ownerReferences\": [{\"\$patch\": \"delete\", \"uid\": \"$more\"}]}}"
allowed "a Job that pulls images" new_job '{}' '{}' '{}'
allowed "its deletion" call "$token" DELETE "$jobs/image-pre-pull-a" '{"propagationPolicy": "Background"}'
new_revision() { # NAME OWNERS; without spaces, because the API server compares data byte by byte
  echo "{\"apiVersion\": \"apps/v1\", \"kind\": \"ControllerRevision\", \"metadata\": {\"name\": \"$1\", \"labels\": {\"app\": \"more\"}, \"ownerReferences\": [$2]},
    \"revision\": 1, \"data\":{\"spec\":{\"template\":{}}}}"
}
allowed "a ControllerRevision of an Advanced DaemonSet" call "$token" POST "$apps/controllerrevisions" "$(new_revision more-a "$advanced_owner")"
allowed "its number" call "$token" PATCH "$apps/controllerrevisions/more-a" '{"revision": 2}' "$merge"
allowed "its deletion" call "$token" DELETE "$apps/controllerrevisions/more-a" ''
k create -f - > /dev/null <<< "$(new_revision more-b "" | sed "s/\"name\": \"more-b\"/&, \"namespace\": \"$space\"/")"
allowed "the adoption of one" call "$token" PATCH "$apps/controllerrevisions/more-b" "{\"metadata\": {\"ownerReferences\": [$advanced_owner]}}" "$merge"
allowed "conditions of a DaemonSet" of_set '{"status": {"conditions": [{"type": "RolloutComplete", "status": "True"}, {"type": "Guard", "status": "False"}]}}'
allowed "the end of one" of_set '{"status": {"conditions": [{"$patch": "delete", "type": "Guard"}]}}'
allowed "the status of an Advanced DaemonSet" call "$token" PATCH "/apis/apps.kruise.io/v1beta1/namespaces/$space/daemonsets/more/status?fieldManager=yurt-ds-controller&force=true" \
  "{\"apiVersion\": \"apps.kruise.io/v1beta1\", \"kind\": \"DaemonSet\", \"metadata\": {\"name\": \"more\", \"namespace\": \"$space\", \"uid\": \"$more\"},
    \"status\": {\"observedGeneration\": 1, \"desiredNumberScheduled\": 1, \"currentNumberScheduled\": 1, \"numberMisscheduled\": 0, \"numberReady\": 0,
    \"numberAvailable\": 0, \"numberUnavailable\": 1, \"updatedNumberScheduled\": 1, \"daemonSetHash\": \"x\", \"updateRevision\": \"x\",
    \"conditions\": [{\"type\": \"Progressing\", \"status\": \"True\", \"reason\": \"Progressing\", \"message\": \"\"}]}}" "$apply"
allowed "an eviction" call "$token" POST "$pods/${spare#pod/}/eviction" "{\"apiVersion\": \"policy/v1\", \"kind\": \"Eviction\",
  \"metadata\": {\"name\": \"${spare#pod/}\", \"namespace\": \"$space\"}, \"deleteOptions\": {\"preconditions\": {\"uid\": \"$(uid "$spare")\"}}}"
allowed "a deletion" thief "$token" delete "$managed" --wait=false
[ -z "$(k -n "$space" get "$foreign" -o 'jsonpath={.metadata.deletionTimestamp}')" ] || fail "$foreign was deleted"
