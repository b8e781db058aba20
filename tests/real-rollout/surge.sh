# shellcheck shell=bash disable=SC2154
# The old pod is deleted only after the new pod is available (max-surge). Sourced by tests/real-rollout.sh.
stories+=(surge_serves_all_the_time surge_keeps_the_old_pod surge_survives_its_controller)

# asks DAEMONSET NODE: sends ten HTTP requests per second, each on a new connection, to a pod of the node to which a Service would
# route (Ready, not terminating). At SIGTERM, prints four numbers: requests, failures, the most failures in a row, and the longest
# time between two responses in ms. Then prints requests and longest time for a server in the same process, with the same rate.
# These two numbers show how busy the machine was.
asks() {
  cat > "$dir/asks.py" <<'END_OF_PYTHON'
import http.client, http.server, json, random, signal, subprocess, sys, threading, time

kubectl, kubeconfig, daemonset, node = sys.argv[1:]
ready, lock, going = {}, threading.Lock(), True

def follow():
    path = f"/api/v1/namespaces/default/pods?watch=true&labelSelector=app%3D{daemonset}"
    watch = subprocess.Popen([kubectl, "kubectl", "--kubeconfig", kubeconfig, "get", "--raw", path], stdout=subprocess.PIPE)
    for line in watch.stdout:
        event = json.loads(line)
        pod, status = event["object"], event["object"].get("status", {})
        if pod["spec"].get("nodeName") != node:
            continue
        is_ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", []))
        serves = event["type"] != "DELETED" and is_ready and "deletionTimestamp" not in pod["metadata"]
        with lock:
            ready.pop(pod["metadata"]["uid"], None)
            if serves:
                ready[pod["metadata"]["uid"]] = status["podIP"]

def stop(*_):
    global going
    going = False

def ask(host, port):
    connection = http.client.HTTPConnection(host, port, timeout=2)
    connection.request("GET", "/")
    assert connection.getresponse().status == 200
    connection.close()

class Own(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass

own = {"requests": 0, "longest": 0.0}

def ask_own():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Own)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    answered = time.monotonic()
    while True:
        began = time.monotonic()
        try:
            ask(*server.server_address)
            now = time.monotonic()
            own["requests"] += 1
            own["longest"] = max(own["longest"], now - answered)
            answered = now
        except Exception as error:
            print("failed on its own:", repr(error), file=sys.stderr)
        time.sleep(max(0.0, 0.1 - (time.monotonic() - began)))

signal.signal(signal.SIGTERM, stop)
threading.Thread(target=follow, daemon=True).start()
threading.Thread(target=ask_own, daemon=True).start()
requests = failures = row = worst_row = 0
longest, answered = 0.0, None
failed = None  # the address that did not answer
while going:
    began = time.monotonic()
    with lock:
        addresses = list(ready.values())
    if addresses or answered is not None:
        requests += 1
        # The watch may report late that a pod terminates. Like a client of a Service, try another pod then, if there is one.
        address = None
        try:
            address = random.choice([one for one in addresses if one != failed] or addresses)
            ask(address, 8080)
            now = time.monotonic()
            if answered is not None:
                longest = max(longest, now - answered)
            answered, row, failed = now, 0, None
        except Exception as error:
            failures, row, failed = failures + 1, row + 1, address
            worst_row = max(worst_row, row)
            print("failed:", repr(error), address, "of", addresses, file=sys.stderr)
            continue  # send the next request at once, as a client would
    time.sleep(max(0.0, 0.1 - (time.monotonic() - began)))
print(requests, failures, worst_row, int(1000 * longest), own["requests"], int(1000 * own["longest"]), flush=True)
END_OF_PYTHON
  exec python3 "$dir/asks.py" "$kubectl_binary" "$dir/kubeconfig" "$1" "$2"
}
# ask_all DAEMONSET: starts a client for every node
ask_all() {
  local node
  askers=()
  asked_since=$SECONDS
  for node in "${nodes[@]}"; do
    asks "$1" "$node" > "$dir/asked.$node" 2> "$dir/asks.$node.log" &
    askers+=("$!")
    background+=("$!")
  done
  sleep 2
}
# were_answered: stops the clients. Fails if a client got two failures in a row, or no response for a second. Delays that the
# client's own server also had don't count.
were_answered() {
  local node requests failures row longest own_requests own_longest late
  kill -TERM "${askers[@]}"
  wait "${askers[@]}" 2> /dev/null || true
  for node in "${nodes[@]}"; do
    read -r requests failures row longest own_requests own_longest < "$dir/asked.$node" || fail "the client of $node says nothing: $(tail -n 3 "$dir/asks.$node.log")"
    say "$node: $requests requests, $failures failed, at most $row in a row; at most $longest ms from answer to answer (its own: $own_longest)"
    late=$((own_longest > 100 ? own_longest - 100 : 0)) # the client sends ten requests per second
    [ "$own_requests" -gt 0 ] || fail "the client of $node did not even ask itself: $(tail -n 3 "$dir/asks.$node.log")"
    [ $((10 * requests)) -ge $((7 * own_requests)) ] || fail "only $requests requests on $node, while it asked itself $own_requests times"
    [ "$row" -le 1 ] || fail "$row failures in a row on $node: $(tail -n 3 "$dir/asks.$node.log")"
    [ "$longest" -lt $((1000 + late)) ] || fail "$longest ms without an answer on $node, of which the machine was late by $late"
  done
}
pods_on() { # DAEMONSET NODE: prints the number of pods in any state
  kubectl get pods -l "app=$1" -o json | python3 -c '
import json, sys
print(sum(pod["spec"].get("nodeName") == sys.argv[1] for pod in json.load(sys.stdin)["items"]))' "$2"
}
has_pods() { [ "$(pods_on "$1" "$2")" = "$3" ]; } # DAEMONSET NODE NUMBER
# are_handed_over DAEMONSET: true if the DaemonSet controls every pod and is its only owner
are_handed_over() {
  [ "$(kubectl get pods -l "app=$1" -o 'jsonpath={range .items[*]}{.metadata.ownerReferences[*].kind}{"\n"}{end}' | sort -u)" = DaemonSet ]
}

