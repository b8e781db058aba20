//! Request to shut down the process, from a signal or from a program that embeds the controller.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing::{info, warn};

/// Receiver of the shutdown request. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<bool>);

/// Sender of the shutdown request. Dropping it also requests the shutdown.
#[derive(Debug)]
pub struct Trigger(watch::Sender<bool>);

/// Creates a connected [`Trigger`] and [`Shutdown`].
pub fn channel() -> (Trigger, Shutdown) {
    let (sender, receiver) = watch::channel(false);
    (Trigger(sender), Shutdown(receiver))
}

/// Requests the shutdown on SIGTERM or SIGINT. A second signal ends the process at once.
///
/// # Errors
/// If the signal handlers cannot be installed.
pub fn on_signals() -> std::io::Result<Shutdown> {
    let (trigger, shutdown) = channel();
    let mut term = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        let name = first(&mut term, &mut interrupt).await;
        info!(signal = name, "Shutting down");
        trigger.request();
        let name = first(&mut term, &mut interrupt).await;
        warn!(signal = name, "Shutting down immediately");
        std::process::exit(1);
    });
    Ok(shutdown)
}

/// Waits for SIGTERM or SIGINT and returns the signal's name.
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
    /// Requests the shutdown.
    pub fn request(&self) {
        self.0.send_replace(true);
    }
}

impl Shutdown {
    /// Returns true if the shutdown was requested.
    pub fn is_requested(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }

    /// Waits until the shutdown is requested.
    pub async fn requested(&mut self) {
        let _asked_or_dropped = self.0.wait_for(|asked| *asked).await;
    }
}
