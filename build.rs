//! Passes facts about the build to `src/version.rs`: target, profile and compiler.
//!
//! It reads no clock, no path and no repository, so two builds of one commit are equal. The commit and its date come from
//! `YURT_DS_COMMIT` and `YURT_DS_COMMIT_DATE`, which `.ci/static` sets.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let value = |name: &str| env::var(name).unwrap_or_default();
    println!("cargo:rustc-env=YURT_DS_TARGET={}", value("TARGET"));
    // PROFILE knows only debug and release. The folder in `target` has the name of the profile: PROFILE/build/NAME/out.
    let out = value("OUT_DIR");
    let folder = Path::new(&out).ancestors().nth(3);
    let profile = folder.and_then(Path::file_name);
    let profile = profile.map_or(value("PROFILE"), |name| name.to_string_lossy().into_owned());
    println!("cargo:rustc-env=YURT_DS_PROFILE={profile}");
    let asked = Command::new(value("RUSTC")).arg("--version").output();
    let compiler = asked.map(|answer| String::from_utf8_lossy(&answer.stdout).trim().to_owned());
    println!(
        "cargo:rustc-env=YURT_DS_RUSTC={}",
        compiler.unwrap_or_default()
    );
}
