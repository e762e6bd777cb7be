//! `cargo xtask notebook --check` and `--clean`: a notebook of this project is shipped without outputs
//! and without what programs leave in it.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use iteragpu_lab::cli::one_line;
use iteragpu_lab::temporary::{NotNamed, Temporary};

use crate::inspect::{Fault, Inspection, inspect};
use crate::{UsageError, git_hook, workspace};

const FOLDER: &str = "notebooks";
/// How the documents have people name their own executed copies; git ignores them too.
const PERSONAL: &str = "mon-";

/// As long as the names of files get in a line.
const SHOWN_NAME: usize = 200;

/// What a run found at worst, by its exit code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Clean = 0,
    Faulty = 1,
    Unreadable = 2,
}

impl From<Verdict> for ExitCode {
    fn from(verdict: Verdict) -> Self {
        Self::from(verdict as u8)
    }
}

/// `--check`: names every fault of these files, or of the project's notebooks when there are none.
pub fn check(files: &[PathBuf]) -> Result<ExitCode> {
    let mut report = Report::default();
    for notebook in notebooks(files)? {
        report.check(&notebook.name, notebook.read());
    }
    Ok(report.conclude("« cargo xtask notebook --clean » retire ce qui est marqué d'un *."))
}

/// `--check --staged`: the same of what the next commit brings, whatever the files have become since.
pub fn check_staged() -> Result<ExitCode> {
    let mut report = Report::default();
    let staged = git_hook::staged_notebooks()?;
    if staged.is_empty() {
        println!("Aucun notebook dans le prochain commit.");
    }
    for (name, contents) in staged {
        report.check(&name, utf8(contents));
    }
    Ok(report.conclude(
        "« cargo xtask notebook --clean » retire du fichier ce qui est marqué d'un * ; « git add » le reprend ensuite.",
    ))
}

/// `--clean`: takes away what can be, and names what remains.
pub fn clean(files: &[PathBuf]) -> Result<ExitCode> {
    let mut report = Report::default();
    for notebook in notebooks(files)? {
        report.clean(&notebook);
    }
    Ok(report.worst())
}

/// What has been said so far.
#[derive(Default)]
struct Report {
    verdicts: Vec<Verdict>,
    removable: bool,
}

impl Report {
    fn check(&mut self, name: &str, document: Result<String, String>) {
        let name = one_line(name, SHOWN_NAME);
        match document.and_then(|document| inspect(&document)) {
            Ok(Inspection { faults, .. }) if faults.is_empty() => {
                println!("{name} : rien à signaler");
                self.verdicts.push(Verdict::Clean);
            }
            Ok(Inspection { faults, .. }) => {
                println!("{name} : {}", counted(faults.len()));
                self.list(&faults);
            }
            Err(reason) => self.unreadable(&name, &reason),
        }
    }

    fn clean(&mut self, notebook: &Notebook) {
        let name = one_line(&notebook.name, SHOWN_NAME);
        let document = match notebook.read() {
            Ok(document) => document,
            Err(reason) => return self.unreadable(&name, &reason),
        };
        // What was taken away is looked at again: nothing else may have changed its meaning.
        let inspected = inspect(&document).and_then(|found| Ok((inspect(&found.cleaned)?, found)));
        let (left, found) = match inspected {
            Ok(inspected) => inspected,
            Err(reason) => return self.unreadable(&name, &reason),
        };
        if found.cleaned != document
            && let Err(error) = replace(&notebook.path, &document, &found.cleaned)
        {
            let said = match error.downcast_ref() {
                Some(failed @ NotNamed::NotSynced(_)) => failed.to_string(),
                _ => format!("inchangé, écriture impossible ({error:#})"),
            };
            println!("{name} : {}", one_line(&said, SHOWN_NAME));
            return self.verdicts.push(Verdict::Faulty);
        }
        let removed = found.faults.iter().filter(|fault| fault.removable).count();
        let done = if removed == 0 { "rien à retirer".to_owned() } else { format!("{} en moins", counted(removed)) };
        if left.faults.is_empty() {
            println!("{name} : {done}");
            return self.verdicts.push(Verdict::Clean);
        }
        println!("{name} : {done} ; à corriger à la main, {} :", counted(left.faults.len()));
        self.list(&left.faults);
    }

