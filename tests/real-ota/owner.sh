# shellcheck shell=bash disable=SC2154
# Functions for the stories. Sourced by tests/real-ota.sh.

# --- Requests of a node owner ----------------------------------------------------------------------------------------

server() { echo "http://${address[$1]}:10267"; }
pods() { curl --silent --fail --max-time 5 "$(server "$1")/pods"; } # NODE
# Evaluates an expression about a pod that the node's agent lists: p is the pod, c contains its conditions by type.
told() { # NODE PREFIX EXPRESSION
  pods "$1" | python3 -c 'import json, sys
class Nothing(dict):
  def __missing__(self, key): return Nothing()
  def __str__(self): return "-"
for p in json.load(sys.stdin)["items"]:
  if p["metadata"]["name"].startswith(sys.argv[1]) and "deletionTimestamp" not in p["metadata"]:
    c = Nothing({one["type"]: Nothing(one) for one in p["status"].get("conditions", [])})
    print(eval(sys.argv[2]))' "$2" "$3"
}
pod_on() { told "$1" "${2:-$name-}" 'p["metadata"]["name"]'; }
uid_on() { told "$1" "${2:-$name-}" 'p["metadata"]["uid"]'; }
tells() { [ "$(told "$1" "$2" "$3" 2> /dev/null)" = "$4" ]; } # NODE PREFIX EXPRESSION VALUE
need_upgrade='str(c["PodNeedUpgrade"]["status"]) + " " + str(c["PodNeedUpgrade"]["message"])'
image_ready='" ".join(str(c["PodImageReady"][key]) for key in ["status", "reason", "message"])'
post() { # NODE NAMESPACE/POD VERB: prints status and text of the response
  local pod=${2#*/} path
  path=/openyurt.io/v1/namespaces/${2%/*}/pods/$pod/$3
  curl --silent --show-error --max-time 30 -X POST --write-out '\n%{http_code}' "$(server "$1")$path" |
    { mapfile -t lines; echo "${lines[1]:-} ${lines[0]:-}"; }
}
answers() { # EXPECTED NODE NAMESPACE/POD VERB
  local answer
  answer=$(post "${@:2}")
  [ "$answer" = "$1" ] || fail "POST ${*:3} on $2: '$answer' instead of '$1'"
  echo "          POST ${*:3}: $answer"
}
ctl() { # NODE ARGUMENTS...: runs ctl; sets `code` to its exit code and `printed` to its output
  code=0
  printed=$("$binary" ctl "${@:2}" --server "$(server "$1")" 2>&1) || code=$?
  printf "%s\n" "$ ctl ${*:2} → $code" "$printed" | sed "s/^/          | /"
}

# --- State of the cloud and the nodes --------------------------------------------------------------------------------

version() { curl --silent --max-time 10 "http://${address[$1]}:8080/"; } # NODE
says() { [ "$(version "$1")" = "$2" ]; }
hash_of() { # prints the hash of a DaemonSet's newest revision
  kubectl -n "${2:-default}" get controllerrevisions -l "app=$1" --sort-by .revision \
    -o 'jsonpath={.items[-1:].metadata.labels.controller-revision-hash}'
}
set_image() { kubectl set image "daemonset/$name" "main=$1" > /dev/null; }
waits_for_owner() { tells "$1" "$name-" "$need_upgrade" "True controllerrevision: $(hash_of "$name")"; } # NODE
image_is() { tells "$1" "$name-" "$image_ready" "$2"; } # NODE WORDS
# Don't use a pipe: grep ends at the first match, ctr then fails to write, and the pipe would count as failed.
has_image() { grep -qx "$2" <<< "$(ctr -a "${socket[$1]}" -n k8s.io images ls -q)"; } # NODE IMAGE
requests() { grep -c "GET /v2/$1/" "$dir/registry.log" || true; } # NAME: prints the number of requests that the registry received
downloads() { grep -c "GET /v2/$1/blobs/" "$dir/registry.log" || true; }
no_jobs() { [ -z "$(kubectl get jobs -o name)" ]; }
# Records the response every tenth of a second. `gap` prints the longest time without a response.
listen_to() { # FILE URL
  while :; do
    echo "$EPOCHREALTIME $(curl --silent --fail --max-time 1 "$2" | head -c 40 | tr -d '\n' | tr ' ' _)"
    sleep 0.1
  done > "$dir/$1" 2> /dev/null &
  background+=($!)
}
gap() { # FILE SINCE
  awk -v since="$2" '$2 != "" { if ($1 > since && last && $1 - last > gap) gap = $1 - last; last = $1 }
    END { printf "%.1f s", gap }' "$dir/$1"
}
daemonset() { # NAME NAMESPACE IMAGE [FIELD-OF-POD [FIELD-OF-CONTAINER]]
  kubectl apply -f - > /dev/null <<END_OF_SET
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: $1, namespace: $2, annotations: {apps.openyurt.io/update-strategy: OTA}}
spec:
  updateStrategy: {type: OnDelete}
  selector: {matchLabels: {app: $1}}
  template:
    metadata: {labels: {app: $1}}
    spec:
      terminationGracePeriodSeconds: 2
      ${4:-}
      containers:
        - name: main
          image: "$3"
          ${5:-}
          readinessProbe: {httpGet: {path: /readyz, port: 8080}, periodSeconds: 1}
END_OF_SET
}
show() {
  local pod
  kubectl -n yurt-ds-edge logs daemonset/yurt-ds-ota-server --all-pods --tail 40
  for pod in $(replicas); do echo "--- $pod"; kubectl -n yurt-ds logs "$pod" --tail 40; done
  kubectl get pods -o 'jsonpath={range .items[*]}{.metadata.name}: {.status.conditions}{"\n"}{end}'
}
