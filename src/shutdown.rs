//! The wish to end, told to everybody: by a signal, or by whoever started the controller inside another program.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing::{info, warn};

/// Tells that the end was asked for; cheap to clone.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<bool>);

/// Asks for the end. Dropping it asks as well.
#[derive(Debug)]
pub struct Trigger(watch::Sender<bool>);

/// A pair of those.
pub fn channel() -> (Trigger, Shutdown) {
    let (sender, receiver) = watch::channel(false);
    (Trigger(sender), Shutdown(receiver))
}

/// Ends on SIGTERM or SIGINT; a second one does not wait.
///
/// # Errors
/// When the signal handlers cannot be set.
pub fn on_signals() -> std::io::Result<Shutdown> {
    let (trigger, shutdown) = channel();
    let mut term = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        let name = first(&mut term, &mut interrupt).await;
        info!(signal = name, "Ending");
        trigger.request();
        let name = first(&mut term, &mut interrupt).await;
        warn!(signal = name, "Ending at once");
        std::process::exit(1);
    });
    Ok(shutdown)
}

/// Name of the next of the two signals.
async fn first(
    term: &mut tokio::signal::unix::Signal,
    interrupt: &mut tokio::signal::unix::Signal,
) -> &'static str {
    tokio::select! {
        _ = term.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}

impl Trigger {
    /// Asks for the end.
    pub fn request(&self) {
        self.0.send_replace(true);
    }
}

impl Shutdown {
    /// Whether the end was asked for.
    pub fn is_requested(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }

    /// Waits until the end is asked for.
    pub async fn requested(&mut self) {
        let _asked_or_dropped = self.0.wait_for(|asked| *asked).await;
    }
}
