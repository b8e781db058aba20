//! Watches that stall while writes succeed. The controller must not write to pods while its data is stale (too old).

use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::PROMPT;
use super::plane::{Plane, throughout, until};
use super::stage::{Setup, Stage};
use crate::support::faulty::{Fault, Rule, Verb};

/// Age of watch data at which the controller must have stopped writing to pods. Bookmarks refresh the data about once a minute.
const LIMIT: Duration = Duration::from_secs(100);

/// Time for which the test checks that the controller writes to no pod.
const STILL: Duration = Duration::from_secs(20);

/// Longest time until a resumed watch receives a bookmark.
const BOOKMARK: Duration = Duration::from_secs(65);

/// Metric with the age of the data about nodes, in seconds.
const AGE: &str = "yurt_ds_watch_age_seconds{resource=\"nodes\"";

/// Reason of the condition that reports stale data.
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

/// Waits until a condition and a metric report that the data is stale.
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
