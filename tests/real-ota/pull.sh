# shellcheck shell=bash disable=SC2154
# Pre-pulls of images from a registry that is slow, doesn't respond, or lacks the image. Sourced by tests/real-ota.sh.

pulling_ahead() {
  local pod kept hash asked since node
  set_image "$big"
  for node in "${nodes[@]}"; do until_true 30 "PodNeedUpgrade True on $node" waits_for_owner "$node"; done
  hash=$(hash_of "$name") pod=default/$(pod_on "$far") kept=$(uid_on "$far")
  echo 20 > "$dir/registry/rate"
  ! has_image "$far" "$big" || fail "the image is on $far before anybody asked for it"
  answers "200 Image pre-pull requested for pod $pod" "$far" "$pod" imagepull
  answers "200 Image pre-pull requested for pod $pod" "$far" "$pod" imagepull
  answers "403 Pre check update pod failed, Failed to check pod $pod image ready, error: Pod: $pod image is not ready, reason: \
WaitPullImage, message: controllerrevision: $hash" "$far" "$pod" upgrade
  since=$SECONDS
  until_true 120 "PodImageReady True on $far" image_is "$far" "True PullImageSuccess controllerrevision: $hash"
  has_image "$far" "$big" || fail "PodImageReady is True, and the image is not on $far"
  tells "$far" "$name-" 'p["metadata"]["uid"]' "$kept" || fail "the pull replaced the pod on $far"
  until_true 20 "the Job is gone" no_jobs
  say "64, 79, 81: pulled in $((SECONDS - since)) s at 20 MiB/s, without a program in the image, while 1.19.4 served"
  asked=$(requests big) since=$EPOCHREALTIME
  ctl "$far" upgrade "$pod" --wait --timeout 10m
  [ "$code" = 0 ] || fail "ctl upgrade ended with $code"
  says "$far" 1 || fail "$far does not say 1"
  [ "$(requests big)" = "$asked" ] || fail "the upgrade asked the registry $(($(requests big) - asked)) times"
  say "79: upgraded without a request to the registry; nobody answered for $(gap "$far" "$since")"

  asked=$(downloads big) since=$EPOCHREALTIME
  ctl "$near" upgrade "$(pod_on "$near")" --wait --timeout 10m
  [ "$code" = 0 ] || fail "ctl upgrade ended with $code"
  rm "$dir/registry/rate"
  say "    not pulled ahead on $near: $(($(downloads big) - asked)) downloads, nobody answered for $(gap "$near" "$since")"
}

missing_image() {
  local pod hash since=$SECONDS node before
  before=$(version "$near")
  set_image "127.0.0.1:$registry_port/nginx:1.19.6"
  for node in "${nodes[@]}"; do until_true 30 "PodNeedUpgrade True on $node" waits_for_owner "$node"; done
  pod=default/$(pod_on "$near") hash=$(hash_of "$name") since=$SECONDS
  ctl "$near" imagepull "$pod" --wait --timeout 10m
  [ "$code" = 11 ] || fail "ctl imagepull ended with $code"
  tells "$near" "$name-" 'c["PodImageReady"]["status"] + " " + c["PodImageReady"]["reason"]' "False PullImageFail" ||
    fail "PodImageReady is not False: $(told "$near" "$name-" "$image_ready")"
  post "$near" "$pod" upgrade | grep '^403 .*reason: PullImageFail, .*Request imagepull again' | sed 's/^/          /' ||
    fail "upgrade is not refused after a failed pull"
  say "80: PullImageFail after $((SECONDS - since)) s"
  image nginx:1.19.6 > /dev/null
  since=$SECONDS
  answers "200 Image pre-pull requested for pod $pod" "$near" "$pod" imagepull
  until_true 60 "PodImageReady True on $near" image_is "$near" "True PullImageSuccess controllerrevision: $hash"
  says "$near" "$before" || fail "$near was replaced"
  say "80: asked again once the image was there: pulled after $((SECONDS - since)) s"
}

