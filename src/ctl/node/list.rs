//! `ctl pods`, and the lists that `ctl upgrade` and `ctl imagepull` print if no pod is named.

use k8s_openapi::jiff::Timestamp;

use super::answer::{Pods, one_line};
use super::client::NodeClient;
use super::pod::AnnouncedUpdate;
use super::row::NodePodRow;
use crate::cli::Output;
use crate::cli::node::PodsArgs;
use crate::clock::Clock;
use crate::core::instant;
use crate::ctl::brief::wrapped;
use crate::ctl::code::Code;
use crate::ctl::error::CliError;
use crate::ctl::print;
use crate::ctl::screen::Screen;
use crate::ctl::table::{CellStyle, Table};

/// First table column whose cells may have a reason after the state, as in "failed: …".
const UPDATE: usize = 4;

pub(super) async fn pods(
    client: &NodeClient,
    args: &PodsArgs,
    screen: &mut Screen<'_>,
    clock: &Clock,
) -> Result<Code, CliError> {
    let pods = client.get_pods().await?;
    let namespace = client.namespace.as_deref().filter(|_| !args.all_namespaces);
    // Don't request upgrades for the default table, which has no columns for new images.
    let upgrades = match args.output {
        Output::Table => None,
        _ => client.get_upgrades().await,
    };
    let rows: Vec<NodePodRow> = pods
        .items
        .iter()
        .filter(|pod| namespace.is_none_or(|namespace| pod.namespace() == namespace))
        .map(|pod| NodePodRow::new(pod, &pods, upgrades.as_ref()))
        .collect();
    let text = match args.output {
        Output::Json | Output::Yaml => print::document(&rows, args.output)?,
        output => {
            let wide = output == Output::Wide;
            let body = if rows.is_empty() {
                nothing(namespace, &pods)
            } else {
                table(&rows, wide, screen.colour, clock.now())
            };
            format!("{}{body}", old(&pods))
        }
    };
    // Ignore a closed output pipe, as with `| head`: it must not change the exit code.
    let _ = screen.print(&text);
    Ok(Code::Complete)
}

/// Command that shows the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Intent {
    /// `ctl upgrade`: the pods can be replaced.
    Upgrade,
    /// `ctl imagepull`: the images of the pods can be pulled in advance.
    Pull,
}

/// Shows the available upgrades, and the command that requests one.
pub(super) async fn upgradable(
    client: &NodeClient,
    intent: Intent,
    output: Output,
    screen: &mut Screen<'_>,
) -> Result<Code, CliError> {
    let pods = client.get_pods().await?;
    let upgrades = client.get_upgrades().await;
    let namespace = client.namespace.as_deref();
    let rows: Vec<NodePodRow> = pods
        .items
        .iter()
        .filter(|pod| namespace.is_none_or(|namespace| pod.namespace() == namespace))
        .filter(|pod| {
            AnnouncedUpdate::of(pod) == Some(AnnouncedUpdate::Available) && !pod.is_deleting()
        })
        .map(|pod| NodePodRow::new(pod, &pods, upgrades.as_ref()))
        .collect();
    let text = match output {
        Output::Json | Output::Yaml => print::document(&rows, output)?,
        _ if rows.is_empty() => format!("{}{}", old(&pods), up_to_date(namespace, &pods)),
        _ => {
            let table = changes(&rows, output == Output::Wide, screen.colour);
            let refused = refused(&rows);
            format!("{}{table}\n{refused}{}", old(&pods), how(intent, &rows))
        }
    };
    let _ = screen.print(&text);
    Ok(Code::Complete)
}

/// Returns a line with the age of the server's data if the data is old; otherwise an empty text.
fn old(pods: &Pods) -> String {
    match pods.old() {
        None => String::new(),
        Some(seconds) => format!(
            "State of {} ago: the node is not connected to the cloud.\n\n",
            instant::seconds(seconds)
        ),
    }
}

fn nothing(namespace: Option<&str>, pods: &Pods) -> String {
    match namespace {
        None => "No pod runs on this node.\n".to_owned(),
        Some(namespace) => format!(
            "No pod of namespace {namespace} runs on this node ({} in other namespaces: -A).\n",
            pods.items.len()
        ),
    }
}

