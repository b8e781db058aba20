//! `docs/sim.svg`: a recording of `yurt-ds sim`, drawn from its real output.
//!
//! The recorded story has three nodes, two of which are offline. A line that begins with a virtual time appears at that time, sped
//! up by [`PACE`]. Any other line follows the line before it. `YURT_DS_GOLDEN=1` draws the file again.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use crate::support::machine;

/// Path of the picture, relative to the root of the repository.
const PICTURE: &str = "docs/sim.svg";

/// Virtual seconds that pass in one second of the recording.
const PACE: f64 = 8.0;

/// Seconds between two lines that don't start with a time.
const NEXT_LINE: f64 = 0.25;

/// Height of a line in the units of the picture.
const LINE: usize = 19;

/// Returns the output of the recorded command: the story and its report.
fn output() -> Vec<String> {
    let out = Command::new(env!("CARGO_BIN_EXE_yurt-ds"))
        .args(["sim", "--seed", "1", "--story", "offline"])
        .env("COLUMNS", "80")
        .output()
        .expect("yurt-ds sim");
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let text = String::from_utf8(out.stdout).expect("UTF-8");
    let lines = text.lines().skip_while(|line| !line.starts_with("──"));
    let lines = lines.take_while(|line| !line.starts_with("Try next"));
    let mut lines: Vec<String> = lines.map(str::to_owned).collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

/// Returns the virtual time with which a line begins, in seconds; `None` if the line doesn't begin with a time.
fn time_of(line: &str) -> Option<f64> {
    let (minutes, seconds) = line.get(..5)?.split_once(':')?;
    let (minutes, seconds): (u32, u32) = (minutes.parse().ok()?, seconds.parse().ok()?);
    Some(f64::from(minutes * 60 + seconds))
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;")
}

/// Draws the recording of these lines as an animated SVG.
fn draw(lines: &[String]) -> String {
    let height = (lines.len() + 2) * LINE + 44;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 {height}\" role=\"img\" aria-labelledby=\"title\" \
         font-family=\"ui-monospace, SFMono-Regular, Menlo, Consolas, monospace\" font-size=\"14\">
  <title id=\"title\">yurt-ds sim: a rollout to three nodes, two of which are offline</title>
  <style>
    .ground {{ fill: #10161d }}
    text {{ fill: #d5dde6; white-space: pre }}
    .time {{ fill: #7fb2f0 }}
    .good {{ fill: #7fce95 }}
    .prompt {{ fill: #8b98a5 }}
    .line {{ animation: appear 0.2s both }}
    @keyframes appear {{ from {{ opacity: 0 }} }}
    @media (prefers-reduced-motion: reduce) {{ .line {{ animation: none }} }}
  </style>
  <rect class=\"ground\" width=\"720\" height=\"{height}\" rx=\"10\"/>
  <text x=\"20\" y=\"34\"><tspan class=\"prompt\">$</tspan> yurt-ds sim --story offline</text>
"
    );
    let mut shown = 0.5;
    for (number, line) in lines.iter().enumerate() {
        shown = match time_of(line) {
            Some(time) => f64::max(shown, 0.5 + time / PACE),
            None => shown + if line.is_empty() { 0.0 } else { NEXT_LINE },
        };
        if line.is_empty() {
            continue;
        }
        let y = 34 + (number + 2) * LINE;
        let text = match time_of(line) {
            Some(_) => format!(
                "<tspan class=\"time\">{}</tspan>{}",
                &line[..5],
                escaped(&line[5..])
            ),
            None => escaped(line),
        };
        let is_good = line.trim_start().starts_with("held");
        let class = if is_good { "line good" } else { "line" };
        let _ = writeln!(
            svg,
            "  <text class=\"{class}\" style=\"animation-delay: {shown:.2}s\" x=\"20\" y=\"{y}\" xml:space=\"preserve\">{text}</text>"
        );
    }
    svg + "</svg>\n"
}

#[test]
fn the_recording_shows_what_the_program_prints() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PICTURE);
    let drawn = draw(&output());
    if machine::is_set("YURT_DS_GOLDEN") {
        std::fs::write(&path, &drawn).expect("the picture");
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        known == drawn,
        "{PICTURE} differs from the output: run this test with YURT_DS_GOLDEN=1"
    );
}
