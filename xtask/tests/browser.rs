//! `cargo xtask browser` with planted notebooks: each fault that a person would see is named.
//!
//! Where JupyterLab, the kernel or a browser is missing these tests say so and pass, unless
//! `XTASK_BROWSER_REQUIRED` is set: `cargo xtask test` sets it where there is a Chromium.

use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Cell, and what has to be said about it. Those that show nothing bad come with their text.
const BAD_CELLS: &[(&str, &str)] = &[
    ("wrong-text", "Texte attendu, mais absent : total 42"),
    ("stderr", "planted on stderr"),
    ("compile-error", "mismatched types"),
    ("script", "Élément actif dans la sortie : <script"),
    ("handler", "Élément actif dans la sortie : <b onclick"),
    ("console", "Erreur dans la console du navigateur : planted complaint"),
    ("elsewhere", "Adresse hors de la machine : https://example.invalid/planted.png"),
    ("too-wide", "Sortie plus large que la page"),
    ("scrolled", "Sortie plus large que la page : div.planted"),
    ("hidden", "Texte attendu, mais absent : total 42"),
    ("fermé sans enregistrer", "planted.txt a été créé."),
    ("fermé sans enregistrer", "browser-bad.ipynb a changé sur le disque."),
    ("no-such-cell", "Cellule attendue, mais pas exécutée."),
];

#[test]
fn every_fault_on_a_page_is_named() -> Result<()> {
    if browser_is_missing()? {
        return Ok(());
    }
    let expected = ["good=total 42", "wrong-text=total 42", "hidden=total 42", "no-such-cell=total 42"];
    let (code, said) = browser("browser-bad", &expected, &[])?;
    assert_eq!(code, 1, "{said}");
    for (cell, fault) in BAD_CELLS {
        assert!(block(&said, cell).contains(fault), "{cell}: {fault}\n{said}");
    }
    assert!(!block(&said, "good").contains("ÉCHEC"), "{said}");
    Ok(())
}

#[test]
fn a_good_notebook_passes_and_is_left_alone() -> Result<()> {
    if browser_is_missing()? {
        return Ok(());
    }
    let before = fs::read(fixture("browser-good"))?;
    let (code, said) = browser("browser-good", &["value=42", "table=prix 4 562,88 $"], &[])?;
    assert!(code == 0 && said.ends_with("4 vérifications, 0 en échec\n"), "{said}");
    assert_eq!(fs::read(fixture("browser-good"))?, before);
    Ok(())
}

#[test]
fn a_cell_that_never_ends_and_a_dead_kernel_stop_the_run() -> Result<()> {
    if browser_is_missing()? {
        return Ok(());
    }
    for (name, timeout, reason) in [("endless", "5", "Timeout 5000ms"), ("kernel-dies", "60", "died")] {
        let (code, said) = browser(name, &[], &["--timeout", timeout])?;
        assert!(code == 1 && block(&said, "parcours arrêté").contains(reason), "{name}:\n{said}");
    }
    Ok(())
}

/// What is said about a cell: its line, and those below that belong to it.
fn block(said: &str, cell: &str) -> String {
    let mut lines = said.lines().skip_while(|line| !line.starts_with(&format!("  {cell} ")));
    let first = lines.next().unwrap_or_default();
    let rest = lines.take_while(|line| line.starts_with("    "));
    [first].into_iter().chain(rest).collect::<Vec<_>>().join("\n")
}

/// Exit code, and all that was said.
fn browser(name: &str, expected: &[&str], arguments: &[&str]) -> Result<(i32, String)> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.arg("browser").args(arguments).arg(fixture(name));
    for text in expected {
        command.args(["--expect", text]);
    }
    let output = command.output()?;
    let said = [output.stderr, output.stdout].concat();
    Ok((output.status.code().context("killed")?, String::from_utf8(said)?))
}

fn browser_is_missing() -> Result<bool> {
    // The program would install its driver; a test installs nothing.
    let driver = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.venv/browser-installed.txt");
    let reason = if driver.exists() { probe()? } else { Some("Playwright n'est pas installé.".to_owned()) };
    let Some(reason) = reason else { return Ok(false) };
    ensure!(env::var_os("XTASK_BROWSER_REQUIRED").is_none(), "{reason}");
    // Not eprintln!, which the test harness hides from whoever runs it.
    writeln!(std::io::stderr(), "xtask/tests/browser.rs, test non exécuté : {reason}")?;
    Ok(true)
}

/// What is missing, as the program says it before it starts anything.
fn probe() -> Result<Option<String>> {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask")).args(["browser", "no-such-file"]).output()?;
    let said = String::from_utf8(output.stderr)?;
    Ok((!said.contains("lecture impossible")).then(|| said.trim().to_owned()))
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/notebooks").join(name).with_extension("json")
}
