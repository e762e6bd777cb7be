//! Where things lie in this repository, and how its programs are run.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

pub fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package)
}

pub fn target() -> PathBuf {
    root().join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// The library finds the worker at its default place by itself; it cannot know that
/// `CARGO_TARGET_DIR` moved it. An explicit choice of the user stands.
pub fn moved_worker() -> Option<(&'static str, PathBuf)> {
    const VARIABLE: &str = "ITERAGPU_WORKER";
    let worker = target().join("release/iteragpu-worker");
    let moved = env::var_os("CARGO_TARGET_DIR").is_some() && env::var_os(VARIABLE).is_none() && worker.exists();
    moved.then_some((VARIABLE, worker))
}

/// The cargo that runs this program.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args(arguments);
    command
}

pub fn search_path() -> OsString {
    env::var_os("PATH").unwrap_or_default()
}

/// Runs a command on this terminal; anything but success is an error that names it.
pub fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("impossible de lancer {}", shown(command)))?;
    if !status.success() {
        bail!("{} a échoué ({status})", shown(command));
    }
    Ok(())
}

/// Standard output of a command that runs silently.
pub fn output_of(command: &mut Command) -> Result<String> {
    command.stdin(Stdio::null());
    let output = command.output().with_context(|| format!("impossible de lancer {}", shown(command)))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        bail!("{} a échoué ({}) : {}", shown(command), output.status, words.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A command as one would type it, without the folder of the program.
pub fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = [program].into_iter().chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    format!("« {} »", words.join(" "))
}

/// Writes a shell script that runs in the place of a program. Another program writes it: were the file open for
/// writing in this one, a child that another test starts at that moment would keep it open, and it could not run.
pub fn write_program(file: &Path, script: &str) -> Result<()> {
    const WRITE: &str = r#"printf '#!/bin/sh\n%s\n' "$2" > "$1" && chmod +x "$1""#;
    succeed(Command::new("/bin/sh").args(["-c", WRITE, "sh"]).arg(file).arg(script))
}
