//! `cargo xtask notebook`: executes a notebook in its real kernel and judges every cell.

use std::fs;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use iteragpu_lab::NewFile;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::python::{self, JUPYTER};
use crate::{UsageError, clean, kernel_cache, workspace};

const EXECUTOR: &str = include_str!("notebook.py");

/// A generous limit: the cold first cell of a notebook compiles the whole library.
const TIMEOUT_SECONDS: u64 = 600;

/// The options that say how to execute.
const EXECUTION: [&str; 5] = ["tags", "skip_tags", "output", "timeout", "expect"];

#[derive(Args)]
pub struct NotebookArgs {
    /// Le notebook à exécuter ; avec --check ou --clean, un ou plusieurs, ou rien pour tous ceux du projet
    #[arg(value_name = "FICHIER", required_unless_present_any = ["check", "clean", "staged"])]
    files: Vec<PathBuf>,
    /// N'exécute rien : nomme les sorties, compteurs, ids, étiquettes et métadonnées qui sont de trop ou qui manquent
    #[arg(long, conflicts_with_all = EXECUTION)]
    check: bool,
    /// N'exécute rien : retire du fichier les sorties, les compteurs et les métadonnées étrangères, et rien d'autre
    #[arg(long, conflicts_with_all = EXECUTION, conflicts_with = "check")]
    clean: bool,
    /// Avec --check : regarde ce que le prochain commit git contiendra, pas les fichiers
    #[arg(long, requires = "check", conflicts_with_all = ["files", "clean"])]
    staged: bool,
    /// N'exécute que les cellules de code qui portent au moins une de ces étiquettes
    #[arg(long, value_name = "ÉTIQUETTE", value_delimiter = ',')]
    tags: Vec<String>,
    /// N'exécute pas les cellules qui portent l'une de ces étiquettes
    #[arg(long, value_name = "ÉTIQUETTE", value_delimiter = ',')]
    skip_tags: Vec<String>,
    /// Écrit le notebook exécuté, avec ses sorties, dans un nouveau fichier
    #[arg(long, value_name = "FICHIER")]
    output: Option<PathBuf>,
    /// Durée maximale d'une cellule, en secondes (600 par défaut)
    #[arg(long, value_name = "SECONDES", default_value_t = TIMEOUT_SECONDS, hide_default_value = true,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
    /// Échoue si la cellule ne montre pas ce texte ; peut être répété
    #[arg(long, value_name = "CELLULE=TEXTE", value_parser = Expectation::parse)]
    expect: Vec<Expectation>,
}

impl NotebookArgs {
    /// Every cell of `file` but those with a certain tag.
    pub fn without_cells_tagged(tag: &str, file: PathBuf) -> Self {
        Self {
            files: vec![file],
            check: false,
            clean: false,
            staged: false,
            tags: Vec::new(),
            skip_tags: vec![tag.to_owned()],
            output: None,
            timeout: TIMEOUT_SECONDS,
            expect: Vec::new(),
        }
    }
}

/// A text that a cell has to show.
#[derive(Clone)]
pub struct Expectation {
    pub cell: String,
    pub text: String,
}

impl Expectation {
    pub fn parse(argument: &str) -> Result<Self, String> {
        match argument.split_once('=') {
            Some((cell, text)) if !cell.is_empty() && !text.is_empty() => {
                Ok(Self { cell: cell.to_owned(), text: text.to_owned() })
            }
            _ => Err("CELLULE=TEXTE".to_owned()),
        }
    }
}

