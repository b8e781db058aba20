#!/usr/bin/env bash
# Builds the static binary twice, in two folders, and compares the hashes.
#
#   reproducible.sh [amd64|arm64]
#
# Environment:
#   PROFILE     another profile than `dist`, for example `release`, which builds faster
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for folder in "$work/first" "$work/elsewhere/second"; do
  git clone --quiet . "$folder/source"
  (cd "$folder/source" && CARGO_TARGET_DIR=$folder/target .ci/static build ${1:+"$1"} "$folder/yurt-ds")
  sha256sum "$folder/yurt-ds"
  rm -rf "$folder/target"
done
cmp "$work/first/yurt-ds" "$work/elsewhere/second/yurt-ds"
if grep -c "$work" "$work/first/yurt-ds" > /dev/null; then
  echo "reproducible: the binary has the path of its folder" >&2
  exit 1
fi
echo "both builds are equal"
