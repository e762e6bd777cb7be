//! `cargo xtask`: set-up, notebook runs and every check of the project, one file per subcommand.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a terminal program: printing is what it does")]

mod bench;
mod browser;
mod clean;
mod deny;
mod fleet;
mod fresh_process;
mod frontends;
mod fuzz;
mod git_hook;
mod golden;
mod inspect;
mod json_text;
mod kernel;
mod kernel_bench;
mod kernel_cache;
mod lab;
mod load;
mod merge_bench;
mod notebook;
mod page;
mod prerequisites;
mod progress;
mod python;
mod results_bench;
mod signals;
mod simulation_bench;
mod tariffs;
mod test;
mod verify_simulation;
mod worker;
mod workspace;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use iteragpu_lab::cli::{answer_clap, fail_at_the_size_limit, in_french};

#[derive(Parser)]
#[command(bin_name = "cargo xtask", about = "Installation, exécution des notebooks et vérifications du projet.")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Installe tout ce qu'il faut, exécute le parcours une fois, puis ouvre JupyterLab
    Lab(lab::LabArgs),
    /// Exécute un notebook dans un vrai noyau, sans le modifier ; ou contrôle et nettoie ce qui y est enregistré
    Notebook(notebook::NotebookArgs),
    /// Parcourt les notebooks dans JupyterLab, avec Chromium, comme une personne
    Browser(browser::BrowserArgs),
    /// Installe PyTorch au besoin et compile le programme de mesure
    Worker,
    /// Lance toutes les vérifications du projet
    Test,
    /// Cherche des entrées qui mettent la bibliothèque en défaut, et garde celles qu'il trouve
    Fuzz(fuzz::FuzzArgs),
    /// Tue les commandes, le programme de mesure et le noyau à des moments tirés au sort, et regarde ce qui reste
    Signals(signals::SignalsArgs),
    /// Contrôle les licences, les doublons et les sources des dépendances, et leurs failles connues si leur base se lit
    Deny,
    /// Fait lire les fichiers de docs/flotte par SkyPilot et dstack, sans rien louer, et en répète les scripts
    Fleet,
    /// Recalcule tarifs-forfaits.csv à partir des prix horaires publics
    Tariffs(tariffs::TariffsArgs),
    /// Compare des mesures à des valeurs de référence, sur un vrai GPU
    Golden(golden::GoldenArgs),
    /// Compare la simulation à des mesures de configurations tirées au sort, sur un vrai GPU
    VerifySimulation(verify_simulation::VerifySimulationArgs),
    /// Mesure deux cents fois de suite, puis huit fois à la fois, sur un vrai GPU
    Load(load::LoadArgs),
    /// Chronomètre les mesures à côté du programme d'origine, sur un vrai GPU
    Bench(bench::BenchArgs),
    /// Chronomètre le résumé d'un grand fichier de résultats inventé
    BenchResults(results_bench::ResultsBenchArgs),
    /// Chronomètre la réunion de nombreux fichiers d'exploration inventés
    BenchMerge(merge_bench::MergeBenchArgs),
    /// Chronomètre la simulation d'un million d'allocations et de libérations
    BenchSimulation(simulation_bench::SimulationBenchArgs),
    /// Chronomètre les cellules des notebooks dans des noyaux neufs, à côté d'un noyau nu
    BenchKernel(kernel_bench::KernelBenchArgs),
}

/// What the caller got wrong, as opposed to what failed: exit code 2.
#[derive(Debug)]
struct UsageError(String);

impl std::fmt::Display for UsageError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

fn main() -> ExitCode {
    fail_at_the_size_limit();
    let matches = in_french(Arguments::command()).try_get_matches();
    match matches.and_then(|matches| Arguments::from_arg_matches(&matches)) {
        Ok(arguments) => run(&arguments.task).unwrap_or_else(|error| {
            eprintln!("{error:#}");
            ExitCode::from(if error.is::<UsageError>() { 2 } else { 1 })
        }),
        Err(error) => answer_clap(&error),
    }
}

fn run(task: &Task) -> anyhow::Result<ExitCode> {
    match task {
        Task::Lab(arguments) => lab::run(arguments),
        Task::Notebook(arguments) => notebook::run(arguments),
        Task::Browser(arguments) => browser::run(arguments),
        Task::Worker => worker::run(),
        Task::Test => test::run(),
        Task::Fuzz(arguments) => fuzz::run(arguments),
        Task::Signals(arguments) => signals::run(arguments),
        Task::Deny => deny::run(),
        Task::Fleet => fleet::run(),
        Task::Tariffs(arguments) => tariffs::run(arguments),
        Task::Golden(arguments) => golden::run(arguments),
        Task::VerifySimulation(arguments) => verify_simulation::run(arguments),
        Task::Load(arguments) => load::run(arguments),
        Task::Bench(arguments) => bench::run(arguments),
        Task::BenchResults(arguments) => results_bench::run(arguments),
        Task::BenchMerge(arguments) => merge_bench::run(arguments),
        Task::BenchSimulation(arguments) => simulation_bench::run(arguments),
        Task::BenchKernel(arguments) => kernel_bench::run(arguments),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        in_french(Arguments::command()).debug_assert();
    }

    /// The texts of the READMEs and of every document.
    fn documents(folder: &Path) -> anyhow::Result<String> {
        let mut texts = String::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "md") {
                texts += &fs::read_to_string(&path)?;
            } else if path.is_dir() && path.starts_with(workspace::root().join("docs")) {
                texts += &documents(&path)?;
            }
        }
        Ok(texts)
    }

    /// What stands on lines of its own, as it does in a block to copy.
    fn commands(document: &str) -> Vec<&str> {
        let commands = document.lines().filter_map(|line| line.trim_start_matches("$ ").strip_prefix("cargo xtask "));
        // Without the comment that some have.
        commands.filter_map(|command| command.split(" #").next()).collect()
    }

    fn is_accepted(command: &str) -> bool {
        Arguments::command().try_get_matches_from(["xtask"].into_iter().chain(command.split_whitespace())).is_ok()
    }

    #[test]
    fn every_command_of_the_documents_is_accepted() -> anyhow::Result<()> {
        let texts = documents(workspace::root())?;
        let commands = commands(&texts);
        assert!(commands.contains(&"lab") && commands.contains(&"test") && commands.len() > 8, "{commands:?}");
        let refused: Vec<_> = commands.into_iter().filter(|command| !is_accepted(command)).collect();
        assert!(refused.is_empty(), "{refused:?}");
        for planted in ["labs", "lab --no-opens", "notebook --tags requires-gpu", "bench --ours"] {
            assert!(!is_accepted(planted), "{planted}");
        }
        Ok(())
    }
}