/// What the executor reports.
#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event {
    Invalid {
        reason: String,
    },
    NoKernel {
        name: String,
    },
    Cell(Cell),
    /// `log` is what the kernel itself wrote meanwhile.
    Stopped {
        cell: Option<String>,
        reason: Stop,
        log: String,
    },
    Finished {
        notebook: String,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Stop {
    Timeout,
    Died,
}

/// One executed cell.
#[derive(Default, Deserialize)]
pub struct Cell {
    pub id: String,
    seconds: f64,
    /// The notebook's own tag `raises-exception`: an error is what the cell wants to show.
    may_raise: bool,
    stdout: String,
    stderr: String,
    errors: Vec<String>,
    results: Vec<String>,
}

pub fn run(arguments: &NotebookArgs) -> Result<ExitCode> {
    match &arguments.files[..] {
        _ if arguments.staged => clean::check_staged(),
        files if arguments.check => clean::check(files),
        files if arguments.clean => clean::clean(files),
        [file] => execute(file, arguments),
        _ => Err(UsageError("Un seul notebook s'exécute à la fois.".to_owned()).into()),
    }
}

fn execute(path: &Path, arguments: &NotebookArgs) -> Result<ExitCode> {
    let file = path.display();
    let unreadable = |error| UsageError(format!("{file} : lecture impossible ({error})."));
    let source = fs::read_to_string(path).map_err(unreadable)?;
    let output = arguments.output.as_deref().map(new_file).transpose()?;
    let mut run = Run { file: path, expectations: &arguments.expect, executed: Vec::new(), failed: 0 };
    // Before, for what kernels left that others started; after, for what this one adds.
    kernel_cache::mend();
    let notebook = run.execute(arguments, &source)?;
    kernel_cache::mend();
    run.check_unmet();
    if fs::read_to_string(path).ok().as_ref() != Some(&source) {
        bail!("{file} a changé pendant l'exécution : une cellule y a écrit.");
    }
    if let Some(output) = output {
        output.write(notebook.as_bytes())?;
    }
    run.verdict(arguments)
}

/// A run in progress.
struct Run<'a> {
    file: &'a Path,
    expectations: &'a [Expectation],
    executed: Vec<String>,
    failed: usize,
}

