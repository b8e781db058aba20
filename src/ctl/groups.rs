//! Rows for groups of nodes that are rolled out one after the other.

use std::collections::BTreeMap;

use serde::Serialize;

use super::picture::Picture;
use super::table::{Paint, Table};
use crate::core::Verdict;

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
pub(super) fn domains(picture: &Picture) -> Vec<DomainRow> {
    let Some(topology) = &picture.strategy.topology else {
        return Vec::new();
    };
    let mut rows: BTreeMap<&str, DomainRow> = BTreeMap::new();
    for (node, verdict) in picture.fleet.nodes.iter().zip(&picture.plan.verdicts) {
        if *verdict == Verdict::NotTargeted {
            continue;
        }
        let row = rows.entry(topology.domain_of(node)).or_default();
        row.nodes += 1;
        row.done += usize::from(*verdict == Verdict::Done);
        let holds = matches!(
            verdict,
            Verdict::InProgress(_) | Verdict::FailedByRevision { .. }
        );
        row.in_flight += usize::from(holds);
    }
    let named = rows.into_iter().map(|(domain, row)| DomainRow {
        domain: domain.to_owned(),
        has_turn: picture.plan.domains.iter().any(|turn| turn == domain),
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
            (true, _) => ("now", Paint::Busy),
            (false, true) => ("done", Paint::Good),
            (false, false) => ("later", Paint::Plain),
        };
        let plain = |text: String| (text, Paint::Plain);
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
