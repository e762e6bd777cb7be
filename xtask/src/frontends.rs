//! The project's notebooks through nbconvert and papermill, which people use without this program: from the
//! repository's folder, from the notebooks' folder, and by the document's own commands from a folder with
//! spaces and accents in its path. Both programs end with 0 where a cell's `?` has failed, so that what the
//! executed notebook holds is all that counts.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

use crate::notebook::{Cell, Expectation};
use crate::test::{NOTEBOOKS, Notebook};
use crate::{clean, python, workspace};

/// A folder as people have them.
const AWKWARD: &str = "Mes modèles été 2026/ça";

/// Stands in this document before the commands that are run here.
const DOCUMENT: &str = "docs/notebooks.md";
const MARK: &str = "<!-- commandes : nbconvert et papermill -->\n```console\n";

/// Notebooks that neither program refuses, and what they should show. The first never does, and its words on
/// stderr can come too late for the two programs; the second shows it, and stderr alone tells of the fault.
const PLANTED: [Notebook; 2] = [
    ("xtask/tests/notebooks/failed-question-mark.json", &[("parse", "never shown")]),
    ("xtask/tests/notebooks/stderr-then-result.json", &[("warned", "total 42")]),
];

pub fn check() -> Result<()> {
    let before = names()?;
    let folder = tempfile::tempdir()?;
    good_notebooks_pass(folder.path())?;
    planted_faults_are_found(folder.path())?;
    parameters_are_refused(folder.path())?;
    documented_commands_work(folder.path())?;
    a_notebook_alone_says_what_it_lacks(folder.path())?;
    if names()? != before {
        bail!("nbconvert ou papermill a laissé un fichier dans le projet");
    }
    clean::project_is_clean()
}

/// Each notebook by each program, in each of the two folders that a notebook is started from.
fn good_notebooks_pass(outputs: &Path) -> Result<()> {
    let root = workspace::root();
    let notebooks = root.join("notebooks");
    let [walkthrough, prices, simulation, exploration] = NOTEBOOKS else { bail!("quatre notebooks attendus") };
    at_once([&|| run(nbconvert(root, walkthrough.0, outputs, "root-nbconvert"), walkthrough), &|| {
        run(papermill(root, prices.0, outputs, "root-papermill").within("notebooks"), prices)
    }])?;
    at_once([&|| run(nbconvert(&notebooks, file_name(prices.0), outputs, "folder-nbconvert"), prices), &|| {
        run(papermill(&notebooks, file_name(walkthrough.0), outputs, "folder-papermill"), walkthrough)
    }])?;
    at_once([&|| run(nbconvert(root, simulation.0, outputs, "root-nbconvert"), simulation), &|| {
        run(papermill(&notebooks, file_name(simulation.0), outputs, "folder-papermill"), simulation)
    }])?;
    at_once([
        &|| run(nbconvert(&notebooks, file_name(exploration.0), outputs, "folder-nbconvert"), exploration),
        &|| run(papermill(root, exploration.0, outputs, "root-papermill").within("notebooks"), exploration),
    ])
}

fn planted_faults_are_found(outputs: &Path) -> Result<()> {
    PLANTED.iter().try_for_each(|planted| {
        at_once([
            &|| is_refused(nbconvert(workspace::root(), planted.0, outputs, "planted-nbconvert"), planted),
            &|| is_refused(papermill(workspace::root(), planted.0, outputs, "planted-papermill"), planted),
        ])
    })
}

/// The program itself finds nothing wrong; what it has written must not pass.
fn is_refused(mut attempt: Attempt, planted: &Notebook) -> Result<()> {
    workspace::output_of(&mut attempt.command)?;
    if judge(&attempt.executed, planted).is_ok() {
        bail!("{} : le défaut planté dans {} n'a pas été trouvé", attempt.executed.display(), planted.0);
    }
    Ok(())
}

/// papermill cannot write Rust: it says so before it executes anything.
fn parameters_are_refused(outputs: &Path) -> Result<()> {
    let mut attempt = papermill(workspace::root(), NOTEBOOKS[0].0, outputs, "parameters").within("notebooks");
    attempt.command.args(["-p", "batch", "4"]);
    match workspace::output_of(&mut attempt.command) {
        Ok(_) => bail!("papermill accepte des paramètres, contrairement à ce que dit {DOCUMENT}"),
        Err(error) if !format!("{error:#}").contains("No parameter translator") => Err(error),
        Err(_) if attempt.executed.exists() => bail!("papermill a écrit un notebook malgré les paramètres refusés"),
        Err(_) => Ok(()),
    }
}

