//! One run of `mesure-memoire` in a process of its own, with the peak memory that the system reports.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, bail};

use crate::{UsageError, workspace};

/// GNU time: a child's peak memory is told by the system alone, and only to its parent.
const TIME: &str = "/usr/bin/time";

pub struct Observed {
    pub stdout: Vec<u8>,
    /// Without what GNU time says.
    pub stderr: String,
    pub seconds: f64,
    pub peak_kibibytes: u64,
}

/// Builds the command, when there is a way to observe it.
pub fn prepare() -> anyhow::Result<()> {
    if !Path::new(TIME).exists() {
        return Err(UsageError(format!("Il manque {TIME}, qui relève la mémoire : installez le paquet time.")).into());
    }
    workspace::succeed(&mut workspace::cargo(&["build", "--release", "--locked"]))
}

pub fn observe(arguments: &[&OsStr]) -> anyhow::Result<Observed> {
    let program = workspace::target().join("release/mesure-memoire");
    let start = Instant::now();
    let mut command = Command::new(TIME);
    command.args(["--format", "%M"]).arg(program).args(arguments).stdin(Stdio::null());
    let output = command.output()?;
    let seconds = start.elapsed().as_secs_f64();
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("la commande a échoué : {}", said.trim());
    }
    let (stderr, peak) = said.trim_end().rsplit_once('\n').unwrap_or(("", said.trim_end()));
    let peak_kibibytes = peak.parse().context("réponse inattendue du programme time")?;
    Ok(Observed { stdout: output.stdout, stderr: stderr.to_owned(), seconds, peak_kibibytes })
}
