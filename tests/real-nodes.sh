#!/usr/bin/env bash
# Runs scenarios 15 and 16 on two real nodes. Real pods report their version over HTTP before, during and after the rollout. Also
# tests a pod that takes its node offline when it is deleted: its preStop hook stops the kubelet.
#
#   real-nodes.sh BINARY     BINARY: yurt-ds; needs root and ../shared/control-plane
#
# The controller runs next to the control plane, with the role of manifests/. To take a node offline, the test stops its
# kubelet. The pods of the node continue to serve, and are the same pods when the node returns.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# = 1 ] || { sed -n '2,8p' "$0" >&2; exit 2; }
. tests/nodes.sh
begin "$1"

show() {
  kubectl get daemonsets -o 'jsonpath={range .items[*]}{.metadata.name}: {.status.conditions}{"\n"}{end}'
  tail -n 40 "$dir/controller.log"
}
pod() { # DAEMONSET NODE JSONPATH
  kubectl get pods -l "app=$1" --field-selector "$(on_node "$2")" -o "jsonpath={.items[*]$3}"
}
uid() { pod "$1" "$2" .metadata.uid; }
is_same() { [ "$(uid "$1" "$2")" = "$3" ]; }
serves() { # DAEMONSET NODE VERSION
  local ip
  ip=$(pod "$1" "$2" .status.podIP)
  [ "$(curl --silent --max-time 10 "http://$ip:8080/")" = "$3" ]
}
is_stopped() { [ "$(kubectl get node "$1" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}')" != True ]; }
reports() { # DAEMONSET WORDS: true if the message of RolloutComplete contains the words
  grep -q "$2" <<< "$(kubectl get daemonset "$1" -o 'jsonpath={.status.conditions[?(@.type=="RolloutComplete")].message}')"
}
says() { # DAEMONSET CONDITION STATUS WORDS
  local path='{.status.conditions[?(@.type=="'$2'")]'
  grep -q "^$3 .*$4" <<< "$(kubectl get daemonset "$1" -o "jsonpath=$path.status} $path.message}")"
}
deadly() { # DAEMONSET IMAGE: creates pods whose preStop hook waits until the test has stopped the kubelet
  kubectl apply -f - > /dev/null <<END
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: $1
  annotations: {apps.openyurt.io/update-strategy: AdvancedRollingUpdate, apps.openyurt.io/max-unavailable: "1", apps.openyurt.io/failure-threshold: "0"}
spec:
  updateStrategy: {type: OnDelete}
  selector: {matchLabels: {app: $1}}
  template:
    metadata: {labels: {app: $1}}
    spec:
      terminationGracePeriodSeconds: 60
      containers:
        - name: main
          image: "$2"
          readinessProbe: {httpGet: {path: /readyz, port: 8080}, periodSeconds: 1}
          lifecycle: {preStop: {httpGet: {host: 127.0.0.1, port: $(cat "$dir/prestop.port")}}}
END
}
leaving() { # DAEMONSET: prints the node of its terminating pod
  kubectl get pods -l "app=$1" -o 'jsonpath={range .items[?(@.metadata.deletionTimestamp)]}{.spec.nodeName}{end}'
}
nobody_leaves() { [ -z "$(leaving "$1")" ]; }
listen_for_prestop() { # answers preStop hooks; the first answer comes only after the test has stopped the kubelet
  python3 - "$dir" <<'END' &
import http.server, pathlib, sys, time

folder = pathlib.Path(sys.argv[1])

class Hook(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        asked = folder / "prestop.asked"
        if not asked.exists():
            asked.touch()
            time.sleep(60)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
(folder / "prestop.port").write_text(str(server.server_port))
server.serve_forever()
END
  background+=($!)
  until_true 10 "somebody listens for preStop hooks" test -s "$dir/prestop.port"
}
daemonset() { # NAME STRATEGY
  kubectl apply -f - > /dev/null <<END
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: $1
  annotations: {apps.openyurt.io/update-strategy: $2, apps.openyurt.io/max-unavailable: "1", apps.openyurt.io/ready-settle: 5s}
spec:
  updateStrategy: {type: OnDelete}
  selector: {matchLabels: {app: $1}}
  template:
    metadata: {labels: {app: $1}}
    spec:
      terminationGracePeriodSeconds: 2
      containers: [{name: main, image: "$old", readinessProbe: {httpGet: {path: /readyz, port: 8080}, periodSeconds: 1}}]
END
}

say "control plane, two nodes, and the controller under its own role"
CONTROLLER_MANAGER_FLAGS=$soon_offline start_nodes
old=$(image hello:1)
new=$(image hello:2)
run_controller

say "15: $far is NotReady; the image changes"
daemonset rolling AdvancedRollingUpdate
for node in "$near" "$far"; do
  until_true 60 "version 1 on $node" serves rolling "$node" 1
done
until_true 60 "complete" reports rolling ": complete"
"$plane/node-down" "$dir" "$far" kubelet
until_true 60 "$far is NotReady" is_stopped "$far"
kept=$(uid rolling "$far")
serves rolling "$far" 1 || fail "the pod on $far stopped serving with its kubelet"
kubectl set image daemonset/rolling "main=$new" > /dev/null
until_true 60 "version 2 on $near" serves rolling "$near" 2
until_true 30 "complete. 1 node is offline" reports rolling "complete. 1 node is offline"
throughout 10 "the pod on $far is the same" is_same rolling "$far" "$kept"
serves rolling "$far" 1 || fail "the pod on $far does not say 1 any more"
say "    $near says 2; $far is offline, has the same pod, and says 1"

say "16: $far becomes Ready, and nobody does anything else"
done_already=$(uid rolling "$near")
"$plane/node-up" "$dir" "$far" > /dev/null
until_true 90 "version 2 on $far" serves rolling "$far" 2
until_true 30 "complete" reports rolling ": complete"
is_same rolling "$near" "$done_already" || fail "the pod on $near was replaced a second time"
say "    both say 2"

say "a removal that takes its node down: nobody follows, and it is named"
listen_for_prestop
deadly tunnel "$old"
for node in "$near" "$far"; do
  until_true 60 "version 1 on $node" serves tunnel "$node" 1
done
until_true 60 "complete" reports tunnel ": complete"
kubectl set image daemonset/tunnel "main=$new" > /dev/null
until_true 60 "a preStop hook runs" test -e "$dir/prestop.asked"
lost=$(leaving tunnel)
if [ "$lost" = "$near" ]; then other=$far; else other=$near; fi
kept=$(uid tunnel "$other")
"$plane/node-down" "$dir" "$lost" kubelet
until_true 120 "stalled, and $lost is named" says tunnel Stalled True "$lost"
throughout 15 "the pod on $other is the same" is_same tunnel "$other" "$kept"
serves tunnel "$other" 1 || fail "the pod on $other does not serve"
say "    $(kubectl get daemonset tunnel -o 'jsonpath={.status.conditions[?(@.type=="Stalled")].message}')"
"$binary" ctl --kubeconfig "$dir/kubeconfig" undo default/tunnel > /dev/null
"$plane/node-up" "$dir" "$lost" > /dev/null
until_true 120 "the pod on $lost is gone" nobody_leaves tunnel
until_true 60 "version 1 on $lost" serves tunnel "$lost" 1
until_true 60 "complete" says tunnel RolloutComplete True ": complete"
is_same tunnel "$other" "$kept" || fail "the pod on $other was replaced"
say "    undone: $lost has version 1 again, the pod on $other was never touched"
