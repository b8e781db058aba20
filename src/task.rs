//! A task that is aborted when its handle is dropped.

use tokio::task::JoinHandle;

/// Handle of a running task. Dropping it aborts the task, even in the middle of a request.
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
