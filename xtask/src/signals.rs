//! `cargo xtask signals`: ends the commands, the worker and the process of a notebook's cells with
//! SIGKILL, SIGTERM and SIGINT, at random moments, and looks at what is left each time.

mod judge;
mod processes;
mod scenes;

use std::os::unix::fs::symlink;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use fastrand::Rng;
use nix::sys::signal::Signal;

use self::judge::Verdict;
use self::scenes::{Scene, Stage};
use crate::lab::WALKTHROUGH;
use crate::python::{self, JUPYTER};
use crate::{kernel, workspace};

#[derive(Args)]
pub struct SignalsArgs {
    /// Nombre d'essais, dont un cinquième dans un noyau de notebook si Jupyter est installé (500 par défaut)
    #[arg(long, value_name = "NOMBRE", default_value_t = 500, hide_default_value = true,
          value_parser = clap::value_parser!(u64).range(1..=100_000))]
    trials: u64,
    /// Graine des moments, pour refaire les mêmes essais ; tirée au sort et affichée sans cette option
    #[arg(long, value_name = "NOMBRE", value_parser = clap::value_parser!(u64).range(..=u64::from(u32::MAX)))]
    seed: Option<u64>,
}

/// Those that are sent. A job in the background ignores SIGINT, and so does all that it starts.
fn signals() -> Result<Vec<Signal>> {
    let ignored = processes::ignored_signals()?;
    let (ignored, sent): (Vec<_>, Vec<_>) = [Signal::SIGKILL, Signal::SIGTERM, Signal::SIGINT]
        .into_iter()
        .partition(|signal| ignored & (1 << (*signal as u64 - 1)) != 0);
    for signal in ignored {
        println!("{signal} : aucun essai, il est ignoré ici, comme dans un travail lancé en arrière-plan.");
    }
    Ok(sent)
}

/// What is promised.
const PROMISED: Duration = Duration::from_secs(1);

/// How long a machine that is busy with something else may take for it. What takes longer is an orphan;
/// what took longer than promised is told.
const PATIENCE: Duration = Duration::from_secs(10);

