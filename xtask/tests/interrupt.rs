//! Interrupting a cell, restarting or stopping its kernel, and killing the process that runs it end the
//! worker: nothing stays on a GPU.
//!
//! Where Jupyter or the kernel is missing this test says so and passes, unless
//! `XTASK_KERNEL_REQUIRED` is set.

use std::env;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

const ENDS: [&str; 6] = ["interrupt", "restart", "shutdown", "SIGKILL", "SIGTERM", "SIGINT"];

#[test]
fn the_worker_ends_with_the_cell() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let python = root.join(".venv/bin/python");
    if !python.exists() {
        ensure!(env::var_os("XTASK_KERNEL_REQUIRED").is_none(), "no .venv");
        writeln!(std::io::stderr(), "xtask/tests/interrupt.rs, test non exécuté : JupyterLab n'est pas installé.")?;
        return Ok(());
    }
    // A worker that runs until its input closes, and one that does not: the planted bad case.
    assert_eq!(outcomes(&root, &python, "endless", &ENDS)?, ENDS.map(|end| format!("{end}: gone")));
    assert_eq!(outcomes(&root, &python, "stubborn", &["SIGKILL"])?, ["SIGKILL: still there"]);
    Ok(())
}

/// What became of the worker each time, without the seconds that it took.
fn outcomes(root: &Path, python: &Path, behaviour: &str, ends: &[&str]) -> Result<Vec<String>> {
    let folder = tempfile::tempdir()?;
    let worker = folder.path().join(behaviour);
    symlink(root.join("tests/stand-in-worker.sh").canonicalize()?, &worker)?;
    let mut command = Command::new(python);
    command.arg(root.join("xtask/src/kernel_ends.py")).arg(root.join("notebooks/mesure-memoire.ipynb")).arg(&worker);
    let output = command.arg("1").args(ends).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout);
    // The kernel writes lines of its own in between.
    let outcomes = said.lines().filter(|line| line.contains(": ")).filter_map(|line| line.rsplit_once(' '));
    Ok(outcomes.map(|(outcome, _)| outcome.to_owned()).collect())
}
