//! A task that ends with its owner.

use tokio::task::JoinHandle;

/// A running task; it is ended, also in the middle of a request, when this is dropped.
#[derive(Debug)]
pub struct Task(JoinHandle<()>);

impl Task {
    /// Starts it.
    pub fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(work))
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}
