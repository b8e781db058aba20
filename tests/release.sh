#!/usr/bin/env bash
# Makes the files of a release from one binary, signs them with a local key, and verifies them as docs/how-to/verify-a-release.md says.
#
#   release.sh BINARY [KUBECTL]     BINARY stands for both architectures; needs helm, cargo-cyclonedx, validate-krew-manifest
#
# Doesn't check the image, its signature, and its provenance. They need a registry, and the identity of the workflow.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# = 1 ] || [ $# = 2 ] || { sed -n '2,6p' "$0" >&2; exit 2; }
binary=$(realpath "$1")
export KUBECTL=${2:-kubectl}
version=$(sed -n '0,/^version = "\(.*\)"$/s//\1/p' Cargo.toml)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "release.sh: $*" >&2; exit 1; }

mkdir "$work/binaries"
for arch in amd64 arm64; do cp "$binary" "$work/binaries/yurt-ds-linux-$arch"; done
digest=sha256:$(printf yurt-ds | sha256sum | cut -d' ' -f1)
image=registry.example/yurt-ds@$digest
url=https://git.example/yurt-ds
for folder in "$work/draft" "$work/again"; do release/assemble "$work/binaries" "$image" "$url" "$folder"; done
rm "$work/again/SHA256SUMS"
for file in "$work/again"/*; do
  [[ $file == *.tgz ]] || cmp "$file" "$work/draft/${file##*/}"
done
echo "assembled: $(ls -x "$work/draft" | tr -s ' \n' ' ')"

signatures() {
  # The transparency log of signatures needs the network, so leave it out. By default, --use-signing-config would write to it.
  export COSIGN_PASSWORD=
  (cd "$work" && cosign generate-key-pair 2> /dev/null)
  cosign sign-blob --yes --key "$work/cosign.key" --tlog-upload=false --use-signing-config=false \
    --bundle "$work/draft/SHA256SUMS.sigstore.json" "$work/draft/SHA256SUMS" > /dev/null 2>&1
  verify() { release/verify "$1" --key "$work/cosign.pub" --insecure-ignore-tlog > "$work/said" 2>&1; }
  verify "$work/draft" || { cat "$work/said" >&2; fail "the release was not verified"; }
  tail -1 "$work/said"
  rejects() { # WHAT FILE COMMAND...: checks that a copy of the release is rejected after this command
    cp -r "$work/draft" "$work/forged"
    (cd "$work/forged" && "${@:2}")
    ! verify "$work/forged" || fail "verified with $1"
    rm -r "$work/forged"
  }
  rejects "a changed file" sed -i 's/replicas: 2/replicas: 3/' install.yaml
  rejects "another file" cp install.yaml another.yaml
  rejects "a missing file" rm policies.yaml
  rejects "changed checksums" sed -i '1d' SHA256SUMS
  echo "rejected: a changed, an additional and a missing file, and changed checksums"
}
if command -v cosign > /dev/null; then
  signatures
else
  (cd "$work/draft" && sha256sum --check --strict --quiet SHA256SUMS)
  echo "no cosign: the checksums are right, and no signature was made"
fi

validate-krew-manifest -manifest "$work/draft/yurt-ds.yaml" -skip-install 2> "$work/said" ||
  { cat "$work/said" >&2; fail "krew would reject the manifest"; }
for arch in amd64 arm64; do
  sum=$(sha256sum "$work/draft/yurt-ds-v$version-linux-$arch.tar.gz" | cut -d' ' -f1)
  grep -qF "sha256: \"$sum\"" "$work/draft/yurt-ds.yaml" || fail "the manifest for krew has another checksum of $arch"
done

[ "$(grep -c "image: $image" "$work/draft/install.yaml")" = 2 ] || fail "install.yaml doesn't name the image by digest"
helm template yurt-ds "$work/draft/yurt-ds-$version.tgz" | grep -qF "image: $image" || fail "the chart doesn't name the image by digest"
grep -q ValidatingAdmissionPolicyBinding "$work/draft/policies.yaml"
python3 - "$work/draft" << 'END'
import glob
import json
import sys

for file in glob.glob(sys.argv[1] + "/*.cdx.json"):
    names = {component["name"] for component in json.load(open(file))["components"]}
    assert {"kube", "tokio", "rustls"} <= names, file
END
! grep -rqF "$PWD" "$work/draft" || fail "a file has the path of this folder"

# Install the plugin as krew does: unpack the archive, and create links. The name of the link decides how the program behaves.
mkdir -p "$work/path"
tar -xzf "$work/draft/yurt-ds-v$version-linux-amd64.tar.gz" -C "$work"
[ -s "$work/man/yurt-ds-ctl-status.1" ] || fail "the archive has no manual pages"
for name in kubectl-yurt_ds kubectl_complete-yurt_ds; do ln -s "$work/yurt-ds" "$work/path/$name"; done
export PATH=$work/path:$PATH
kubectl-yurt_ds version | grep -qx "yurt-ds $version" || fail "the plugin doesn't know its version"
if command -v kubectl > /dev/null; then
  kubectl yurt-ds status --help | grep -qF "Usage: kubectl yurt-ds status" || fail "kubectl doesn't find the plugin"
  kubectl __complete yurt-ds un 2> /dev/null | grep -q "^undo" || fail "kubectl doesn't complete the plugin"
  echo "kubectl runs and completes the plugin"
else
  echo "no kubectl: the plugin ran without it"
fi
