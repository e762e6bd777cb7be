//! Interrupting a cell, restarting or stopping its kernel ends the worker: nothing stays on a GPU.
//!
//! Where Jupyter or the kernel is missing this test says so and passes, unless
//! `XTASK_KERNEL_REQUIRED` is set.

use std::env;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

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
    let said = with_worker(&root, &python, "endless")?;
    assert_eq!(said, "interrupt: gone\nrestart: gone\nshutdown: gone\n");
    let said = with_worker(&root, &python, "stubborn")?;
    assert!(said.contains("still there"), "{said}");
    Ok(())
}

fn with_worker(root: &Path, python: &Path, behaviour: &str) -> Result<String> {
    let folder = tempfile::tempdir()?;
    let worker = folder.path().join(behaviour);
    symlink(root.join("tests/stand-in-worker.sh").canonicalize()?, &worker)?;
    let mut command = Command::new(python);
    command.arg(root.join("xtask/tests/interrupt.py")).arg(root.join("notebooks/mesure-memoire.ipynb")).arg(&worker);
    let output = command.output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter(|line| line.contains(": "))
        .map(|line| format!("{line}\n"))
        .collect())
}
