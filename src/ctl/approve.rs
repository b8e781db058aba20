//! `ctl approve`: allows a wave to open, for the current revision only.

use super::code::Code;
use super::context::Context;
use super::error::CliError;
use super::look::Look;
use super::screen::Screen;
use super::suggest::{near, suggestion};
use super::write::Annotation;
use super::{lookup, write};
use crate::cli::ctl::ApproveArgs;
use crate::core::Revision;
use crate::core::settings::approved_waves::APPROVED_WAVES;
use crate::core::settings::waves::WAVES;
use crate::core::settings::{Approval, REST, Waves};
use crate::index::SetKey;

/// Approves a wave for the current revision: updates the annotation `approved-waves`.
pub(super) async fn approve(
    context: &Context,
    args: &ApproveArgs,
    screen: &mut Screen<'_>,
) -> Result<(), CliError> {
    let key = lookup::target(context, &args.daemonset).await?;
    let text = write::annotate(context, &key, APPROVED_WAVES, |_, look| {
        let (waves, revision) = judge(look, &args.wave)?;
        if waves
            .position(&args.wave)
            .is_some_and(|position| waves.is_approved(position, revision))
        {
            return Ok(Annotation::Kept(format!(
                "Wave {} of {key} is already approved for revision {revision}; nothing was changed.\n",
                args.wave
            )));
        }
        Ok(Annotation::Set {
            value: value(waves, &args.wave, revision),
            message: message(look, &args.wave, revision),
        })
    });
    let _ = screen.print(&text.await?);
    Ok(())
}

/// Returns the settings of the waves and the revision to approve.
fn judge<'a>(look: &'a Look, typed: &str) -> Result<(&'a Waves, &'a Revision), CliError> {
    let key = look.key();
    let strategy = look.rolling_strategy()?;
    let waves = strategy.and_then(|strategy| strategy.waves.as_ref());
    let waves = waves.ok_or_else(|| refused(no_waves(key)))?;
    let needs_approval = waves.list.iter().filter(|wave| wave.approve);
    let names: Vec<&str> = needs_approval.map(|wave| &*wave.name).collect();
    if !names.contains(&typed) {
        let list = if names.is_empty() {
            "No wave needs approval. To require it, add approve: manual to a wave.".to_owned()
        } else {
            format!("Waves that need approval: {}.", names.join(", "))
        };
        if waves.position(typed).is_some() {
            let why = match typed {
                REST => "contains the nodes that match no other wave, and opens last",
                _ => "opens automatically",
            };
            return Err(refused(format!(
                "Wave {typed} of {key} {why}, so it needs no approval. {list}"
            )));
        }
        let known = waves.list.iter().map(|wave| &*wave.name);
        return Err(CliError::new(
            Code::NotFound,
            format!(
                "{key} has no wave {typed}.{} {list}",
                suggestion(&near(typed, known))
            ),
        ));
    }
    Ok((waves, look.known_revision()?))
}

fn no_waves(key: &SetKey) -> String {
    format!(
        "{key} has no waves, so there is nothing to approve. Waves are defined by the annotation {WAVES}."
    )
}

fn refused(text: String) -> CliError {
    CliError::new(Code::Refused, text)
}

/// Returns the new value of `approved-waves`. Approvals of other revisions no longer have an effect and are removed.
fn value(waves: &Waves, wave: &str, revision: &Revision) -> String {
    let others = waves.approved.iter();
    let others = others.filter(|other| other.revision == *revision && *other.wave != *wave);
    let new = Approval {
        wave: wave.into(),
        revision: revision.clone(),
    };
    let all: Vec<String> = others.chain([&new]).map(ToString::to_string).collect();
    all.join(",")
}

fn message(look: &Look, wave: &str, revision: &Revision) -> String {
    // Without the right to list nodes, the caller cannot know which waves are open.
    let waves = match look {
        Look::Judged(snapshot) => snapshot.plan.waves.as_slice(),
        Look::Reported(_) => &[],
    };
    let position = waves.iter().position(|stand| stand.name == wave);
    let earlier = waves.iter().take(position.unwrap_or(0));
    let open: Vec<&str> = earlier
        .filter(|stand| stand.done < stand.nodes)
        .map(|stand| stand.name.as_str())
        .collect();
    let follows = if open.is_empty() {
        "The wave opens as soon as the waves before it are complete.".to_owned()
    } else {
        format!(
            "The wave opens when the waves before it are complete. Incomplete: {}.",
            open.join(", ")
        )
    };
    format!(
        "Wave {wave} of {} is approved for revision {revision}. {follows}\nFollow it: yurt-ds ctl status {} --watch\n",
        look.key(),
        look.key()
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::ctl::tests::CtlWorld;
    use crate::ctl::{CliError, Code};

    /// Waves for the tests: `canary` matches no nodes, and `field` matches all nodes and needs an approval.
    const WAVES: &str = "[{name: canary, selector: pool=canary, allowEmpty: true}, {name: field, selector: {}, approve: manual}]";

    #[tokio::test(start_paused = true)]
    async fn an_approval_is_one_write_for_one_revision_and_refusals_name_the_next_step() {
        let world = CtlWorld::with_nodes(2).await;
        let CliError { text, code, .. } = world.error("approve web field").await;
        assert_eq!(code, Code::Refused);
        assert!(text.contains("has no waves"), "{text}");
        world
            .patch(json!({ "metadata": { "annotations": { "apps.openyurt.io/waves": WAVES } } }))
            .await;
        let before = world.writes();
        let CliError { text, code, .. } = world.error("approve web feild").await;
        assert_eq!(code, Code::NotFound);
        assert!(
            text.contains("Did you mean field? Waves that need approval: field."),
            "{text}"
        );
        let CliError { text, code, .. } = world.error("approve web canary").await;
        assert_eq!(code, Code::Refused);
        assert!(
            text.contains("opens automatically, so it needs no approval"),
            "{text}"
        );
        assert_eq!(world.writes(), before);
        world.set_image("web:2").await;
        let status = world.json("status web").await;
        assert_eq!(status["waves"][1]["state"], "NotOpen");
        assert_eq!(
            status["waves"][1]["next"],
            "waits for the approval of wave field"
        );
        let why = world.text("why web n1").await;
        assert!(why.contains("WaveNotOpen"), "{why}");
        assert!(
            why.contains("yurt-ds ctl approve default/web field"),
            "{why}"
        );
        let writes = world.writes();
        let output = world.text("approve web field").await;
        assert!(
            output.contains("Wave field of default/web is approved for revision"),
            "{output}"
        );
        assert_eq!(world.writes(), writes + 1);
        let again = world.text("approve web field").await;
        assert!(
            again.contains("is already approved for revision"),
            "{again}"
        );
        let status = world.json("status web").await;
        assert_eq!(status["waves"][1]["state"], "Open");
        let set = serde_json::to_value(world.sets().get("web").await.unwrap()).unwrap();
        let revision = status["revision"].as_str().unwrap();
        assert_eq!(
            set["metadata"]["annotations"]["apps.openyurt.io/approved-waves"],
            format!("field@{revision}")
        );
        // The wave is not open for the next revision, because the approval names the previous one.
        world.set_image("web:3").await;
        let status = world.json("status web").await;
        assert_eq!(status["waves"][1]["state"], "NotOpen");
    }
}
