//! Tests of the isolation between tenants, on the built controller process. A bad object, client or connection may harm only the
//! tenant or client from which it comes. A controller with stale data must not write.
//!
//! Each test is a *story* with two tenants: one causes a fault, the other is its neighbor. The neighbor's rollouts must complete in
//! time during the fault, before and after a restart of the controller. The tests simulate the kubelets of all nodes.
//!
//! - `objects`: objects that can't be decoded, and floods of them.
//! - `stale`: watches that stall while writes succeed.
//! - `network`: delays, resets and lost requests on the connection to the API server.
//! - `memory`: large objects that the controller doesn't manage.
//! - `connections`: clients that never read responses, and an API server that allows few streams per connection.
//!
//! The stories need a separate control plane with the kubeconfig in `YURT_DS_ISOLATION_KUBECONFIG` (`tests/isolation.sh` starts
//! one). `YURT_DS_ISOLATION_ONLY` selects stories by the prefixes of their names, separated by commas. `YURT_DS_ISOLATION_BINARY`
//! names the program to test instead of the one that cargo built. Stories about connections also run on the embedded API server,
//! which rejects the objects of the other stories.

mod connections;
mod fleet;
mod memory;
mod network;
mod objects;
mod plane;
mod stage;
mod stale;

use std::path::PathBuf;
use std::time::Duration;

use futures::future::LocalBoxFuture;
use tokio::time::Instant;

use self::plane::Plane;
use crate::support::machine::is_set;

/// Environment variable with the kubeconfig of a cluster administrator. No other controller may run on the cluster.
const KUBECONFIG: &str = "YURT_DS_ISOLATION_KUBECONFIG";

/// Environment variable with the name prefixes of the stories to run, separated by commas.
const ONLY: &str = "YURT_DS_ISOLATION_ONLY";

/// Time limit for a rollout of the neighbor: 30 s on a quiet machine, and three times that on a busy one.
const PROMPT: Duration = Duration::from_secs(30 * BUSY);

/// Time within which the controller must notice an outage of a node: 5 s on a quiet machine, and three times that on a busy one.
const NOTICED: Duration = Duration::from_secs(5 * BUSY);

/// Factor for time limits on a busy machine. It is small, so that the test fails if a fault delays a rollout for minutes.
const BUSY: u64 = 3;

struct Entry {
    name: &'static str,
    tell: fn(&Plane) -> LocalBoxFuture<'_, anyhow::Result<()>>,
}

/// Declares stories by the functions that run them. Stories marked `both` also become tests on the embedded cluster.
macro_rules! stories {
    ($($kind:ident $module:ident::$name:ident,)*) => {
        const ALL: &[Entry] = &[$(Entry {
            name: concat!(stringify!($module), "::", stringify!($name)),
            tell: |plane| Box::pin($module::$name(plane)),
        }),*];
        $(stories!(@embedded $kind $module $name);)*
    };
    (@embedded real $module:ident $name:ident) => {};
    (@embedded both $module:ident $name:ident) => {
        #[test]
        fn $name() {
            block_on(async {
                let plane = Plane::embedded().await.expect("an embedded cluster");
                if let Err(error) = $module::$name(&plane).await {
                    panic!("{error:#}");
                }
            });
        }
    };
}

stories! {
    real objects::a_revision_nested_200_deep_that_belongs_to_no_daemonset,
    real objects::a_revision_nested_200_deep_of_the_tenants_daemonset,
    real objects::an_advanced_daemonset_nested_200_deep,
    real objects::a_time_in_the_status_of_a_daemonset,
    real objects::a_time_in_a_condition_of_a_node,
    real objects::a_time_in_the_status_of_a_pod,
    real objects::a_flood_of_such_times,
    real objects::a_time_in_a_lease,
    both objects::a_node_that_flaps,
    both connections::clients_that_never_read,
    real connections::few_streams_per_connection,
    real memory::large_daemonsets_that_are_not_managed,
    real memory::large_nodes,
    real memory::large_pods_that_are_not_managed,
    real memory::large_revisions_of_no_daemonset,
    real memory::large_advanced_daemonsets,
    real memory::large_jobs_of_no_pre_pull,
    real memory::large_events,
    both network::delays_resets_and_lost_requests,
    real stale::stalled_watches_of_nodes_and_pods,
}

#[test]
fn the_stories_of_isolation_hold_on_a_real_control_plane() {
    if !is_set(KUBECONFIG) {
        eprintln!("SKIPPED: isolation on a real control plane; {KUBECONFIG} names no kubeconfig");
        return;
    }
    let kubeconfig = PathBuf::from(std::env::var_os(KUBECONFIG).unwrap_or_default());
    let failed = block_on(async {
        let plane = Plane::real(&kubeconfig).await.expect("a cluster");
        let mut failed = Vec::new();
        for entry in ALL.iter().filter(|entry| is_chosen(entry)) {
            let begin = Instant::now();
            let ended = (entry.tell)(&plane).await;
            let word = if ended.is_ok() { "ok    " } else { "FAILED" };
            let took = begin.elapsed().as_secs_f32();
            println!("{word} {took:6.1} s  {}", entry.name);
            if let Err(error) = ended {
                println!("{error:#}");
                failed.push(entry.name);
            }
        }
        failed
    });
    assert!(failed.is_empty(), "failed: {}", failed.join(", "));
}

fn is_chosen(entry: &Entry) -> bool {
    let only = std::env::var(ONLY).unwrap_or_default();
    only.is_empty() || only.split(',').any(|word| entry.name.starts_with(word))
}

fn block_on<T>(story: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(story)
}