fn up_to_date(namespace: Option<&str>, pods: &Pods) -> String {
    let announced = pods
        .items
        .iter()
        .filter(|pod| AnnouncedUpdate::of(pod).is_some());
    let place = match namespace {
        Some(namespace) => format!(" in namespace {namespace}"),
        None => String::new(),
    };
    match announced.count() {
        0 => format!(
            "No updates are available{place}: no pod of this node belongs to a DaemonSet that announces updates \
             (apps.openyurt.io/update-strategy: OTA).\n"
        ),
        _ => format!("No updates are available{place}.\n"),
    }
}

/// Returns a line with the pods whose upgrade needs `--force`, because the node would get no new pod.
fn refused(rows: &[NodePodRow]) -> String {
    let refused = rows.iter().filter(|row| row.update_refused.is_some());
    let keys: Vec<String> = refused.map(|row| one_line(&row.key())).collect();
    if keys.is_empty() {
        String::new()
    } else {
        format!(
            "Upgrades that need --force, because the DaemonSet does not tolerate a NoSchedule taint of this node and \
             no new pod would run here: {}\n\n",
            keys.join(", ")
        )
    }
}

fn how(intent: Intent, rows: &[NodePodRow]) -> String {
    let pod = match rows {
        [row] => one_line(&row.key()),
        _ => "NAMESPACE/POD".to_owned(),
    };
    let is_refused = |row: &NodePodRow| row.update_refused.is_some();
    match intent {
        Intent::Upgrade if rows.iter().all(is_refused) => format!(
            "To delete a pod anyway and leave the node without one: yurt-ds ctl upgrade {pod} --force\nTo pull its \
             images ahead of time: yurt-ds ctl imagepull {pod} --wait\n"
        ),
        Intent::Upgrade if rows.iter().all(|row| row.image_ready == Some("failed")) => format!(
            "An upgrade needs the images. To pull them again: yurt-ds ctl imagepull {pod} --wait\nTo replace a pod \
             without them:                   yurt-ds ctl upgrade {pod} --force\n"
        ),
        Intent::Upgrade => format!(
            "To replace a pod with its new version: yurt-ds ctl upgrade {pod} --wait\nTo pull its images ahead of \
             time:      yurt-ds ctl imagepull {pod} --wait\n"
        ),
        Intent::Pull => {
            format!("To pull images ahead of time: yurt-ds ctl imagepull {pod} --wait\n")
        }
    }
}

fn table(rows: &[NodePodRow], wide: bool, colour: bool, now: Timestamp) -> String {
    let mut heading = vec!["NAMESPACE", "POD", "READY", "AGE", "UPDATE", "IMAGE-READY"];
    if wide {
        heading.extend(["REVISION", "NODE", "IMAGES", "NEW IMAGES"]);
    }
    let mut table = Table::new(&heading);
    let mut reasons = String::new();
    for row in rows {
        let mut cells = vec![
            plain(&row.namespace),
            plain(&row.name),
            ready(row),
            plain(&since(row, now)),
            update(row),
            image_ready(row),
        ];
        if wide {
            let images = row.containers.iter().map(|found| found.image.as_deref());
            let new = row
                .containers
                .iter()
                .map(|found| found.new_image.as_deref());
            cells.push(plain(row.revision.as_deref().unwrap_or("-")));
            cells.push(plain(row.node.as_deref().unwrap_or("-")));
            cells.push(plain(&joined(images)));
            cells.push(plain(&joined(new)));
        } else {
            // Move the reasons to lines below the table: they are too long for a cell.
            for (cell, what) in cells[UPDATE..].iter_mut().zip(["update", "image"]) {
                let Some((word, _)) = cell.0.split_once(": ") else {
                    continue;
                };
                let (word, key) = (word.to_owned(), one_line(&row.key()));
                reasons += &wrapped(&format!("{key}: {what} {}", cell.0), 0, 3);
                cell.0 = word;
            }
        }
        table.row(cells);
    }
    if reasons.is_empty() {
        table.print(colour)
    } else {
        format!("{}\n{reasons}", table.print(colour))
    }
}