/// In a copy of the project: what these commands write lies beside the notebooks.
fn documented_commands_work(folder: &Path) -> Result<()> {
    let copy = folder.join(AWKWARD);
    copy_project(&copy)?;
    let document = fs::read_to_string(copy.join(DOCUMENT))?;
    let commands = document.split_once(MARK).and_then(|(_, rest)| rest.split_once("```"));
    let commands = commands.with_context(|| format!("{DOCUMENT} sans commandes"))?.0;
    let mut shell = Command::new("sh");
    // Installed already, and by the same pins: pip has nothing to ask a network for.
    shell
        .args(["-ec", commands])
        .current_dir(&copy)
        .env("CUDA_VISIBLE_DEVICES", "")
        .env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
    workspace::output_of(&mut shell)?;
    for (written, shown) in ["mon-parcours.ipynb", "mon-forfaits.ipynb"].iter().zip(NOTEBOOKS) {
        judge(&copy.join("notebooks").join(written), shown)?;
    }
    Ok(())
}

/// What a cell tells somebody who has downloaded the notebook and nothing else.
const TOLD: &str = "prerequisites";

/// Alone in a folder, the walk-through fails in the words that it quotes; with the line that it gives, it passes.
fn a_notebook_alone_says_what_it_lacks(folder: &Path) -> Result<()> {
    let [walkthrough, ..] = NOTEBOOKS else { bail!("un notebook attendu") };
    let text = fs::read_to_string(workspace::root().join(walkthrough.0))?;
    let notebook: Value = serde_json::from_str(&text)?;
    let told = source(&notebook, TOLD)?;
    let line = told.lines().find_map(|line| line.strip_prefix("`:dep ")).context("pas de ligne :dep")?;
    let line = line.trim_end_matches('`').replace("/chemin/du/projet", &workspace::root().to_string_lossy());

    let alone = folder.join("seul");
    fs::create_dir_all(&alone)?;
    fs::write(alone.join("lone.ipynb"), &text)?;
    fs::write(alone.join("mended.ipynb"), with_dependency(&notebook, &line).to_string())?;
    at_once([
        &|| {
            let mut attempt = nbconvert(&alone, "lone.ipynb", folder, "lone-nbconvert");
            workspace::output_of(attempt.command.arg("--allow-errors")).map(drop)
        },
        &|| run(nbconvert(&alone, "mended.ipynb", folder, "mended-nbconvert"), walkthrough),
    ])?;
    let [failed, passed] = ["lone-nbconvert.ipynb", "mended-nbconvert.ipynb"].map(|name| folder.join(name));
    if fails_as_told(&passed, &told).is_ok() || fails_as_told(&failed, "").is_ok() {
        bail!("un notebook qui n'échoue pas comme il le dit n'a pas été trouvé");
    }
    fails_as_told(&failed, &told)
}

fn fails_as_told(executed: &Path, told: &str) -> Result<()> {
    let executed: Value = serde_json::from_str(&fs::read_to_string(executed)?)?;
    let said = faults(&executed, &[]).join("\n");
    for words in ["failed to get `iteragpu-lab`", "failed to read", "cannot find function"] {
        if !told.contains(words) || !said.contains(words) {
            bail!("« {words} » manque dans la cellule {TOLD} ou dans ce que montre le notebook seul :\n{said}");
        }
    }
    Ok(())
}

/// The text of a cell.
fn source(notebook: &Value, id: &str) -> Result<String> {
    let cells = notebook["cells"].as_array().into_iter().flatten();
    let cell = cells.into_iter().find(|cell| cell["id"] == id).with_context(|| format!("pas de cellule {id}"))?;
    Ok(cell["source"].as_array().into_iter().flatten().filter_map(Value::as_str).collect())
}

/// The notebook with another line in the place of each that loads the library.
fn with_dependency(notebook: &Value, line: &str) -> Value {
    let mut changed = notebook.clone();
    let cells = changed["cells"].as_array_mut().into_iter().flatten();
    let code = cells.filter(|cell| cell["cell_type"] == "code");
    for text in code.flat_map(|cell| cell["source"].as_array_mut().into_iter().flatten()) {
        if text.as_str().is_some_and(|text| text.starts_with(":dep ")) {
            *text = Value::String(format!(":dep {line}\n"));
        }
    }
    changed
}

/// All but what is built, installed or hidden, and the installed Python by a link.
fn copy_project(copy: &Path) -> Result<()> {
    fs::create_dir_all(copy)?;
    for entry in fs::read_dir(workspace::root())? {
        let entry = entry?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") && entry.path() != workspace::root().join("target") {
            workspace::output_of(Command::new("cp").arg("--recursive").arg(entry.path()).arg(copy))?;
        }
    }
    Ok(symlink(python::venv(), copy.join(".venv"))?)
}

/// A program about to execute a notebook, and the file that it will write.
struct Attempt {
    command: Command,
    executed: PathBuf,
}

impl Attempt {
    /// papermill starts the kernel where it was started itself, unless told otherwise.
    fn within(mut self, folder: &str) -> Self {
        self.command.args(["--cwd", folder]);
        self
    }
}

