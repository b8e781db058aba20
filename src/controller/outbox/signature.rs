//! Signatures of messages by the Standard Webhooks specification.
//!
//! <https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md>

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::hmac;

/// Maximum size of the file in bytes.
const LONGEST: u64 = 4096;
/// Prefix of a secret in Base64. Without it, the bytes of the file are the secret.
const PREFIX: &str = "whsec_";

/// Signs messages with the secret in a file.
#[derive(Clone, Debug)]
pub(in crate::controller) struct Signer(PathBuf);

impl Signer {
    pub(in crate::controller) fn new(file: PathBuf) -> Self {
        Self(file)
    }

    /// Returns the headers that sign a message. Reads the secret again, so that it can be changed at any time.
    ///
    /// # Errors
    /// If the file is unreadable or contains no secret.
    pub(super) async fn headers(
        &self,
        id: &str,
        second: i64,
        body: &[u8],
    ) -> Result<[(&'static str, String); 3]> {
        let path = self.0.display();
        let text = read(&self.0).await;
        let text = text.with_context(|| format!("cannot read the secret in {path}"))?;
        let secret = secret(&text).with_context(|| format!("no usable secret in {path}"))?;
        let signature = sign(&secret, id, second, body);
        Ok([
            ("webhook-id", id.to_owned()),
            ("webhook-timestamp", second.to_string()),
            ("webhook-signature", signature),
        ])
    }
}

/// Reads a file. Reads no device or pipe, which may have no end.
async fn read(file: &Path) -> Result<Vec<u8>> {
    let about = tokio::fs::metadata(file).await?;
    ensure!(about.is_file(), "it is not a file");
    let size = about.len();
    ensure!(
        size <= LONGEST,
        "{size} bytes exceed the limit of {LONGEST}"
    );
    Ok(tokio::fs::read(file).await?)
}

/// Returns the secret in the content of a file. White space at the end, which editors add, is not part of it.
fn secret(text: &[u8]) -> Result<Vec<u8>> {
    let text = text.trim_ascii_end();
    let secret = match text.strip_prefix(PREFIX.as_bytes()) {
        None => text.to_vec(),
        Some(encoded) => BASE64_STANDARD
            .decode(encoded)
            .ok()
            .with_context(|| format!("the text after {PREFIX} is not Base64"))?,
    };
    ensure!(!secret.is_empty(), "the file is empty");
    Ok(secret)
}

fn sign(secret: &[u8], id: &str, second: i64, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let mut context = hmac::Context::with_key(&key);
    context.update(format!("{id}.{second}.").as_bytes());
    context.update(body);
    format!("v1,{}", BASE64_STANDARD.encode(context.sign()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published example: <https://docs.svix.com/receiving/verifying-payloads/how-manual>.
    #[test]
    fn the_signature_equals_the_published_example() {
        let secret = secret(b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
        let body = br#"{"test": 2432232314}"#;
        assert_eq!(
            sign(&secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body),
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
        );
    }

    #[test]
    fn a_secret_is_base64_with_prefix_or_raw_bytes() {
        assert_eq!(secret(b"whsec_c2VjcmV0").unwrap(), b"secret");
        assert_eq!(secret(b"secret\r\n").unwrap(), b"secret");
        assert_eq!(secret(b"\xff\x00").unwrap(), b"\xff\x00");
        for (text, expected) in [
            (&b"\n"[..], "the file is empty"),
            (b"whsec_", "the file is empty"),
            (b"whsec_t0p!", "the text after whsec_ is not Base64"),
        ] {
            assert_eq!(secret(text).unwrap_err().to_string(), expected);
        }
    }
}
