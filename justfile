# Lists what can be done.
default:
    @just --list

# Everything that has to hold before a change is merged.
check:
    .ci/run

# The tests that need nothing but Rust.
test *ARGS:
    cargo test {{ ARGS }}

# The same with all that they can search, as `check` runs them.
deep *ARGS:
    YURT_DS_DEEP=1 cargo test {{ ARGS }}

# Formats, then lints as strictly as `check`.
lint:
    cargo fmt
    cargo clippy --all-targets -- -D warnings

# The documentation of the code, private items included, as strictly as `check`.
doc *ARGS:
    RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --document-private-items {{ ARGS }}

# The story on an embedded cluster.
sim *ARGS:
    cargo run --release -- sim {{ ARGS }}

# The static binary, for this machine's architecture.
static FILE="yurt-ds":
    .ci/static build {{ FILE }}

# The image, for both edge architectures.
image NAME:
    docker buildx build --platform linux/amd64,linux/arm64 -f Containerfile -t {{ NAME }} .

# The install on two real nodes of this machine (root, ../shared/control-plane).
install-test:
    .ci/static build /tmp/yurt-ds-static
    tests/install.sh /tmp/yurt-ds-static

# The stories of rollouts and of OTA on two real nodes of this machine.
node-test:
    .ci/static build /tmp/yurt-ds-static
    tests/real-nodes.sh /tmp/yurt-ds-static
    tests/real-ota.sh /tmp/yurt-ds-static
