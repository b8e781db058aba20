#!/usr/bin/env bash
# Checks how GitOps tools judge the recorded DaemonSets of tests/gitops/objects, with the libraries of these tools. Needs Go.
#
# YURT_DS_GOLDEN=1 writes the table into tests/gitops/table.md and docs/how-to/gitops.md.
set -euo pipefail
cd "$(dirname "$0")/gitops"

[ -z "$(gofmt -l .)" ] || { gofmt -d . >&2; exit 1; }
GOFLAGS=-mod=readonly go vet ./...
GOFLAGS=-mod=readonly go test -count=1 ./...
