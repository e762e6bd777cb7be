//! `cargo xtask lab`: from a fresh machine to an open notebook.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::Args;

use crate::notebook::NotebookArgs;
use crate::python::{self, JUPYTER};
use crate::{git_hook, kernel, notebook, prerequisites, worker, workspace};

/// The notebook that everybody starts with, below the repository.
pub const WALKTHROUGH: &str = "notebooks/mesure-memoire.ipynb";

#[derive(Args)]
pub struct LabArgs {
    /// S'arrête avant d'ouvrir JupyterLab
    #[arg(long)]
    no_open: bool,
    /// Installe PyTorch et le programme de mesure même si aucun GPU n'est trouvé
    #[arg(long)]
    torch: bool,
    /// Installe un contrôle git, et rien d'autre : un commit dont un notebook contient des sorties sera refusé
    #[arg(long, conflicts_with_all = ["no_open", "torch"])]
    git_hook: bool,
}

pub fn run(arguments: &LabArgs) -> Result<ExitCode> {
    if arguments.git_hook {
        return git_hook::install(workspace::root());
    }
    prerequisites::check()?;
    set_up(arguments.torch || worker::gpu_present())?;
    println!("\nLe parcours {WALKTHROUGH}, exécuté une fois (sa première cellule compile la bibliothèque) :");
    let walkthrough = workspace::root().join(WALKTHROUGH);
    // Whether to keep a result, and under which name, is the user's choice alone.
    let verdict = notebook::run(&NotebookArgs::without_cells_tagged("optional-export", walkthrough))?;
    if verdict != ExitCode::SUCCESS {
        return Ok(verdict);
    }
    println!("\nTout est prêt.");
    if git_hook::is_missing(workspace::root()) {
        println!("Facultatif : « cargo xtask lab --git-hook » fait refuser par git les notebooks avec des sorties.");
    }
    if arguments.no_open {
        println!("« cargo xtask lab » ouvrira JupyterLab.");
        return Ok(ExitCode::SUCCESS);
    }
    open()
}

fn set_up(with_worker: bool) -> Result<()> {
    let kernel = kernel::start_build()?;
    if kernel.is_some() {
        println!("Le noyau Jupyter se compile en arrière-plan, 5 à 7 minutes sur deux cœurs.");
    }
    show_commands()?;
    let torch = if with_worker { worker::missing_packages() } else { &[] };
    if let Some(install) = python::start_install(&[&[JUPYTER], torch].concat())? {
        install.finish()?;
    }
    if with_worker {
        worker::build()?;
    }
    if let Some(build) = kernel {
        build.finish()?;
    }
    kernel::register()
}

/// Builds the commands and shows what they say: something to read while the kernel builds.
fn show_commands() -> Result<()> {
    workspace::succeed(&mut workspace::cargo(&["build", "--release", "--locked"]))?;
    let examples: [&[&str]; 2] = [
        &["estimate", "--parameters", "7000000000", "--bits", "16", "--reserve-gib", "4"],
        &["environment", "--device", "cuda:0"],
    ];
    for example in examples {
        let mut command = Command::new(workspace::target().join("release/mesure-memoire"));
        println!("\n$ mesure-memoire {}", example.join(" "));
        workspace::succeed(command.args(example).envs(workspace::moved_worker()))?;
    }
    println!();
    Ok(())
}

/// Becomes JupyterLab, so that Ctrl-C and the terminal are its own.
fn open() -> Result<ExitCode> {
    let mut command = Command::new(python::interpreter());
    // Through Python: the script .venv/bin/jupyter stops working when the repository is moved.
    command.current_dir(workspace::root()).args(["-m", "jupyterlab"]).envs(workspace::moved_worker());
    // The printed address leads to the notebook too, where no browser opens by itself.
    command.arg(format!("--LabApp.default_url=/lab/tree/{WALKTHROUGH}"));
    // A rented machine is often used as root, where JupyterLab refuses to start.
    if fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0) {
        command.arg("--allow-root");
    }
    Err(command.exec()).context("impossible d'ouvrir JupyterLab")
}
