//! A hash for golden corpora, shared with the unit tests.

/// Returns the FNV-1a hash of these bytes. It is the same for all versions of Rust and all machines.
pub(crate) fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let bytes = bytes.into_iter();
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
