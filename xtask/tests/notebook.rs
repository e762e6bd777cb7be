//! `cargo xtask notebook` in the real kernel: each planted fault is found, and for its own reason.
//! The planted notebooks end in `.json`, so that every `.ipynb` of the project is one to open.
//!
//! Where Jupyter or the kernel is missing these tests say so and pass, unless `XTASK_KERNEL_REQUIRED`
//! is set: `cargo xtask test` sets up both, then sets it.

use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

/// Notebook, further arguments, exit code, what the program has to say.
type Case = (&'static str, &'static [&'static str], i32, &'static str);

/// A cell that fails.
const BAD_CELLS: &[Case] = &[
    ("failed-question-mark", &[], 1, "invalid digit found in string"),
    ("panic", &[], 1, "panicked at"),
    ("failed-assert", &[], 1, "left == right"),
    ("compile-error", &[], 1, "mismatched types"),
    ("stderr", &[], 1, "    planted\n1 cellule exécutée, 1 en échec"),
    ("late-stderr", &[], 1, "    planted\n1 cellule exécutée, 1 en échec"),
    ("process-exit", &[], 1, "exit status: 3"),
    ("kernel-dies", &[], 1, "le noyau s'est arrêté"),
    ("skipped", &["--expect", "value=total 42"], 1, "planted"),
    ("stale-output", &["--expect", "value=total 42"], 1, "Texte attendu, mais absent : total 42"),
    ("raises-nothing", &[], 1, "rien n'a échoué"),
    ("late-panic", &[], 1, "planted"),
    ("endless", &["--timeout", "3"], 1, "pas fini après 3 s"),
];

/// A run that executes nothing, not what is expected, or that cannot begin.
const BAD_RUNS: &[Case] = &[
    ("no-code", &[], 1, "rien n'a été exécuté"),
    ("good", &["--tags", "no-such-tag"], 1, "rien n'a été exécuté"),
    ("good", &["--expect", "sum=total 43"], 1, "Texte attendu, mais absent : total 43"),
    ("good", &["--skip-tags", "requires-gpu", "--expect", "sum=42"], 1, "sum : cellule attendue, mais pas exécutée"),
    ("good", &["--expect", "no-such-cell=42"], 1, "no-such-cell : cellule attendue, mais pas exécutée"),
    ("good", &["--tags", "requires-gpu", "--expect", "value=43"], 1, "value : cellule attendue, mais pas exécutée"),
    ("unknown-kernel", &[], 1, "no-such-kernel"),
    ("not-json", &[], 2, "JSONDecodeError"),
    ("old-format", &[], 2, "nbformat 4.4"),
    ("duplicate-ids", &[], 2, "id 'one': 2 cells"),
    ("missing-id", &[], 2, "'id' is a required property"),
    ("missing-outputs", &[], 2, "'outputs' is a required property"),
    ("unknown-property", &[], 2, "'colour' was unexpected"),
    ("surrogate", &[], 2, "UnicodeEncodeError"),
    ("no-kernel-name", &[], 2, "kernelspec.name"),
    ("no-such-file", &[], 2, "lecture impossible"),
    ("good", &["--output", "Cargo.toml"], 2, "existe déjà"),
    ("good", &["--expect", "sum"], 2, "« sum » refusé"),
    ("good", &["--timeout", "0"], 2, "« 0 » refusé"),
    ("good", &["--colour"], 2, "nconnu : --colour"),
];

#[test]
fn bad_cells_are_found() -> Result<()> {
    every_fault_is_found(BAD_CELLS)
}

#[test]
fn bad_runs_are_found() -> Result<()> {
    every_fault_is_found(BAD_RUNS)
}

fn every_fault_is_found(cases: &[Case]) -> Result<()> {
    if kernel_is_missing()? {
        return Ok(());
    }
    for (name, arguments, code, reason) in cases {
        let (found, said) = notebook(&fixture(name), arguments)?;
        assert!(found == *code && said.contains(reason), "{name} {arguments:?}: exit code {found}, said:\n{said}");
    }
    Ok(())
}

#[test]
fn a_good_notebook_passes_and_is_left_alone() -> Result<()> {
    if kernel_is_missing()? {
        return Ok(());
    }
    let before = fs::read(fixture("good"))?;
    let folder = tempfile::tempdir()?;
    let output = folder.path().join("executed.ipynb").display().to_string();
    let arguments = ["--output", &output, "--expect", "sum=total 42", "--expect", "value=43"];
    let (code, said) = notebook(&fixture("good"), &arguments)?;
    assert!(code == 0 && said.ends_with("5 cellules exécutées, 0 en échec\n"), "{said}");
    assert_eq!(fs::read(fixture("good"))?, before);
    assert!(fs::read_to_string(&output)?.contains("total 42"));
    let (code, said) = notebook(Path::new(&output), &["--tags", "requires-gpu,other"])?;
    assert!(code == 0 && said.ends_with("1 cellule exécutée, 0 en échec\n"), "{said}");
    Ok(())
}

#[test]
fn a_notebook_that_writes_into_itself_is_caught() -> Result<()> {
    if kernel_is_missing()? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let copy = folder.path().join("self-writing.ipynb");
    fs::copy(fixture("self-writing"), &copy)?;
    let (code, said) = notebook(&copy, &[])?;
    assert!(code == 1 && said.contains("a changé pendant l'exécution"), "{said}");
    Ok(())
}

/// Exit code, and all that was said.
fn notebook(file: &Path, arguments: &[&str]) -> Result<(i32, String)> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    let output = command.arg("notebook").args(arguments).arg(file).output()?;
    let said = [output.stderr, output.stdout].concat();
    Ok((output.status.code().context("killed")?, String::from_utf8(said)?))
}

fn kernel_is_missing() -> Result<bool> {
    let (_, said) = notebook(&fixture("no-code"), &[])?;
    let missing = said.contains("cargo xtask lab --no-open");
    assert!(!missing || env::var_os("XTASK_KERNEL_REQUIRED").is_none(), "{said}");
    if missing {
        // Not eprintln!, which the test harness hides from whoever runs it.
        writeln!(std::io::stderr(), "xtask/tests/notebook.rs, test non exécuté : {}", said.trim())?;
    }
    Ok(missing)
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/notebooks").join(name).with_extension("json")
}