fn nbconvert(folder: &Path, notebook: &str, outputs: &Path, name: &str) -> Attempt {
    let mut command = module(folder, "nbconvert");
    command.args(["--to", "notebook", "--execute", "--output", name, "--output-dir"]).arg(outputs).arg(notebook);
    Attempt { command, executed: outputs.join(name).with_extension("ipynb") }
}

fn papermill(folder: &Path, notebook: &str, outputs: &Path, name: &str) -> Attempt {
    let mut command = module(folder, "papermill");
    let executed = outputs.join(name).with_extension("ipynb");
    command.arg("--no-progress-bar").arg(notebook).arg(&executed);
    Attempt { command, executed }
}

/// As on a machine without GPU, also where there is one.
fn module(folder: &Path, name: &str) -> Command {
    let mut command = Command::new(python::interpreter());
    command.args(["-m", name]).current_dir(folder).env("CUDA_VISIBLE_DEVICES", "");
    command
}

fn run(mut attempt: Attempt, shown: &Notebook) -> Result<()> {
    workspace::output_of(&mut attempt.command)?;
    judge(&attempt.executed, shown)
}

/// Every code cell was executed, none has failed, and each shows what it should.
fn judge(executed: &Path, (_, shown): &Notebook) -> Result<()> {
    let name = executed.file_stem().unwrap_or_default().to_string_lossy();
    let notebook: Value = serde_json::from_str(&fs::read_to_string(executed)?)?;
    let faults = faults(&notebook, shown);
    if !faults.is_empty() {
        bail!("{name} : {}", faults.join("\n"));
    }
    println!("{name} : {} textes attendus, tous montrés", shown.len());
    Ok(())
}

fn faults(notebook: &Value, shown: &[(&str, &str)]) -> Vec<String> {
    let expectation = |(cell, text): &(&str, &str)| Expectation { cell: (*cell).to_owned(), text: (*text).to_owned() };
    let expectations: Vec<Expectation> = shown.iter().map(expectation).collect();
    let cells = notebook["cells"].as_array().into_iter().flatten().filter(|cell| cell["cell_type"] == "code");
    let (mut faults, mut executed) = (Vec::new(), BTreeSet::new());
    for cell in cells.filter(|cell| !cell["execution_count"].is_null()).map(Cell::of_executed) {
        faults.extend(cell.faults(&expectations).into_iter().map(|fault| format!("{} : {fault}", cell.id)));
        executed.insert(cell.id);
    }
    let unmet = expectations.iter().filter(|expected| !executed.contains(&expected.cell));
    faults.extend(unmet.map(|expected| format!("{} : cellule attendue, mais pas exécutée", expected.cell)));
    faults
}

/// Both at the same time: two cores, and two kernels that must not disturb each other.
fn at_once(tasks: [&(dyn Fn() -> Result<()> + Sync); 2]) -> Result<()> {
    thread::scope(|scope| {
        let started = tasks.map(|task| scope.spawn(task));
        started.into_iter().try_for_each(|task| task.join().map_err(|_| anyhow!("une vérification s'est arrêtée"))?)
    })
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// What lies in the repository's folder and beside the notebooks.
fn names() -> Result<BTreeSet<OsString>> {
    let mut names = BTreeSet::new();
    for folder in [workspace::root().to_owned(), workspace::root().join("notebooks")] {
        for entry in fs::read_dir(folder)? {
            names.insert(entry?.path().into_os_string());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn notebook(outputs: &Value) -> Value {
        json!({ "cells": [
            { "cell_type": "markdown", "id": "title", "source": "" },
            { "cell_type": "code", "id": "a", "metadata": {}, "execution_count": 1, "outputs": outputs },
            { "cell_type": "code", "id": "b", "metadata": {}, "execution_count": null, "outputs": [] },
        ] })
    }

    #[test]
    fn a_text_is_found_in_a_stream_and_in_any_rich_result() {
        let stream = json!([{ "output_type": "stream", "name": "stdout", "text": ["total\n", " 42"] }]);
        let rich =
            json!([{ "output_type": "execute_result", "data": { "text/html": ["<b>", "42</b>"], "text/plain": "" } }]);
        for outputs in [stream, rich] {
            assert!(faults(&notebook(&outputs), &[("a", "42")]).is_empty());
            assert_eq!(faults(&notebook(&outputs), &[("a", "43"), ("b", "42"), ("c", "42")]).len(), 3);
        }
    }

    #[test]
    fn stderr_and_an_error_are_faults() {
        for output in [
            json!({ "output_type": "stream", "name": "stderr", "text": "invalid digit" }),
            json!({ "output_type": "error", "traceback": ["mismatched types"] }),
        ] {
            assert_eq!(faults(&notebook(&json!([output])), &[]).len(), 1);
        }
    }
}
