//! `yurt-ds sim kubelets`: runs the fake kubelets as a separate process, for any API server.

use std::collections::BTreeMap;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::cli::sim::KubeletsArgs;
use crate::clock::Clock;
use crate::core::foreign::{TEXT, cut};
use crate::k8s::client::{self, Role, Source};
use crate::sim::kubelet::{Behaviour, FakeNodeSpec, KubeletOptions, Kubelets, Outage};

impl KubeletsArgs {
    fn options(&self) -> KubeletOptions {
        KubeletOptions {
            behaviour: Behaviour {
                pull: self.pull,
                start: self.start,
                ..Behaviour::default()
            },
            terminate: self.terminate,
            offline: self.offline(),
            lease: self.lease,
            jitter: self.jitter,
            seed: self.seed,
            ..KubeletOptions::default()
        }
    }

    fn offline(&self) -> Outage {
        if self.mark {
            Outage::MARKED
        } else {
            Outage::default()
        }
    }

    /// Returns the nodes to register. Numbers in their names have leading zeros, so that alphabetical and numerical order are the
    /// same.
    fn specs(&self) -> Vec<FakeNodeSpec> {
        let width = self.nodes.to_string().len();
        let labels: BTreeMap<String, String> = self.labels.iter().cloned().collect();
        (1..=self.nodes)
            .map(|number| FakeNodeSpec {
                labels: labels.clone(),
                ..FakeNodeSpec::named(format!("{}{number:0width$}", self.prefix))
            })
            .collect()
    }
}

/// Runs the kubelets until SIGTERM or Ctrl-C.
pub(super) async fn run(args: KubeletsArgs) -> anyhow::Result<()> {
    let mut terminated = signal(SignalKind::terminate())?;
    let source = Source {
        kubeconfig: args.kubeconfig.clone(),
        ..Source::default()
    };
    let client = client::connect(&source, Role::Sim).await?;
    let kubelets = Kubelets::start(client, Clock::System, args.options());
    kubelets
        .add_nodes(args.specs())
        .await
        .context("add the fake nodes")?;
    println!("{} fake nodes are ready", args.nodes);
    if args.lease.is_none() {
        crate::stdout::complain(
            "They don't renew Leases, so the node lifecycle controller marks them as lost after its grace period \
             (50s by default). To prevent that: --lease 10s",
        );
    }
    let mut lines = lines();
    loop {
        tokio::select! {
            _ = terminated.recv() => break,
            _ = tokio::signal::ctrl_c() => break,
            Some(line) = lines.recv() => {
                if let Err(error) = steer(&kubelets, &args, &line).await {
                    let failed = format!("{line}: {error:#}");
                    crate::stdout::complain(&format!("{}", cut(&failed, TEXT)));
                }
            }
        }
    }
    if args.cleanup {
        for node in args.specs() {
            kubelets.remove_node(&node.name).await?;
        }
    }
    Ok(())
}

/// Returns the lines of standard input. A thread reads them, because a read from a terminal cannot be cancelled at shutdown.
fn lines() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

async fn steer(kubelets: &Kubelets, args: &KubeletsArgs, line: &str) -> anyhow::Result<()> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        [] => Ok(()),
        ["offline", node] => kubelets.set_offline(node, args.offline()).await,
        ["online", node] => kubelets.set_online(node).await,
        ["remove", node] => kubelets.remove_node(node).await,
        ["flap", node, up, down] => {
            let (up, down) = (
                humantime::parse_duration(up)?,
                humantime::parse_duration(down)?,
            );
            kubelets.flap(node, up, down).await
        }
        ["image", pattern, words @ ..] => {
            kubelets
                .behaviour(pattern, behaviour(args.options().behaviour, words)?)
                .await
        }
        _ => anyhow::bail!("unknown command: use offline, online, remove, flap or image"),
    }
}

fn behaviour(mut from: Behaviour, words: &[&str]) -> anyhow::Result<Behaviour> {
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let time = || humantime::parse_duration(value).with_context(|| format!("`{word}`"));
        match key {
            "pull" => from.pull = time()?,
            "start" => from.start = time()?,
            "ready-after" => from.ready_after = time()?,
            "crash-after" => from.crash_after = Some(time()?),
            "completes-after" => from.completes_after = Some(time()?),
            "kills-node-after" => from.kills_node_after = Some(time()?),
            "kills-node-when-stopped" => from.kills_node_when_stopped = true,
            "evicted" => from.evicted = true,
            "error" => from.image_error = true,
            "never-ready" => from.never_ready = true,
            _ => anyhow::bail!("`{word}` is not a behaviour of an image"),
        }
    }
    Ok(from)
}