impl Run<'_> {
    /// The executed notebook, after each cell has been judged and shown.
    fn execute(&mut self, arguments: &NotebookArgs, source: &str) -> Result<String> {
        let folder = fs::canonicalize(self.file)?.parent().map(Path::to_owned);
        let request = json!({
            "text": source, "folder": folder, "timeout": arguments.timeout,
            "tags": arguments.tags, "skip_tags": arguments.skip_tags,
        });
        let mut notebook = None;
        for_each_event(&request, None, |event| {
            match event {
                Event::Invalid { reason } => {
                    let file = self.file.display();
                    let message = format!("{file} n'est pas un notebook nbformat 4.5 valide : {reason}");
                    return Err(UsageError(message).into());
                }
                Event::NoKernel { name } => return Err(no_kernel(&name)),
                Event::Cell(cell) => self.judge(cell),
                Event::Stopped { cell, reason, log } => {
                    self.stop(cell, &reason, arguments.timeout);
                    print!("{}", indented(&log));
                }
                Event::Finished { notebook: executed } => notebook = Some(executed),
            }
            Ok(())
        })?;
        notebook.context("l'exécuteur n'a pas rendu le notebook")
    }

    fn judge(&mut self, cell: Cell) {
        let faults = cell.faults(self.expectations);
        let shown = if faults.is_empty() { cell.first_line() } else { "ÉCHEC" };
        let shown: String = console::strip_ansi_codes(shown).chars().filter(|c| !c.is_control()).collect();
        let line = format!("{:<28} {:>6.1} s  {shown}", cell.id, cell.seconds);
        println!("{}", cut(&line));
        for fault in &faults {
            print!("{}", indented(&console::strip_ansi_codes(fault)));
        }
        self.failed += usize::from(!faults.is_empty());
        self.executed.push(cell.id);
    }

    fn stop(&mut self, cell: Option<String>, reason: &Stop, timeout: u64) {
        let cell = cell.unwrap_or_else(|| "démarrage".to_owned());
        match reason {
            Stop::Timeout => println!("{cell} : pas fini après {timeout} s, exécution arrêtée."),
            Stop::Died => println!("{cell} : le noyau s'est arrêté de lui-même."),
        }
        self.failed += 1;
        self.executed.push(cell);
    }

    /// A text expected of a cell that never ran was not seen either.
    fn check_unmet(&mut self) {
        for expectation in self.expectations.iter().filter(|expected| !self.executed.contains(&expected.cell)) {
            println!("{} : cellule attendue, mais pas exécutée.", expectation.cell);
            self.failed += 1;
        }
    }

    fn verdict(&self, arguments: &NotebookArgs) -> Result<ExitCode> {
        let executed = self.executed.len();
        if executed == 0 {
            let tags = arguments.tags.join(", ");
            let which = if tags.is_empty() { String::new() } else { format!(" avec l'étiquette {tags}") };
            bail!("{} : aucune cellule de code{which}, rien n'a été exécuté.", self.file.display());
        }
        let plural = if executed > 1 { "s" } else { "" };
        println!("{executed} cellule{plural} exécutée{plural}, {} en échec", self.failed);
        Ok(if self.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl Cell {
    /// A code cell of a notebook that another program has executed.
    pub fn of_executed(cell: &Value) -> Self {
        let mut executed = Self {
            id: text_of(&cell["id"]),
            may_raise: array_of(&cell["metadata"]["tags"]).contains(&json!("raises-exception")),
            ..Self::default()
        };
        for output in array_of(&cell["outputs"]) {
            match (&text_of(&output["output_type"])[..], &text_of(&output["name"])[..]) {
                ("stream", "stderr") => executed.stderr += &text_of(&output["text"]),
                ("stream", _) => executed.stdout += &text_of(&output["text"]),
                ("error", _) => executed.errors.push(text_of(&output["traceback"])),
                _ => executed
                    .results
                    .extend(output["data"].as_object().into_iter().flatten().map(|(_, data)| text_of(data))),
            }
        }
        executed
    }

    /// Everything that makes this cell a failure. In evcxr a failed `?`, a panic and a failed assert are
    /// answered with "ok": only their text on stderr tells.
    pub fn faults(&self, expectations: &[Expectation]) -> Vec<String> {
        let mut faults = Vec::new();
        if self.may_raise && self.errors.is_empty() && self.stderr.is_empty() {
            faults.push("Cette cellule porte l'étiquette raises-exception, et rien n'a échoué.".to_owned());
        }
        if !self.may_raise {
            faults.extend(self.errors.iter().cloned());
            faults.extend((!self.stderr.is_empty()).then(|| self.stderr.clone()));
        }
        for expectation in expectations.iter().filter(|expectation| expectation.cell == self.id) {
            if !self.shows(&expectation.text) {
                faults.push(format!("Texte attendu, mais absent : {}", expectation.text));
            }
        }
        faults
    }

    fn shows(&self, text: &str) -> bool {
        self.stdout.contains(text) || self.results.iter().any(|result| result.contains(text))
    }

    fn first_line(&self) -> &str {
        let texts = [self.stdout.as_str()].into_iter().chain(self.results.iter().map(String::as_str));
        texts.flat_map(str::lines).find(|line| !line.trim().is_empty()).unwrap_or_default()
    }
}

/// The seconds that each code cell takes in a kernel of its own, which keeps its compile cache below
/// `cache`. A cell that fails is an error.
pub fn cell_seconds(source: &str, folder: &Path, cache: &Path) -> Result<Vec<(String, f64)>> {
    let request = json!({
        "text": source, "folder": folder, "timeout": TIMEOUT_SECONDS, "tags": [], "skip_tags": ["optional-export"],
    });
    let mut seconds = Vec::new();
    for_each_event(&request, Some(cache), |event| {
        match event {
            Event::Cell(cell) => match cell.faults(&[]).first() {
                Some(fault) => bail!("cellule {} en échec : {fault}", cell.id),
                None => seconds.push((cell.id, cell.seconds)),
            },
            Event::Invalid { reason } => bail!("notebook refusé : {reason}"),
            Event::NoKernel { name } => return Err(no_kernel(&name)),
            Event::Stopped { log, .. } => bail!("exécution interrompue : {log}"),
            Event::Finished { .. } => {}
        }
        Ok(())
    })?;
    Ok(seconds)
}

/// A text as notebooks store it: whole, or in lines.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(lines) => lines.iter().map(text_of).collect(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn array_of(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn no_kernel(name: &str) -> anyhow::Error {
    anyhow!("Le noyau « {name} » n'est pas installé : lancez « cargo xtask lab --no-open ».")
}

/// Runs the executor to its end, unless an event is answered with an error.
fn for_each_event(request: &Value, cache: Option<&Path>, mut answer: impl FnMut(Event) -> Result<()>) -> Result<()> {
    let mut executor = start_executor(request, cache)?;
    let events = executor.stdout.take().context("l'exécuteur n'a pas de sortie")?;
    for line in BufReader::new(events).lines() {
        answer(serde_json::from_str(&line?).context("l'exécuteur a répondu autre chose que prévu")?)?;
    }
    drop(executor.stdin.take());
    let status = executor.wait()?;
    if !status.success() {
        bail!("l'exécuteur s'est arrêté avant la fin ({status})");
    }
    Ok(())
}

fn start_executor(request: &Value, cache: Option<&Path>) -> Result<std::process::Child> {
    let python = python::interpreter();
    if !JUPYTER.installed_for(&python) {
        bail!("Jupyter n'est pas installé dans .venv : lancez « cargo xtask lab --no-open ».");
    }
    let mut command = Command::new(python);
    command.args(["-c", EXECUTOR]).envs(workspace::moved_worker());
    command.envs(cache.map(|folder| (kernel_cache::PARENT, folder)));
    let mut executor = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    // Left open: when this program dies, it closes, and the executor stops its kernel.
    let input = executor.stdin.as_mut().context("l'exécuteur n'a pas d'entrée")?;
    input.write_all(format!("{request}\n").as_bytes())?;
    Ok(executor)
}

/// Checks the name before anything runs; the file appears complete or not at all, and never in the
/// place of another.
fn new_file(path: &Path) -> Result<NewFile> {
    Ok(NewFile::check(path).map_err(|error| UsageError(error.to_string()))?)
}

/// At most one line of the terminal; whole lines where there is none.
fn cut(line: &str) -> std::borrow::Cow<'_, str> {
    let terminal = console::Term::stdout();
    if !io::stdout().is_terminal() {
        return line.into();
    }
    console::truncate_str(line, terminal.size().1.into(), "…")
}

