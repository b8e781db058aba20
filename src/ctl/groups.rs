//! Rows for groups of nodes that are rolled out one after the other.

use std::collections::BTreeMap;

use serde::Serialize;

use super::snapshot::RolloutSnapshot;
use super::table::{CellStyle, Table};
use crate::core::verdict::WaveShut;
use crate::core::{Verdict, WaveState, instant};

/// A wave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaveRow {
    /// Its name.
    pub wave: String,
    /// Its targeted nodes that take part.
    pub nodes: usize,
    /// Those with an available pod of the current revision.
    pub done: usize,
    /// Its nodes that are under way, wait for a pod, or failed by the revision.
    pub in_flight: usize,
    /// How many of its nodes may lack an available pod at once.
    pub allowed: usize,
    /// `Complete`, `Open` or `NotOpen`.
    pub state: &'static str,
    /// What opens it; `null` when it is open.
    pub next: Option<String>,
}

/// The waves of a rollout; none without `waves`.
pub(super) fn waves(snapshot: &RolloutSnapshot) -> Vec<WaveRow> {
    let stands = snapshot.plan.waves.iter();
    let row = |stand: &crate::core::WaveStand| {
        let (state, next) = match stand.state {
            WaveState::Complete => ("Complete", None),
            WaveState::Open => ("Open", None),
            WaveState::NotOpen(why) => {
                let left = match why {
                    WaveShut::Soaking { until, .. } => {
                        format!(" (in {})", instant::between(snapshot.now, until))
                    }
                    _ => String::new(),
                };
                ("NotOpen", Some(snapshot.plan.awaited_words(why) + &left))
            }
        };
        WaveRow {
            wave: stand.name.clone(),
            nodes: stand.nodes,
            done: stand.done,
            in_flight: stand.in_flight,
            allowed: stand.allowed,
            state,
            next: next.map(|next| format!("waits {next}")),
        }
    };
    stands.map(row).collect()
}

/// A table of them; `wide` adds what opens them.
pub(super) fn wave_table(rows: &[WaveRow], wide: bool, colour: bool) -> String {
    let heading = ["WAVE", "NODES", "DONE", "IN FLIGHT", "STATE", "NEXT"];
    let columns = heading.len() - usize::from(!wide);
    let mut table = Table::new(&heading[..columns]);
    for row in rows {
        let plain = |text: String| (text, CellStyle::Plain);
        let paint = match row.state {
            "Complete" => CellStyle::Good,
            "Open" => CellStyle::Busy,
            _ => CellStyle::Plain,
        };
        let mut cells = vec![
            plain(row.wave.clone()),
            plain(row.nodes.to_string()),
            plain(row.done.to_string()),
            // With max-surge alone nobody may lack a pod, and what is under way needs no slot of that.
            plain(match row.allowed {
                0 => row.in_flight.to_string(),
                allowed => format!("{}/{allowed}", row.in_flight),
            }),
            (row.state.to_owned(), paint),
            plain(row.next.clone().unwrap_or_else(|| "-".into())),
        ];
        cells.truncate(columns);
        table.row(cells);
    }
    table.print(colour)
}

/// One value of `topology-key`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DomainRow {
    /// The value; empty for nodes without the label.
    pub domain: String,
    /// Targeted nodes.
    pub nodes: usize,
    /// Those with an available pod of the current revision.
    pub done: usize,
    /// Those that hold the domain: under way, waiting for a pod, or failed by the revision.
    pub in_flight: usize,
    /// Whether something is under way or may begin here now.
    pub has_turn: bool,
}

/// The domains of a rollout in their order; none without `topology-key`.
pub(super) fn domains(snapshot: &RolloutSnapshot) -> Vec<DomainRow> {
    let Some(topology) = &snapshot.strategy.topology else {
        return Vec::new();
    };
    let mut rows: BTreeMap<&str, DomainRow> = BTreeMap::new();
    for (node, verdict) in snapshot.fleet.nodes.iter().zip(&snapshot.plan.verdicts) {
        if matches!(verdict, Verdict::NotTargeted | Verdict::UntoleratedTaint) {
            continue;
        }
        let row = rows.entry(topology.domain_of(&node.labels)).or_default();
        row.nodes += 1;
        row.done += usize::from(*verdict == Verdict::Done);
        row.in_flight += usize::from(verdict.is_in_flight());
    }
    let named = rows.into_iter().map(|(domain, row)| DomainRow {
        domain: domain.to_owned(),
        has_turn: snapshot.plan.domains.iter().any(|turn| turn == domain),
        ..row
    });
    named.collect()
}

/// A table of them.
pub(super) fn domain_table(rows: &[DomainRow], colour: bool) -> String {
    let mut table = Table::new(&["DOMAIN", "NODES", "DONE", "IN FLIGHT", "TURN"]);
    for row in rows {
        let domain = match row.domain.as_str() {
            "" => "(no label)",
            domain => domain,
        };
        let (turn, paint) = match (row.has_turn, row.done == row.nodes) {
            (true, _) => ("now", CellStyle::Busy),
            (false, true) => ("done", CellStyle::Good),
            (false, false) => ("later", CellStyle::Plain),
        };
        let plain = |text: String| (text, CellStyle::Plain);
        table.row(vec![
            plain(domain.to_owned()),
            plain(row.nodes.to_string()),
            plain(row.done.to_string()),
            plain(row.in_flight.to_string()),
            (turn.to_owned(), paint),
        ]);
    }
    table.print(colour)
}