pub fn run(arguments: &SignalsArgs) -> Result<ExitCode> {
    let seed = arguments.seed.unwrap_or_else(|| fastrand::u32(..).into());
    let in_kernel = if kernel_is_there() { arguments.trials / 5 } else { 0 };
    if in_kernel == 0 {
        println!(
            "Noyau de notebook : aucun essai, Jupyter et le noyau s'installent par « cargo xtask lab --no-open »."
        );
    }
    workspace::succeed(&mut workspace::cargo(&["build", "--release", "--locked"]))?;
    let found = all(arguments.trials, in_kernel, seed)?;
    Ok(if found == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// For `cargo xtask test`, which has the kernel tried by a test of its own. The commands are built.
pub fn check() -> Result<()> {
    if all(20, 0, 1)? > 0 {
        bail!("un arrêt brutal laisse ce qu'il ne doit pas laisser");
    }
    Ok(())
}

/// Runs all trials, tells what they found, and gives the number of faults.
fn all(trials: u64, in_kernel: u64, seed: u64) -> Result<usize> {
    let stage = Stage::new()?;
    planted_orphan_is_found(&stage)?;
    let (signals, scenes) = (signals()?, stage.scenes()?);
    let mut random = Rng::with_seed(seed);
    let mut tallies = vec![Tally::default(); scenes.len()];
    for number in 0..trials - in_kernel {
        let place = number as usize % scenes.len();
        let signal = signals[number as usize / scenes.len() % signals.len()];
        let moment = scenes[place].lasts().mul_f64(1.2 * random.f64());
        let verdict = scenes[place].trial(&stage, signal, moment, PATIENCE);
        let verdict = verdict.with_context(|| format!("essai {number}, {}, {signal}", scenes[place].name))?;
        for fault in &verdict.faults {
            println!("essai {number}, {}, {signal} après {:.3} s : {fault}", scenes[place].name, moment.as_secs_f64());
        }
        tallies[place].add(&verdict);
    }
    let mut told: Vec<(&str, Tally)> = scenes.iter().map(|scene| scene.name).zip(tallies).collect();
    if in_kernel > 0 {
        told.push(("noyau : le processus des cellules", kernel_trials(in_kernel, seed, &signals)?));
    }
    for (name, tally) in &told {
        println!("{}", tally.told(name));
    }
    let faults = told.iter().map(|(_, tally)| tally.faults).sum();
    println!("{trials} essais, {faults} en faute (graine {seed})");
    Ok(faults)
}

/// A worker that ignores its closing input has to be found, or the search for orphans is worth nothing.
fn planted_orphan_is_found(stage: &Stage) -> Result<()> {
    let scene = Scene::planted(stage);
    let verdict = scene.trial(stage, Signal::SIGKILL, Duration::from_millis(300), PROMISED)?;
    if !verdict.faults.iter().any(|fault| fault.contains("encore là")) {
        bail!("le programme de mesure planté, qui n'écoute pas son entrée, n'a pas été trouvé");
    }
    println!("orphelin planté : trouvé");
    Ok(())
}

/// What the trials of one scene came to.
#[derive(Clone, Default)]
struct Tally {
    trials: usize,
    in_time: usize,
    late: usize,
    leftovers: usize,
    faults: usize,
    slowest: Duration,
}

impl Tally {
    fn add(&mut self, verdict: &Verdict) {
        self.trials += 1;
        self.in_time += usize::from(verdict.in_time);
        self.late += usize::from(verdict.gone_after > PROMISED);
        self.leftovers += usize::from(verdict.leftover);
        self.faults += usize::from(!verdict.faults.is_empty());
        self.slowest = self.slowest.max(verdict.gone_after);
    }

    fn told(&self, name: &str) -> String {
        let Self { trials, in_time, late, leftovers, faults, slowest } = self;
        let leftovers = match leftovers {
            0 => String::new(),
            _ => format!(", {leftovers} copies laissées par SIGKILL, que l'ajout suivant doit retirer"),
        };
        format!(
            "{name} : {trials} essais, {in_time} avant la fin ; plus aucun processus après {:.3} s au plus, \
             {late} fois plus d'une seconde{leftovers} ; {faults} en faute",
            slowest.as_secs_f64()
        )
    }
}

const KERNEL_ENDS: &str = include_str!("kernel_ends.py");

fn kernel_is_there() -> bool {
    JUPYTER.installed_for(&python::interpreter()) && kernel::is_registered()
}

/// One kernel for all trials, as long as it goes on working.
fn kernel_trials(trials: u64, seed: u64, signals: &[Signal]) -> Result<Tally> {
    let folder = tempfile::tempdir()?;
    let worker = folder.path().join("endless");
    symlink(scenes::stand_in(), &worker)?;
    let ends = (0..trials as usize).map(|number| signals[number % signals.len()].as_str());
    let mut command = Command::new(python::interpreter());
    command.args(["-c", KERNEL_ENDS]).arg(workspace::root().join(WALKTHROUGH)).arg(&worker);
    command.arg(seed.to_string()).args(ends).stdin(Stdio::null()).stderr(Stdio::null());
    let said = String::from_utf8_lossy(&command.output().context("impossible de lancer Python")?.stdout).into_owned();
    let mut tally = Tally::default();
    for line in said.lines().filter(|line| line.starts_with("SIG")) {
        let (outcome, seconds) = line.rsplit_once(' ').context("le pilote du noyau a répondu autre chose que prévu")?;
        let faults = if outcome.ends_with(": gone") { Vec::new() } else { vec![line.to_owned()] };
        faults.iter().for_each(|fault| println!("noyau : {fault}"));
        let gone_after = Duration::from_secs_f64(seconds.parse()?);
        tally.add(&Verdict { faults, in_time: true, leftover: false, gone_after });
    }
    if tally.trials != trials as usize {
        bail!("le noyau s'est arrêté après {} essais sur {trials}", tally.trials);
    }
    Ok(tally)
}
