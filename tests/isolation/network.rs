//! A slow and lossy connection to the API server.

use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::PROMPT;
use super::fleet::at_once;
use super::plane::Plane;
use super::stage::{MOMENTS, Setup, Stage};
use crate::support::faulty::{Fault, Rule, Verb};

/// Number of nodes, and number of nodes that may lack a pod at the same time.
const NODES: usize = 30;
const BUDGET: usize = 10;

/// Interval at which the proxy breaks all watches.
const RESETS: Duration = Duration::from_secs(5);

pub(super) async fn delays_resets_and_lost_requests(plane: &Plane) -> anyhow::Result<()> {
    let setup = Setup {
        nodes: NODES,
        daemon: at_once().max_unavailable(&BUDGET.to_string()),
        by_proxy: true,
        ..Setup::named("lossy")
    };
    Stage::play(plane, setup, async |stage| {
        let rule = |fault| Rule {
            verbs: Verb::ALL,
            resources: &[],
            fault,
        };
        let delay = rule(Fault::Delay(Duration::from_millis(300)));
        stage.proxy()?.set(&[delay, rule(Fault::Drop(20))]);
        for (moment, restarts) in MOMENTS {
            if restarts {
                stage.restart().await?;
            }
            stage.neighbour.change_image().await?;
            let rollout = stage.neighbour.until_complete(4 * PROMPT);
            let resets = async {
                loop {
                    tokio::time::sleep(RESETS).await;
                    stage.proxy()?.reset_watches();
                }
            };
            tokio::select! {
                ended = rollout => ended.context(moment)?,
                ended = resets => return ended,
            }
            let most = stage.neighbour.most_missing();
            ensure!(
                most <= BUDGET,
                "{most} of {BUDGET} nodes lacked a pod {moment}"
            );
        }
        let watches = stage.proxy()?.count(Verb::Watch, "nodes");
        ensure!(watches > 2, "the proxy saw only {watches} watches of nodes");
        Ok(())
    })
    .await
}