dead_registry() {
  local pod on_far hash node before
  before=$(version "$near")
  set_image "$(image big:2 -random 20)"
  for node in "${nodes[@]}"; do until_true 30 "PodNeedUpgrade True on $node" waits_for_owner "$node"; done
  pod=default/$(pod_on "$near") on_far=default/$(pod_on "$far") hash=$(hash_of "$name")
  kill -STOP "$(cat "$dir/registry.pid")"
  answers "200 Image pre-pull requested for pod $on_far" "$far" "$on_far" imagepull
  ctl "$near" imagepull "$pod" --wait --timeout 8s
  [ "$code" = 3 ] || fail "ctl imagepull ended with $code"
  image_is "$near" "False WaitPullImage controllerrevision: $hash" || fail "PodImageReady: $(told "$near" "$name-" "$image_ready")"
  says "$near" "$before" || fail "$near does not say $before while the registry is dead"
  [ "$(kubectl get jobs -o name | wc -l)" = 2 ] || fail "there are not two Jobs"
  kubectl delete --wait=false "pod/${on_far#*/}" > /dev/null
  until_true 30 "one Job left" one_job
  say "88: the pod on $far was deleted while its images were pulled, and its Job went"
  kill -CONT "$(cat "$dir/registry.pid")"
  until_true 90 "PodImageReady True on $near" image_is "$near" "True PullImageSuccess controllerrevision: $hash"
  until_true 90 "2 on $far" says "$far" 2
  say "    the registry was dead: ctl ended with 3, the pod served on; when it answered again the pull went on by itself"
}
one_job() { [ "$(kubectl get jobs -o name | wc -l)" = 1 ]; }

offline_node() {
  local pod hash
  "$plane/node-down" "$dir" "$far" kubelet
  until_true 60 "$far is NotReady" is_offline "$far"
  set_image "$(image nginx:1.20)"
  until_true 30 "PodNeedUpgrade True on $far" waits_for_owner "$far"
  pod=default/$(pod_on "$far") hash=$(hash_of "$name")
  answers "200 Image pre-pull requested for pod $pod" "$far" "$pod" imagepull
  throughout 5 "no Job for a node that is NotReady" no_jobs
  image_is "$far" "False WaitPullImage controllerrevision: $hash" || fail "PodImageReady: $(told "$far" "$name-" "$image_ready")"
  "$plane/node-up" "$dir" "$far" > /dev/null
  until_true 90 "PodImageReady True on $far" image_is "$far" "True PullImageSuccess controllerrevision: $hash"
  say "56, 87: $far was NotReady: its pod heard of the version, nothing was started; pulled when it returned"
}
is_offline() { [ "$(kubectl get node "$1" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}')" != True ]; }

restricted() {
  local pod hash
  kubectl create namespace guarded > /dev/null
  kubectl label namespace guarded pod-security.kubernetes.io/enforce=restricted > /dev/null
  daemonset guarded guarded "$old" "securityContext: {runAsNonRoot: true, runAsUser: 1000, seccompProfile: {type: RuntimeDefault}}" \
    "securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}"
  until_true 60 "a pod on $near" tells "$near" guarded- "$need_upgrade" "False controllerrevision: $(hash_of guarded guarded)"
  kubectl -n guarded set image daemonset/guarded "main=$(image nginx:guarded)" > /dev/null
  hash=
  until_true 30 "PodNeedUpgrade True on $near" tells "$near" guarded- 'c["PodNeedUpgrade"]["status"]' True
  pod=guarded/$(pod_on "$near" guarded-) hash=$(hash_of guarded guarded)
  answers "200 Image pre-pull requested for pod $pod" "$near" "$pod" imagepull
  until_true 60 "PodImageReady True" tells "$near" guarded- "$image_ready" "True PullImageSuccess controllerrevision: $hash"
  kubectl delete namespace guarded --wait=false > /dev/null
  say "85: pulled in a namespace under the restricted standard"
}

private_registry() {
  local pod hash proxied
  python3 tests/real-ota/private-registry.py "127.0.0.1:$registry_port" owner:secret > "$dir/private.log" 2>&1 &
  background+=($!)
  until_true 20 "a registry that asks for a password" grep -q '^127' "$dir/private.log"
  proxied=$(head -n 1 "$dir/private.log")
  kubectl create serviceaccount private > /dev/null
  daemonset private default "$old" "serviceAccountName: private"
  until_true 60 "a pod on $near" tells "$near" private- 'c["Ready"]["status"]' True
  image nginx:private > /dev/null
  kubectl set image daemonset/private "main=$proxied/nginx:private" > /dev/null
  until_true 30 "PodNeedUpgrade True on $near" tells "$near" private- 'c["PodNeedUpgrade"]["status"]' True
  pod=default/$(pod_on "$near" private-) hash=$(hash_of private)
  ctl "$near" imagepull "$pod" --wait --timeout 10m
  [ "$code" = 11 ] || fail "ctl imagepull without a password ended with $code"
  kubectl create secret docker-registry private --docker-server "$proxied" --docker-username owner --docker-password secret > /dev/null
  kubectl patch serviceaccount private -p '{"imagePullSecrets": [{"name": "private"}]}' > /dev/null
  answers "200 Image pre-pull requested for pod $pod" "$near" "$pod" imagepull
  until_true 60 "PodImageReady True" tells "$near" private- "$image_ready" "True PullImageSuccess controllerrevision: $hash"
  kubectl delete daemonset/private --wait=false > /dev/null
  say "84: refused without a password; pulled once the service account had one"
}
