//! Watches that stall while writes pass. The controller must not act on old data.

use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::PROMPT;
use super::plane::{Plane, throughout, until};
use super::stage::{Setup, Stage};
use crate::support::faulty::{Fault, Rule, Verb};

/// Age of watch data from which on no pod may be written to. Bookmarks come every minute, with some delay.
const LIMIT: Duration = Duration::from_secs(100);

/// Time during which no pod may be written to.
const STILL: Duration = Duration::from_secs(20);

/// Longest time until a bookmark is sent.
const BOOKMARK: Duration = Duration::from_secs(65);

/// Metric of the age in seconds.
const AGE: &str = "yurt_ds_watch_age_seconds{resource=\"nodes\"";

/// Reason of the condition.
const REASON: &str = "StaleData";

pub(super) async fn stalled_watches_of_nodes_and_pods(plane: &Plane) -> anyhow::Result<()> {
    let setup = Setup {
        nodes: 4,
        by_proxy: true,
        ..Setup::named("stale")
    };
    Stage::play(plane, setup, async |stage| {
        stage.proxy()?.set(&[
            Rule {
                verbs: &[Verb::Get, Verb::List, Verb::Watch],
                resources: &["nodes"],
                fault: Fault::Stall,
            },
            Rule {
                verbs: &[Verb::Watch],
                resources: &["pods"],
                fault: Fault::Stall,
            },
        ]);
        stage.neighbour.offline(2).await?;
        stage.neighbour.offline(3).await?;
        tokio::time::sleep(LIMIT).await;
        let before = stage.neighbour.deleted().len();
        stage.neighbour.change_image().await?;
        let neighbour = &stage.neighbour;
        throughout(STILL, async || {
            let deleted = neighbour.deleted();
            let is_still = deleted.len() == before;
            Ok((!is_still).then(|| {
                format!("pods were deleted with data that is older than {LIMIT:?}: on {deleted:?}")
            }))
        })
        .await?;
        is_reported(stage).await?;
        stage.proxy()?.set(&[]);
        let limit = PROMPT + BOOKMARK;
        let goes_on = stage.neighbour.until_complete(limit).await;
        goes_on.context("after the watches went on")?;
        let deleted = stage.neighbour.deleted();
        for offline in [stage.neighbour.node(2), stage.neighbour.node(3)] {
            ensure!(
                !deleted.contains(&offline),
                "the pod on {offline} was deleted, which is offline"
            );
        }
        Ok(())
    })
    .await
}

/// Waits until condition and metric report that the data is old.
async fn is_reported(stage: &Stage<'_>) -> anyhow::Result<()> {
    until(
        "a condition says that the data is old",
        PROMPT,
        async || {
            let conditions = stage.neighbour.conditions().await?;
            let says = conditions.iter().any(|told| told["reason"] == REASON);
            Ok((!says).then(|| format!("{conditions:?}")))
        },
    )
    .await?;
    until("the metrics say how old the data is", PROMPT, async || {
        let metrics = stage.controller()?.metrics().await?;
        let line = metrics.lines().find(|line| line.starts_with(AGE));
        let line = line.context("no such metric")?;
        let age: f64 = line.rsplit(' ').next().unwrap_or_default().parse()?;
        Ok((age < LIMIT.as_secs_f64()).then(|| line.to_owned()))
    })
    .await
}
