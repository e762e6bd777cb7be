//! `cargo xtask test`: every check, on a fresh clone, in one go.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;

use crate::lab::WALKTHROUGH;
use crate::python::{self, FRONTENDS, Install, JUPYTER, PLAYWRIGHT, Pins};
use crate::{browser, clean, fleet, frontends, fuzz, kernel, prerequisites, progress, signals, worker, workspace};

/// A notebook, and what it shows.
pub type Notebook = (&'static str, Shown);

/// Texts that cells of a notebook have to show where there is no GPU.
pub type Shown = &'static [(&'static str, &'static str)];

pub const NOTEBOOKS: &[Notebook] = &[
    (WALKTHROUGH, WALKTHROUGH_SHOWS),
    (FORFAITS, FORFAITS_SHOW),
    (SIMULATION, SIMULATION_SHOWS),
    (EXPLORATION, EXPLORATION_SHOWS),
];

pub const WALKTHROUGH_SHOWS: Shown = &[
    ("arithmetic", "17.03851604461669921875"),
    ("environment", "\"gpu_available\": false"),
    ("environment", "\"reason\": \"Aucune mesure : "),
    NOT_MEASURED,
    NOT_SAVED,
];

pub const NOT_MEASURED: (&str, &str) = ("measurement", "Rien n'a été mesuré.");

pub const NOT_SAVED: (&str, &str) = ("export", "Aucun fichier n'a été créé. Rien à enregistrer. Aucune mesure : ");

pub const FORFAITS: &str = "notebooks/forfaits.ipynb";

pub const FORFAITS_SHOW: Shown = &[
    ("price-list", "Le moins cher par GPU et par jour : v100"),
    ("quote", "\"total_price_cents\": 456288"),
    ("results", "\"accepted_units\": 1313"),
    // 456288 / 1313, computed with Python's decimal at 28 digits.
    ("cost", "347.5156130997715156130997715"),
];

pub const SIMULATION: &str = "notebooks/simulation.ipynb";

pub const SIMULATION_SHOWS: Shown = &[
    // As measured on an H200: docs/mesures/h200-golden.json.
    ("simulation", "\"peak_allocated_bytes\": 34649088"),
    ("memory", "La réserve simulée"),
    ("comparison", "Rien n'a été comparé. Aucune mesure : "),
];

pub const EXPLORATION: &str = "notebooks/explorer.ipynb";

pub const EXPLORATION_SHOWS: Shown = &[
    ("plan", "Plan : 4 points, 3 essais de chacun, 12 mesures"),
    ("exploration", "Rien n'a été mesuré."),
    // A person may have a file of that name: it is named, whether it can be read or not.
    ("charts", "exploration.jsonl"),
];

pub fn run() -> Result<ExitCode> {
    let mut steps = Steps::default();
    let outcome = every_check(&mut steps);
    if let Err(error) = &outcome {
        println!("ÉCHEC de l'étape « {} » : {error:#}", steps.current);
    }
    // Last, and in words that programs look for.
    println!("{} passed, {} failed, {} skipped", steps.passed, u8::from(outcome.is_err()), steps.skipped);
    Ok(if outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn every_check(steps: &mut Steps) -> Result<()> {
    let chromium = browser::chromium();
    let (kernel, packages, tools) = steps.run("prérequis, puis noyau et paquets Python en arrière-plan", || {
        // Without a browser its driver is of no use.
        start_installs(if chromium.is_some() { &[JUPYTER, FRONTENDS, PLAYWRIGHT] } else { &[JUPYTER, FRONTENDS] })
    })?;
    steps.run("notebooks sans sorties", clean::project_is_clean)?;
    steps.cargo("format", &["fmt", "--all", "--check"])?;
    let clippy = ["clippy", "--workspace", "--exclude", WORKER, "--all-targets", "--locked", "--", "-D", "warnings"];
    steps.cargo("clippy", &clippy)?;
    steps.run("clippy de la bibliothèque des notebooks", || {
        NOTEBOOK_FEATURES.into_iter().try_for_each(lint_for_notebooks)
    })?;
    // This program's own tests come last: they need the kernel.
    steps.cargo("tests", &["test", "--workspace", "--exclude", WORKER, "--exclude", "xtask", "--locked"])?;
    steps.run("documentation", || {
        let mut doc = workspace::cargo(&["doc", "--no-deps", "--locked", "-p", "iteragpu-lab"]);
        workspace::succeed(doc.env("RUSTDOCFLAGS", "-Dwarnings"))
    })?;
    steps.run("entrées hostiles, quelques secondes chacune", fuzz::check)?;
    steps.cargo("commandes", &["build", "--release", "--locked"])?;
    match tools.into_iter().try_for_each(Install::finish) {
        Err(error) if !fleet::required() => {
            let reason = format!("{error:#}");
            steps.skip(FLEET, reason.lines().last().unwrap_or_default());
        }
        installed => steps.run(FLEET, || installed.and_then(|()| fleet::check()))?,
    }
    steps.run("paquets Python", || packages.map_or(Ok(()), Install::finish))?;
    steps.run("programme de mesure", worker::build)?;
    // In release, like the build: torch-sys compiles its C++ once.
    steps.worker("clippy du programme de mesure", &["clippy", "--all-targets"], &["--", "-D", "warnings"])?;
    steps.worker("tests du programme de mesure", &["test"], &[])?;
    steps.run("arrêts brutaux, vingt essais", signals::check)?;
    steps.run("noyau Jupyter", || {
        kernel.map_or(Ok(()), kernel::Build::finish)?;
        kernel::register()
    })?;
    steps.run("tests de xtask, avec les notebooks qui doivent échouer", || {
        let mut test = workspace::cargo(&["test", "--locked", "-p", "xtask"]);
        if chromium.is_some() {
            test.env(browser::REQUIRED, "1");
        }
        workspace::succeed(test.env("XTASK_KERNEL_REQUIRED", "1"))
    })?;
    steps.run("notebooks dans le noyau", || NOTEBOOKS.iter().try_for_each(executes))?;
    steps.run("notebooks avec nbconvert et papermill", frontends::check)?;
    if chromium.is_none() && !browser::required() {
        steps.skip(IN_BROWSER, browser::NO_CHROMIUM);
        return Ok(());
    }
    steps.cargo(IN_BROWSER, &["xtask", "browser"])
}

const FLEET: &str = "exploration sur des machines louées, lue par SkyPilot et dstack";

const IN_BROWSER: &str = "notebooks dans un vrai navigateur";

const WORKER: &str = "iteragpu-worker";

/// What takes longest and mostly waits for the network or a single core starts first.
fn start_installs(packages: &[Pins]) -> Result<(Option<kernel::Build>, Option<Install>, Vec<Install>)> {
    prerequisites::check()?;
    let kernel = kernel::start_build()?;
    let packages = python::start_install(&[packages, worker::missing_packages()].concat())?;
    Ok((kernel, packages, fleet::start_installs()?))
}

/// The features that notebooks load the library with, each alone.
const NOTEBOOK_FEATURES: [&str; 3] = ["", "csv", "explore"];

fn lint_for_notebooks(features: &str) -> Result<()> {
    let arguments = ["clippy", "-p", "iteragpu-lab", "--lib", "--no-default-features", "--features", features];
    let flags = ["--locked", "--", "-D", "warnings"];
    workspace::succeed(&mut workspace::cargo(&[&arguments[..], &flags].concat()))
}

/// As on a machine without GPU, also where there is one.
fn executes((notebook, shown): &(&str, Shown)) -> Result<()> {
    let mut command = workspace::cargo(&["xtask", "notebook", notebook]);
    command.env("CUDA_VISIBLE_DEVICES", "");
    for (cell, text) in *shown {
        command.arg("--expect").arg(format!("{cell}={text}"));
    }
    workspace::succeed(&mut command)
}

/// The steps so far; the first failure ends the run.
#[derive(Default)]
struct Steps {
    passed: usize,
    skipped: usize,
    current: &'static str,
}

impl Steps {
    fn run<T>(&mut self, name: &'static str, step: impl FnOnce() -> Result<T>) -> Result<T> {
        println!("\n=== {name}");
        self.current = name;
        let started = Instant::now();
        let value = step()?;
        self.passed += 1;
        println!("=== {name} : {}", progress::elapsed(started));
        Ok(value)
    }

    fn skip(&mut self, name: &str, reason: &str) {
        println!("\n=== {name} : étape sautée, {reason}");
        self.skipped += 1;
    }

    fn cargo(&mut self, name: &'static str, arguments: &[&str]) -> Result<()> {
        self.run(name, || workspace::succeed(&mut workspace::cargo(arguments)))
    }

    fn worker(&mut self, name: &'static str, task: &[&str], flags: &[&str]) -> Result<()> {
        let arguments = [task, &["--release", "--locked", "-p", WORKER], flags].concat();
        self.run(name, || workspace::succeed(&mut worker::cargo(&arguments)?))
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn a_failed_step_is_named_and_not_counted() {
        let mut steps = Steps::default();
        assert!(steps.run("good", || Ok(())).is_ok());
        assert!(steps.run::<()>("bad", || bail!("planted")).is_err());
        assert_eq!((steps.passed, steps.current), (1, "bad"));
    }
}
