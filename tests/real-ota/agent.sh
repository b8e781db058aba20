# shellcheck shell=bash disable=SC2154
# The agent itself: its own update, static pods, its memory, and its permissions. Sourced by tests/real-ota.sh.

own_update() {
  local node since=$EPOCHREALTIME
  for node in "${nodes[@]}"; do listen_to "agent-$node" "$(server "$node")/ready"; done
  # From here on, the agent may also update static pods. The overlay extends the previous one.
  sed -i 's#- ../../base#- ../static-pods#' "$dir/manifests/overlays/host-network/kustomization.yaml"
  install_us "$newer_us"
  for node in "${nodes[@]}"; do until_true 180 "the new agent on $node" is_new_agent "$node"; done
  for node in "${nodes[@]}"; do
    until_true 60 "$node is ready" curl --silent --fail --max-time 10 --output /dev/null "$(server "$node")/ready"
  done
  kubectl -n yurt-ds-edge wait --for=condition=RolloutComplete daemonset/yurt-ds-ota-server --timeout 10m > /dev/null
  await_us
  python3 - "$dir/agent-$near" "$dir/agent-$far" "$since" <<'END_OF_CHECK' || fail "both agents were away at once"
import sys
def away(file, since):
  answered = [float(line.split()[0]) for line in open(file) if len(line.split()) > 1 and float(line.split()[0]) > since]
  return max(zip(answered, answered[1:]), key=lambda pair: pair[1] - pair[0])
one, other = (away(file, float(sys.argv[3])) for file in sys.argv[1:3])
assert one[1] <= other[0] or other[1] <= one[0], (one, other)
END_OF_CHECK
  say "    its own update: one agent after the other, away for $(gap "agent-$near" "$since") and $(gap "agent-$far" "$since")"
}
is_new_agent() { tells "$1" yurt-ds-ota-server- 'p["spec"]["containers"][0]["image"]' "$newer_us"; }

own_confirmation() {
  local pod kept since
  kubectl -n yurt-ds-edge annotate --overwrite daemonset/yurt-ds-ota-server apps.openyurt.io/update-strategy=OTA > /dev/null
  kubectl -n yurt-ds-edge set image daemonset/yurt-ds-ota-server "ota-server=$us" > /dev/null
  until_true 60 "PodNeedUpgrade True of the agent" tells "$near" yurt-ds-ota-server- 'c["PodNeedUpgrade"]["status"]' True
  pod=yurt-ds-edge/$(pod_on "$near" yurt-ds-ota-server-) kept=$(uid_on "$far" yurt-ds-ota-server-) since=$EPOCHREALTIME
  ctl "$near" upgrade "$pod" --wait --timeout 10m
  [ "$code" = 0 ] || fail "ctl upgrade of the agent ended with $code"
  tells "$far" yurt-ds-ota-server- 'p["metadata"]["uid"]' "$kept" || fail "the agent on $far was replaced"
  say "    the agent on $near replaced itself when asked, away for $(gap "agent-$near" "$since")"
}