surge_serves_all_the_time() {
  local node
  daemonset surge "$old" '{"max-surge": "1"}' '' '' '' 'minReadySeconds: 2'
  until_true 90 "version 1 on both" both_serve surge 1
  ask_all surge
  set_image surge "$new"
  until_true 90 "complete" is_complete surge
  until_true 30 "version 2 on both" both_serve surge 2
  for node in "${nodes[@]}"; do until_true 30 "one pod on $node" has_pods surge "$node" 1; done
  were_answered
  are_handed_over surge || fail "not every pod is the DaemonSet's alone"
  say "both say 2; somebody answered at every moment"
}

surge_keeps_the_old_pod() {
  local node before
  daemonset kept "$old" '{"update-strategy": "SurgingRollingUpdate"}'
  until_true 90 "version 1 on both" both_serve kept 1
  before=$(uid kept "$near")
  ask_all kept
  set_image kept "$(image hello:crash -- -exit 1)"
  until_true 60 "a second pod on $near" has_pods kept "$near" 2
  until_true 120 "stalled" says_condition kept Stalled True ""
  has_pods kept "$far" 1 || fail "more than one node surges"
  "$binary" ctl --kubeconfig "$dir/kubeconfig" why default/kept "$near"
  kubectl rollout undo daemonset/kept > /dev/null
  until_true 60 "complete" is_complete kept
  for node in "${nodes[@]}"; do until_true 60 "one pod on $node" has_pods kept "$node" 1; done
  is_same kept "$near" "$before" || fail "the pod that served is another one"
  were_answered
  say "an image that crashes took nothing down, and went with the rollback"
}

surge_survives_its_controller() {
  local node
  daemonset dies "$old" '{"max-surge": "100%"}'
  until_true 90 "version 1 on both" both_serve dies 1
  ask_all dies
  set_image dies "$new"
  for _ in 1 2 3 4 5 6; do
    sleep 0.7
    restart_controller
  done
  until_true 90 "complete" is_complete dies
  until_true 30 "version 2 on both" both_serve dies 2
  for node in "${nodes[@]}"; do until_true 30 "one pod on $node" has_pods dies "$node" 1; done
  were_answered
  are_handed_over dies || fail "not every pod is the DaemonSet's alone"
  kubectl delete daemonset dies > /dev/null
  until_true 60 "nothing left" has_no_pods dies
  say "killed six times, nobody noticed; deleted with all its pods"
}
has_no_pods() { [ -z "$(kubectl get pods -l "app=$1" -o name)" ]; } # DAEMONSET
