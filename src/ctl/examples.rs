//! Examples at the end of each verb's help. All other documentation is in `docs/reference/cli.md`.

/// Line that refers to the full documentation.
pub(super) const MORE: &str = "More: docs/reference/cli.md, or yurt-ds manifests man";

/// Returns the examples of a verb; `None` if it has none.
pub(super) fn for_command(verb: &str) -> Option<&'static str> {
    Some(match verb {
        "ctl" => "yurt-ds ctl status shop/web",
        "status" => {
            "\
yurt-ds ctl status                          all DaemonSets
yurt-ds ctl status shop/web                 one, with its nodes
yurt-ds ctl status shop/web --wait --timeout 10m"
        }
        "why" => "yurt-ds ctl why shop/web edge-7",
        "undo" => {
            "yurt-ds ctl undo shop/web --dry-run         show what would be restored
yurt-ds ctl undo shop/web                   roll back to the previous revision
yurt-ds ctl undo shop/web --to-revision 3   roll back to a specific revision"
        }
        "pause" => {
            "\
yurt-ds ctl pause shop/web                  until ctl resume
yurt-ds ctl pause shop/web --for 2h"
        }
        "resume" => "yurt-ds ctl resume shop/web",
        "plan" => {
            "\
yurt-ds ctl plan shop/web --image registry.corp/web:1.2
yurt-ds ctl plan shop/web --set max-unavailable=20% --break 2"
        }
        "settings" => {
            "\
yurt-ds ctl settings                        all settings, without a cluster
yurt-ds ctl settings shop/web               those of one DaemonSet"
        }
        "start-now" => "yurt-ds ctl start-now shop/web",
        "approve" => "yurt-ds ctl approve shop/web field",
        "eject" => {
            "\
yurt-ds ctl eject shop/web --dry-run        show what would be written
yurt-ds ctl eject shop/web"
        }
        "migrate" => {
            "\
yurt-ds ctl migrate shop/web --to advanced --dry-run
yurt-ds ctl migrate shop/web --to advanced"
        }
        "check" => {
            "\
yurt-ds ctl check --pre                     before the installation
yurt-ds ctl check                           after it
yurt-ds ctl check --wait --timeout 4m -o short"
        }
        "pods" => {
            "\
yurt-ds ctl pods                            every pod of this node
yurt-ds ctl pods -n default -o wide         with images"
        }
        "upgrade" => {
            "\
yurt-ds ctl upgrade                         show what would change
yurt-ds ctl upgrade default/web-bwzss --wait
yurt-ds ctl upgrade web --wait --timeout 5m"
        }
        "imagepull" => {
            "\
yurt-ds ctl imagepull                       show what could be pulled
yurt-ds ctl imagepull default/web-bwzss --wait"
        }
        "version" => {
            "\
yurt-ds version
yurt-ds version -o json"
        }
        "completions" => "source <(yurt-ds ctl completions bash)",
        _ => return None,
    })
}

/// Returns the text after the flags in the help of a verb.
pub(super) fn help(verb: &str) -> String {
    let lines = for_command(verb).into_iter().flat_map(str::lines);
    let lines: Vec<String> = lines.map(|line| format!("  {line}")).collect();
    format!("Examples:\n{}\n\n{MORE}", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::Cli;
    use crate::ctl::command_line::described;
    use crate::ctl::kubectl;

    #[test]
    fn every_verb_has_valid_examples() {
        let all = described();
        let ctl = all.find_subcommand("ctl").unwrap();
        for verb in ctl.get_subcommands() {
            let name = verb.get_name();
            for example in for_command(name)
                .unwrap_or_else(|| panic!("{name}"))
                .lines()
            {
                let typed = example.split("  ").next().unwrap();
                let typed = typed.trim_start_matches("source <(").trim_end_matches(')');
                let parsed = Cli::try_parse_from(typed.split(' '));
                assert!(parsed.is_ok(), "{typed}: {}", parsed.unwrap_err());
                assert!(typed.starts_with(&format!("yurt-ds ctl {name}")), "{typed}");
            }
        }
    }

    /// Checks that the help of each verb fits on a little more than one screen of a small terminal.
    #[test]
    fn help_fits_40_lines_of_80_columns() {
        let mut all = described().max_term_width(80);
        all.build();
        let ctl = all.find_subcommand_mut("ctl").unwrap();
        let mut verbs: Vec<_> = ctl.get_subcommands().cloned().collect();
        verbs.push(ctl.clone());
        verbs.extend(all.find_subcommand("version").cloned());
        let mut plugin = kubectl::described();
        plugin.build();
        verbs.extend(plugin.get_subcommands().cloned());
        verbs.push(plugin);
        for mut verb in verbs.into_iter().filter(|verb| verb.get_name() != "help") {
            let help = verb.render_help().to_string();
            let lines = help.lines().count();
            let widest = help.lines().map(|line| line.chars().count()).max();
            assert!(
                lines <= 40 && widest <= Some(80),
                "{}: {lines} lines, {widest:?} columns\n{help}",
                verb.get_name()
            );
        }
    }
}
