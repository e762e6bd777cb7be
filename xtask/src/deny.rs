//! `cargo xtask deny`: licences, duplicate versions, sources and known flaws of the dependencies.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::progress::LongStep;
use crate::workspace;

const VERSION: &str = "0.20.2";

const CONFIG: &str = "deny.toml";

/// Each with its own lock file. What is allowed is needed by the first; the other needs little of it.
const WORKSPACES: [(&str, &str); 2] = [("Cargo.toml", "--deny"), ("fuzz/Cargo.toml", "--allow")];

/// An entry of the configuration that nothing needs.
const UNUSED: [&str; 3] = ["license-not-encountered", "unmatched-skip", "unnecessary-skip"];

/// One workspace needs an exception that the other does not.
const EXCEPTION: &str = "license-exception-not-encountered";

pub fn run() -> Result<ExitCode> {
    let program = installed()?;
    let config = workspace::root().join(CONFIG);
    for (manifest, unused) in WORKSPACES {
        println!("=== {manifest} : licences, doublons et sources");
        workspace::succeed(&mut check(&program, manifest, &config, unused, &["licenses", "bans", "sources"]))?;
    }
    planted_licence_is_refused(&program, &config)?;
    advisories(&program, &config)?;
    Ok(ExitCode::SUCCESS)
}

fn cargo_deny(program: &Path, manifest: &str, config: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(workspace::root()).args(["--manifest-path", manifest, "--workspace", "--locked"]);
    command.arg("--config").arg(config);
    command
}

fn check(program: &Path, manifest: &str, config: &Path, unused: &str, checks: &[&str]) -> Command {
    let mut command = cargo_deny(program, manifest, config);
    command.args(["check", "--allow", EXCEPTION]);
    for code in UNUSED {
        command.args([unused, code]);
    }
    command.args(checks);
    command
}

/// Without one of the licences that are there, the check has to fail, and to say why.
fn planted_licence_is_refused(program: &Path, config: &Path) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let planted = folder.path().join(CONFIG);
    fs::write(&planted, without_licence(&fs::read_to_string(config)?, "ISC")?)?;
    let output = check(program, WORKSPACES[0].0, &planted, "--allow", &["licenses"]).output()?;
    let words = String::from_utf8_lossy(&output.stderr);
    if output.status.success() || !words.contains("ISC") {
        bail!("une licence absente de la liste n'est pas refusée :\n{words}");
    }
    println!("=== licence retirée de la liste : refusée, comme il se doit");
    Ok(())
}

fn without_licence(config: &str, licence: &str) -> Result<String> {
    let entry = format!("    \"{licence}\",\n");
    if config.matches(&entry).count() != 1 {
        bail!("{CONFIG} ne nomme pas la licence {licence} une fois, sur une ligne à elle");
    }
    Ok(config.replace(&entry, ""))
}

/// The database is fetched from elsewhere than the crates: where it cannot be had, nothing is known.
fn advisories(program: &Path, config: &Path) -> Result<()> {
    let mut fetch = cargo_deny(program, WORKSPACES[0].0, config);
    if let Err(error) = workspace::output_of(fetch.args(["fetch", "db"])) {
        let reason = error.to_string();
        let last = reason.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        println!("=== failles connues : NON VÉRIFIÉES, leur base de données ne peut pas être lue ({})", last.trim());
        return Ok(());
    }
    for (manifest, _) in WORKSPACES {
        println!("=== {manifest} : failles connues");
        let mut known = check(program, manifest, config, "--allow", &["--disable-fetch", "advisories"]);
        workspace::succeed(&mut known)?;
    }
    Ok(())
}

/// The program, built when it is missing, below the repository.
fn installed() -> Result<PathBuf> {
    let home = workspace::target().join("cargo-deny");
    let program = home.join("bin/cargo-deny");
    let version = workspace::output_of(Command::new(&program).arg("--version"));
    if version.is_ok_and(|version| version.trim() == format!("cargo-deny {VERSION}")) {
        return Ok(program);
    }
    let build = home.join("build");
    let mut command = workspace::cargo(&["install", "cargo-deny", "--version", VERSION, "--locked", "--force"]);
    command.arg("--root").arg(&home).arg("--target-dir").arg(&build);
    let summarize = |lines: &[String]| lines.last().cloned().unwrap_or_default();
    LongStep::start("cargo-deny", command, summarize)?.wait()?;
    fs::remove_dir_all(&build).with_context(|| format!("impossible de vider {}", build.display()))?;
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_licence_is_taken_out_alone() -> Result<()> {
        let config = fs::read_to_string(workspace::root().join(CONFIG))?;
        let planted = without_licence(&config, "ISC")?;
        assert_eq!(planted.lines().count() + 1, config.lines().count());
        assert!(without_licence(&planted, "ISC").is_err());
        Ok(())
    }
}
