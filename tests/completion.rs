//! What shells offer, by running them: the script that `ctl completions` prints, and the program that it asks.

use std::process::Command;

/// Where the program is.
const PROGRAM: &str = env!("CARGO_BIN_EXE_yurt-ds");

/// What bash offers for a line whose last word is being typed.
fn bash(line: &str) -> Vec<String> {
    let folder = std::path::Path::new(PROGRAM).parent().expect("a folder");
    let path = format!("{}:/usr/bin:/bin", folder.display());
    let script = r#"
        source <(yurt-ds ctl completions bash)
        declared=$(complete -p yurt-ds); function=${declared##*-F }; function=${function%% *}
        COMP_WORDS=($LINE); [[ $LINE == *' ' ]] && COMP_WORDS+=('')
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMP_TYPE=9
        "$function" yurt-ds "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}" 2> /dev/null
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let out = Command::new("bash")
        .args(["--norc", "-c", script])
        .env("LINE", line)
        .env("PATH", path)
        .env("KUBECONFIG", "/nowhere")
        .output()
        .expect("bash runs");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    text.lines().map(|line| line.trim().to_owned()).collect()
}

#[test]
fn bash_completes_verbs_flags_and_values_at_every_depth() {
    #[track_caller]
    fn case(line: &str, expected: &[&str]) {
        let found = bash(line);
        for word in expected {
            assert!(found.iter().any(|offer| offer == word), "{line}: {found:?}");
        }
    }
    case("yurt-ds c", &["controller", "ctl"]);
    case("yurt-ds ctl st", &["status"]);
    case("yurt-ds ctl u", &["undo", "upgrade"]);
    case("yurt-ds ctl status --wa", &["--watch", "--wait"]);
    case("yurt-ds ctl status -o j", &["json"]);
    case("yurt-ds ota-server --li", &["--listen"]);
}
