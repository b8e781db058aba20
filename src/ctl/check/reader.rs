//! Reads for checks. If a read fails, the checks that need it are skipped with the error as the reason, and all others continue.

use std::future::Future;

use kube::core::Status;

use crate::core::foreign::one_line;
use crate::core::words::named;
use crate::ctl::access::Access;
use crate::ctl::error::CliError;
use crate::k8s::client::{CallError, Failure};

/// Maximum length of an error in a message, in characters.
pub(super) const SHOWN: usize = 200;

/// Reason why a check was not made, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unread(pub(super) String);

impl Unread {
    /// Returns the reason for a call that failed. `doing` describes the call, as in "list nodes".
    pub(super) fn new(doing: &str, error: &CallError) -> Self {
        if error.failure() == Failure::Forbidden {
            Self::forbidden(doing)
        } else {
            Self(format!("Cannot {doing}: {}", sentence(&error.to_string())))
        }
    }

    /// Returns the reason for an error of a function that other commands of `ctl` use, too.
    pub(super) fn from_cli(doing: &str, error: &CliError) -> Self {
        match error.refusal {
            Some(_) => Self::forbidden(doing),
            None => Self(sentence(&error.text)),
        }
    }

    /// Returns the reason for a right that the caller lacks.
    pub(super) fn forbidden(doing: &str) -> Self {
        Self(format!("These credentials may not {doing}."))
    }
}

/// Makes a call. Returns `None` if the object does not exist, or if the cluster does not serve its kind.
///
/// # Errors
/// Fails if the caller lacks the right, or if the API server does not answer.
pub(super) async fn read<T>(
    access: &Access,
    doing: &str,
    call: impl Future<Output = kube::Result<T>>,
) -> Result<Option<T>, Unread> {
    match access.wait(call).await {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(Unread::new(doing, &error)),
    }
}

fn is_absent(error: &CallError) -> bool {
    matches!(error, CallError::Kube(kube::Error::Api(status)) if is_not_found(status))
}

fn is_not_found(status: &Status) -> bool {
    status.code == 404
}

/// Returns a text from the cluster as the end of a sentence: on one line, shortened, and with a full stop.
pub(super) fn sentence(text: &str) -> String {
    let text = one_line(text.trim_end_matches('.'), SHOWN);
    if text.ends_with('…') {
        text
    } else {
        format!("{text}.")
    }
}

/// Returns the first names and the number of all others, as in `a, b, c and 4 more`.
pub(super) fn few<T: AsRef<str>>(names: &[T]) -> String {
    /// Maximum number of names.
    const NAMED: usize = 3;
    let first = names.iter().take(NAMED).map(AsRef::as_ref);
    named(first, names.len().saturating_sub(NAMED))
}
