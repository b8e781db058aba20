//! A task that ends with its owner.

use tokio::task::JoinHandle;

/// A running task. Dropping it aborts the task, even in the middle of a request.
#[derive(Debug)]
pub struct Task(JoinHandle<()>);

impl Task {
    /// Spawns the task.
    pub fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(work))
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}
