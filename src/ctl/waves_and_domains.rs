//! Rows for waves and failure domains: groups of nodes that are updated one after the other.

use std::collections::BTreeMap;

use serde::Serialize;

use super::snapshot::RolloutSnapshot;
use super::table::{CellStyle, Table};
use crate::core::verdict::WaveShut;
use crate::core::{Verdict, WaveState, instant};

/// State of a wave in the output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaveRow {
    /// Name of the wave.
    pub wave: String,
    /// Number of nodes of the wave that take part in the rollout.
    pub nodes: usize,
    /// Number of these nodes with an available pod of the current revision.
    pub done: usize,
    /// Number of nodes that are being updated or wait for a preDelete hook, or that are Ready with a new pod that fails.
    pub in_flight: usize,
    /// Number of nodes of the wave that may be unavailable at the same time.
    pub allowed: usize,
    /// State of the wave: `Complete`, `Open` or `NotOpen`.
    pub state: &'static str,
    /// Event that opens the wave; `null` if it has opened.
    pub next: Option<String>,
}

/// Returns the waves of a rollout; empty without `waves`.
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

/// Renders a table of waves. If `wide` is true, it has a column for the event that opens each wave.
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
            // Omit the limit if it is 0: with only `max-surge`, nodes are updated without becoming unavailable.
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

/// State of a failure domain in the output. Its nodes have the same value of the label that `topology-key` names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DomainRow {
    /// Value of the label; empty for nodes without the label.
    pub domain: String,
    /// Number of nodes in the failure domain that should run a pod.
    pub nodes: usize,
    /// Number of these nodes with an available pod of the current revision.
    pub done: usize,
    /// Number of nodes that are being updated or wait for a preDelete hook, or that are Ready with a new pod that fails.
    pub in_flight: usize,
    /// True if nodes in this failure domain are being updated or may be updated now.
    pub has_turn: bool,
}

/// Returns the failure domains of a rollout, sorted by label value; empty without `topology-key`.
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