    fn list(&mut self, faults: &[Fault]) {
        for fault in faults {
            println!("  {} {fault}", if fault.removable { '*' } else { ' ' });
        }
        self.removable |= faults.iter().any(|fault| fault.removable);
        self.verdicts.push(Verdict::Faulty);
    }

    fn unreadable(&mut self, name: &str, reason: &str) {
        println!("{name} : illisible, {reason}");
        self.verdicts.push(Verdict::Unreadable);
    }

    fn conclude(&self, remedy: &str) -> ExitCode {
        if self.removable {
            println!("{remedy}");
        }
        self.worst()
    }

    fn worst(&self) -> ExitCode {
        self.verdicts.iter().copied().max().unwrap_or(Verdict::Clean).into()
    }
}

fn counted(faults: usize) -> String {
    format!("{faults} défaut{}", if faults > 1 { "s" } else { "" })
}

/// A file, and how it is called.
struct Notebook {
    name: String,
    path: PathBuf,
}

impl Notebook {
    fn read(&self) -> Result<String, String> {
        let unreadable = |error| format!("lecture impossible ({error})");
        // Reading a pipe or a terminal would wait for ever.
        if !fs::metadata(&self.path).map_err(unreadable)?.is_file() {
            return Err("ce n'est pas un fichier ordinaire".to_owned());
        }
        utf8(fs::read(&self.path).map_err(unreadable)?)
    }
}

fn utf8(contents: Vec<u8>) -> Result<String, String> {
    String::from_utf8(contents).map_err(|_| "ce n'est pas un texte UTF-8".to_owned())
}

fn notebooks(files: &[PathBuf]) -> Result<Vec<Notebook>> {
    if files.is_empty() {
        return project_notebooks();
    }
    let named = |file: &PathBuf| Notebook { name: file.display().to_string(), path: file.clone() };
    Ok(files.iter().map(named).collect())
}

/// The files of the notebooks that the project ships.
pub fn project_files() -> Result<Vec<PathBuf>> {
    Ok(project_notebooks()?.into_iter().map(|notebook| notebook.path).collect())
}

/// Every notebook of the project but people's own copies, whose outputs are wanted.
fn project_notebooks() -> Result<Vec<Notebook>> {
    let folder = workspace::root().join(FOLDER);
    let mut notebooks = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("impossible de lire {}", folder.display()))? {
        let name = entry?.file_name();
        if Path::new(&name).extension() == Some(OsStr::new("ipynb"))
            && !name.as_encoded_bytes().starts_with(PERSONAL.as_bytes())
        {
            let shown = Path::new(FOLDER).join(&name).display().to_string();
            notebooks.push(Notebook { name: shown, path: folder.join(&name) });
        }
    }
    if notebooks.is_empty() {
        // A check of nothing is not a good one.
        return Err(UsageError(format!("Aucun notebook dans {}.", folder.display())).into());
    }
    notebooks.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(notebooks)
}

/// Puts `new` in the place of the file's `old` text, complete or not at all. A link stays: the file that it
/// leads to is replaced, in its own folder.
fn replace(file: &Path, old: &str, new: &str) -> Result<()> {
    let file = fs::canonicalize(file)?;
    // A protected file is not replaced either. Nothing is written through this.
    let current = OpenOptions::new().write(true).open(&file)?;
    let mut copy = Temporary::beside(&file)?;
    copy.write_all(new.as_bytes())?;
    copy.keep_owner_and_permissions(&current)?;
    ensure!(fs::read(&file)? == old.as_bytes(), "le fichier a changé entre-temps");
    Ok(copy.replace(&file)?)
}

/// A step of `cargo xtask test`.
pub fn project_is_clean() -> Result<()> {
    if check(&[])? != ExitCode::SUCCESS {
        bail!("un notebook ne serait pas livré propre");
    }
    Ok(())
}
