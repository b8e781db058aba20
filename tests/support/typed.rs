//! Runs `yurt-ds ctl` commands on the cluster of a story.

use anyhow::{Context as _, ensure};
use clap::Parser as _;
use yurt_ds::cli::{Cli, Command};
use yurt_ds::ctl::{Access, CliError, Code, Context, Screen, perform};

use super::player::Stage;

/// Runs a `ctl` command. Returns its output, and its exit code or error.
///
/// # Errors
/// Returns an error if the command line can't be parsed.
pub(crate) async fn ctl(
    stage: &Stage,
    line: &str,
) -> anyhow::Result<(String, Result<Code, CliError>)> {
    let words = ["yurt-ds", "ctl"].into_iter().chain(line.split(' '));
    let Command::Ctl(args) = Cli::try_parse_from(words)?.command else {
        anyhow::bail!("not a verb of ctl: {line}");
    };
    let context = Context {
        access: Access {
            client: stage.world.client.clone(),
            server: "the API server of the story".to_owned(),
            origin: "the kubeconfig of the story".to_owned(),
            namespace: stage.name.clone(),
            is_warned: std::sync::Arc::default(),
        },
        namespace: None,
        clock: stage.world.clock.clone(),
    };
    let mut out = Vec::new();
    let mut screen = Screen::new(&mut out, false, false);
    let ended = perform(&context, &args.verb, &mut screen).await;
    let text = String::from_utf8(out).context("what ctl prints is text")?;
    Ok((text, ended))
}

/// Runs a `ctl` command that must succeed. Returns its output.
///
/// # Errors
/// Returns an error if the exit code isn't [`Code::Complete`].
pub(crate) async fn completes(stage: &Stage, line: &str) -> anyhow::Result<String> {
    let (text, ended) = ctl(stage, line).await?;
    let code = ended.map_err(|trouble| anyhow::anyhow!("{line}: {trouble}"))?;
    ensure!(code == Code::Complete, "{line}: {code:?}: {text}");
    Ok(text)
}

/// Runs a `ctl` command that must fail with [`Code::Refused`].
///
/// # Errors
/// Returns an error if the command isn't refused.
pub(crate) async fn is_refused(stage: &Stage, line: &str) -> anyhow::Result<()> {
    let (text, ended) = ctl(stage, line).await?;
    let code = ended.err().map(|trouble| trouble.code);
    ensure!(code == Some(Code::Refused), "{line}: {code:?}: {text}");
    Ok(())
}