static_pods() {
  local file=$dir/nodes/$near/root/etc/kubernetes/manifests/hello.yaml pod=kube-system/hello-$near
  static_manifest "$old" > "$file"
  until_true 90 "the static pod on $near" tells "$near" hello- 'c["Ready"]["status"]' True
  answers "403 Pre check update pod failed, Failed to check pod $pod status, error: Pod: $pod update status is False, can not be updated" \
    "$near" "$pod" upgrade
  kubectl -n kube-system patch "pod/${pod#*/}" --subresource status -p \
    '{"status": {"conditions": [{"type": "PodNeedUpgrade", "status": "True"}]}}' > /dev/null
  until_true 20 "PodNeedUpgrade of the static pod" tells "$near" hello- 'c["PodNeedUpgrade"]["status"]' True
  answers "403 Configmap for static pod does not exist" "$near" "$pod" upgrade
  kubectl -n kube-system create configmap yurt-static-set-hello --from-literal "hello.yaml=$(static_manifest "$new")" > /dev/null
  answers "200 Start updating pod $pod" "$near" "$pod" upgrade
  grep -qF "$new" "$file" || fail "the manifest was not replaced"
  until_true 90 "the new static pod on $near" tells "$near" hello- 'p["status"]["containerStatuses"][0]["image"] + " " + c["Ready"]["status"]' "$new True"
  until_true 30 "nothing is awaited any more" [ ! -e "${file%/*}/.hello.yaml.pending" ]
  [ "$(curl --silent --max-time 10 "http://$(told "$near" hello- 'p["status"]["podIP"]'):8080/")" = 1.19.5 ] || fail "the static pod does not say 1.19.5"
  say "73: refused without its ConfigMap; with it the manifest was replaced, and the static pod says 1.19.5"
}

# Takes more than five minutes, the time that a new static pod has to become Ready. Runs only if STORIES names it, after own_update.
static_restore() {
  local manifests=$dir/nodes/$far/root/etc/kubernetes/manifests pod=kube-system/hello-$far since
  static_manifest "$old" > "$manifests/hello.yaml"
  until_true 90 "the static pod on $far" tells "$far" hello- 'c["Ready"]["status"]' True
  kubectl -n kube-system create configmap yurt-static-set-hello \
    --from-literal "hello.yaml=$(static_manifest "127.0.0.1:$registry_port/nginx:none")" > /dev/null
  kubectl -n kube-system patch "pod/${pod#*/}" --subresource status -p \
    '{"status": {"conditions": [{"type": "PodNeedUpgrade", "status": "True"}]}}' > /dev/null
  until_true 20 "PodNeedUpgrade of the static pod" tells "$far" hello- 'c["PodNeedUpgrade"]["status"]' True
  since=$SECONDS
  answers "200 Start updating pod $pod" "$far" "$pod" upgrade
  until_true 420 "the old manifest" grep -qF "$old" "$manifests/hello.yaml"
  until_true 90 "the old static pod on $far" tells "$far" hello- 'p["status"]["containerStatuses"][0]["image"] + " " + c["Ready"]["status"]' "$old True"
  say "73: a static pod whose new image is nowhere was put back and Ready after $((SECONDS - since)) s"
}
static_manifest() { # IMAGE
  cat <<END_OF_POD
apiVersion: v1
kind: Pod
metadata: {name: hello, namespace: kube-system}
spec:
  terminationGracePeriodSeconds: 2
  containers: [{name: main, image: "$1", readinessProbe: {httpGet: {path: /readyz, port: 8080}, periodSeconds: 1}}]
END_OF_POD
}

memory() {
  local node process idle
  for node in "${nodes[@]}"; do
    process=$(process_of yurt-ds-edge "$(agent_on "$node")")
    idle=$(rss "$process")
    [ "$(curl --silent --fail --max-time 60 --output /dev/null --write-out '%{http_code}\n' "$(server "$node")/pods?[1-1000]" |
      grep -c 200)" = 1000 ] || fail "1,000 GET /pods on $node were not all answered"
    say "    memory of the agent on $node: $idle; after 1,000 GET /pods $(rss "$process")"
  done
}
rss() { awk '/VmRSS|RssAnon/ { printf "%s %.1f MiB ", $1, $2 / 1024 }' "/proc/$1/status"; }

roles() {
  kubectl diff -k "$dir/overlay" || fail "what is installed is not what manifests/ say"
  kubectl get clusterrolebindings,rolebindings -A -o json | python3 -c 'import json, sys
found = sorted((b["kind"], b["roleRef"]["name"], s["name"]) for b in json.load(sys.stdin)["items"]
  for s in b.get("subjects", []) if "yurt-ds" in s.get("namespace", "") + s["name"])
assert found == [("ClusterRoleBinding", "yurt-ds-controller", "yurt-ds-controller"),
  ("ClusterRoleBinding", "yurt-ds-controller-in-place", "yurt-ds-controller"),
  ("ClusterRoleBinding", "yurt-ds-controller-lifecycle", "yurt-ds-controller"),
  ("ClusterRoleBinding", "yurt-ds-controller-max-surge", "yurt-ds-controller"),
  ("ClusterRoleBinding", "yurt-ds-controller-pre-pull", "yurt-ds-controller"),
  ("ClusterRoleBinding", "yurt-ds-ota-server", "yurt-ds-ota-server"),
  ("RoleBinding", "yurt-ds-controller", "yurt-ds-controller"),
  ("RoleBinding", "yurt-ds-ota-server-static-pods", "yurt-ds-ota-server")], found' || fail "other bindings than those of manifests/"
  python3 - "$dir/audit.log" <<'END_OF_CHECK' || fail "requests that the roles do not allow"
import collections, json, sys
counts, refused = collections.Counter(), []
for line in open(sys.argv[1]):
  event = json.loads(line)
  user, what = event["user"]["username"], event.get("objectRef", {})
  if not user.startswith("system:serviceaccount:yurt-ds"): continue
  code = event.get("responseStatus", {}).get("code")
  resource = "/".join(filter(None, [what.get("resource"), what.get("subresource")]))
  if code == 403: refused.append((user, event["verb"], resource, what.get("name")))
  if event["verb"] not in ("get", "list", "watch"): counts[user.split(":")[-1], event["verb"], resource] += 1
for (user, verb, resource), count in sorted(counts.items()):
  print(f"          {user}: {count} {verb} {resource}")
assert not refused, refused
END_OF_CHECK
  say "    the roles are those of manifests/, bound once each, and no request was refused"
}