fn changes(rows: &[NodePodRow], wide: bool, colour: bool) -> String {
    let mut heading = vec![
        "NAMESPACE",
        "POD",
        "DAEMONSET",
        "REVISION",
        "IMAGE-READY",
        "IMAGES",
    ];
    if wide {
        heading.insert(2, "NODE");
    }
    let mut table = Table::new(&heading);
    for row in rows {
        let mut cells = vec![
            plain(&row.namespace),
            plain(&row.name),
            plain(row.daemon_set.as_deref().unwrap_or("-")),
            plain(&revisions(row)),
            image_ready(row),
            plain(&images(row)),
        ];
        if wide {
            cells.insert(2, plain(row.node.as_deref().unwrap_or("-")));
        }
        table.row(cells);
    }
    table.print(colour)
}

fn plain(text: &str) -> (String, CellStyle) {
    (one_line(text), CellStyle::Plain)
}

/// Returns the cell for ready containers, such as `1/1`, followed by the pod's problem if there is one.
fn ready(row: &NodePodRow) -> (String, CellStyle) {
    let counted = &row.ready_containers;
    match &row.problem {
        _ if row.terminating => (format!("{counted} Terminating"), CellStyle::Busy),
        Some(problem) => (format!("{counted} {}", one_line(problem)), CellStyle::Bad),
        None if row.ready => (counted.clone(), CellStyle::Good),
        None => (format!("{counted} not Ready"), CellStyle::Busy),
    }
}

fn since(row: &NodePodRow, now: Timestamp) -> String {
    let created = row.created.as_deref().and_then(|text| text.parse().ok());
    created.map_or_else(|| "-".to_owned(), |created| instant::between(created, now))
}

fn update(row: &NodePodRow) -> (String, CellStyle) {
    match (row.update, row.update_refused) {
        (Some("available"), Some(why)) => (format!("refused: {why}"), CellStyle::Bad),
        (Some("available"), None) => ("available".to_owned(), CellStyle::Busy),
        (Some(_), _) => ("up to date".to_owned(), CellStyle::Good),
        (None, _) => ("-".to_owned(), CellStyle::Plain),
    }
}

fn image_ready(row: &NodePodRow) -> (String, CellStyle) {
    match (row.image_ready, &row.image_ready_message) {
        (None, _) => ("-".to_owned(), CellStyle::Plain),
        (Some("failed"), Some(why)) if !why.is_empty() => {
            (format!("failed: {why}"), CellStyle::Bad)
        }
        (Some("failed"), _) => ("failed".to_owned(), CellStyle::Bad),
        (Some("pulled"), _) => ("pulled".to_owned(), CellStyle::Good),
        (Some("stale"), _) => ("pulled for another version".to_owned(), CellStyle::Busy),
        (Some(word), _) => (word.to_owned(), CellStyle::Busy),
    }
}

/// Returns the pod's revision and the revision after an upgrade, as in `a → b`.
fn revisions(row: &NodePodRow) -> String {
    let old = row.revision.as_deref().unwrap_or("?");
    let new = row.new_revision.as_ref().or(row.target.as_ref());
    format!("{old} → {}", new.map_or("?", String::as_str))
}

/// Returns the present and the new images of the containers that an upgrade changes.
fn images(row: &NodePodRow) -> String {
    let has_new_images = row.containers.iter().any(|found| found.new_image.is_some());
    if !has_new_images {
        return joined(row.containers.iter().map(|found| found.image.as_deref()));
    }
    let changed: Vec<String> = row
        .containers
        .iter()
        .filter(|found| found.image != found.new_image)
        .map(|found| {
            let old = found.image.as_deref().unwrap_or("(new)");
            let new = found.new_image.as_deref().unwrap_or("(removed)");
            format!("{}: {old} → {new}", found.name)
        })
        .collect();
    if changed.is_empty() {
        "(the same)".to_owned()
    } else {
        changed.join(", ")
    }
}

fn joined<'a>(images: impl Iterator<Item = Option<&'a str>>) -> String {
    let images: Vec<&str> = images.flatten().collect();
    if images.is_empty() {
        "-".to_owned()
    } else {
        images.join(", ")
    }
}