pub fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell() -> Cell {
        Cell {
            id: "a".to_owned(),
            seconds: 0.1,
            may_raise: false,
            stdout: "\n13.0385\n".to_owned(),
            stderr: String::new(),
            errors: Vec::new(),
            results: vec!["<table>".to_owned()],
        }
    }

    fn expect(argument: &str) -> Vec<Expectation> {
        Expectation::parse(argument).into_iter().collect()
    }

    #[test]
    fn a_quiet_cell_is_good() {
        assert!(cell().faults(&[]).is_empty());
        assert_eq!(cell().first_line(), "13.0385");
    }

    #[test]
    fn stderr_or_an_error_is_a_fault_unless_the_notebook_wants_it() {
        let stderr = Cell { stderr: "thread panicked".to_owned(), ..cell() };
        let error = Cell { errors: vec!["mismatched types".to_owned()], ..cell() };
        for bad in [stderr, error] {
            assert_eq!(bad.faults(&[]).len(), 1);
            assert!(Cell { may_raise: true, ..bad }.faults(&[]).is_empty());
        }
        assert_eq!(Cell { may_raise: true, ..cell() }.faults(&[]).len(), 1);
    }

    #[test]
    fn expected_text_is_looked_for_in_the_named_cell_only() {
        for met in ["a=13.0385", "a=<table>", "b=elsewhere"] {
            assert!(cell().faults(&expect(met)).is_empty(), "{met}");
        }
        assert_eq!(cell().faults(&expect("a=13.04")).len(), 1);
        for malformed in ["", "a", "=text", "a="] {
            assert!(Expectation::parse(malformed).is_err(), "{malformed:?}");
        }
        assert!(expect("a=b=c").iter().all(|expectation| expectation.text == "b=c"));
    }

    #[test]
    fn an_existing_file_is_kept() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("out.ipynb");
        let output = new_file(&file)?;
        output.write(b"first")?;
        assert!(new_file(&file).is_err());
        assert!(output.write(b"second").is_err());
        assert_eq!(fs::read_to_string(&file)?, "first");
        assert_eq!(fs::read_dir(folder.path())?.count(), 1);
        Ok(())
    }
}
