#!/usr/bin/env bash
# Checks the alerts with promtool: their syntax, the tests in tests/alerts.yaml, the stories in tests/alerts.rs, and the syntax of
# each query of the dashboard.
set -euo pipefail
cd "$(dirname "$0")/.."

promtool check rules --lint=all --lint-fatal charts/yurt-ds/files/rules.yaml
promtool test rules tests/alerts.yaml
cargo test --locked --quiet --test main alerts::

queries() { # prints the queries as recording rules, because promtool can't check dashboards
  python3 - << 'EOF'
import json

panels = json.load(open("charts/yurt-ds/files/dashboard.json"))["panels"]
queries = [target["expr"] for panel in panels for target in panel["targets"]]
rules = [
    {"record": f"query{number}", "expr": query.replace("$__rate_interval", "5m")}
    for number, query in enumerate(queries)
]
print(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
EOF
}
queries | promtool check rules --lint=all --lint-fatal
