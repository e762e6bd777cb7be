//! What is being done when the signal comes.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::judge::{self, End, Hit, Verdict};
use super::processes::{self, MARK};
use crate::{results_bench, workspace};

/// Rows of the results file that is added to: its copy takes a moment that a signal can meet.
const ROWS: u64 = 18_000;

pub fn stand_in() -> PathBuf {
    workspace::root().join("tests/stand-in-worker.sh")
}

/// What all trials share: the command, stand-ins, and a results file with what appends make of it.
pub struct Stage {
    folder: TempDir,
    command: PathBuf,
    old: Vec<u8>,
    /// The rows that each of the two measurements adds.
    rows: [Vec<u8>; 2],
}

/// A measurement as small as can be; the stand-ins answer with two repetitions.
const MEASURE: [&str; 9] = ["measure", "--batch", "1", "--context", "1", "--width", "1", "--repeats", "2"];

const OUTPUT: &str = "m.json";
const RESULTS: &str = "r.csv";

impl Stage {
    pub fn new() -> Result<Self> {
        let (folder, command) = (tempfile::tempdir()?, workspace::target().join("release/mesure-memoire"));
        let mut stage = Self { folder, command, old: Vec::new(), rows: [Vec::new(), Vec::new()] };
        for behaviour in ["good", "paced", "endless", "stubborn"] {
            symlink(stand_in(), stage.at(behaviour))?;
        }
        let results = stage.at(RESULTS);
        results_bench::write_rows(&results, ROWS, false)?;
        let mut before = fs::read(&results)?;
        stage.old.clone_from(&before);
        for number in 0..2 {
            stage.succeed(stage.measure(&stage.at("good"), &stage.measurement(number)))?;
            stage.succeed(stage.append(number, &results))?;
            let after = fs::read(&results)?;
            stage.rows[number] =
                after.strip_prefix(&before[..]).context("l'ajout n'a pas gardé le fichier")?.to_owned();
            before = after;
        }
        Ok(stage)
    }

    pub fn scenes(&self) -> Result<Vec<Scene>> {
        let paced = self.at("paced");
        let mut scenes = vec![
            Scene::measuring("measure, doublure : la commande", &paced, Hit::Command),
            Scene::measuring("measure, doublure : le programme de mesure", &paced, Hit::Worker),
            Scene::measuring("measure, doublure : les deux, comme Ctrl-C", &paced, Hit::Both),
            Scene::measuring("measure, doublure sans fin : la commande", &self.at("endless"), Hit::Command),
            Scene::appending("results append : la commande", false),
            Scene::appending("results append, pendant la copie : la commande", true),
        ];
        let worker = workspace::target().join("release/iteragpu-worker");
        if worker.exists() {
            scenes.push(Scene::measuring("measure, vrai programme : la commande", &worker, Hit::Command));
            scenes.push(Scene::measuring("measure, vrai programme : le programme de mesure", &worker, Hit::Worker));
        } else {
            println!("Vrai programme de mesure : aucun essai, « cargo xtask worker » le construit.");
        }
        for scene in &mut scenes {
            scene.lasts = self.duration(&scene.task)?;
        }
        Ok(scenes)
    }

    /// How long the task takes when nothing disturbs it.
    fn duration(&self, task: &Task) -> Result<Duration> {
        let trial = Trial::new()?;
        let mut command = self.command_of(task, &trial)?;
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        trial.wait_for_begin(task, &mut child)?;
        let start = Instant::now();
        // One has no end of its own.
        while child.try_wait()?.is_none() && start.elapsed() < Duration::from_millis(1500) {
            thread::sleep(Duration::from_millis(1));
        }
        let lasts = start.elapsed();
        child.kill()?;
        child.wait()?;
        Ok(lasts)
    }

    fn command_of(&self, task: &Task, trial: &Trial) -> Result<Command> {
        let mut command = match task {
            Task::Measure { worker, .. } => self.measure(worker, &trial.at(OUTPUT)),
            Task::Append { .. } => {
                fs::write(trial.at(RESULTS), &self.old)?;
                self.append(0, &trial.at(RESULTS))
            }
        };
        command.env(MARK, &trial.mark).stdin(Stdio::null());
        // A group of its own, as a shell gives it: a signal to the group does not end this program.
        command.process_group(0);
        Ok(command)
    }

    fn measure(&self, worker: &Path, output: &Path) -> Command {
        let mut command = Command::new(&self.command);
        command.args(MEASURE).arg("--output").arg(output).env("ITERAGPU_WORKER", worker);
        command
    }

    fn append(&self, number: usize, to: &Path) -> Command {
        let mut command = Command::new(&self.command);
        command.args(["results", "append", "--from"]).arg(self.measurement(number)).arg("--to").arg(to);
        command
    }

    fn measurement(&self, number: usize) -> PathBuf {
        self.at(&format!("{number}.json"))
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn succeed(&self, mut command: Command) -> Result<()> {
        workspace::output_of(&mut command).map(drop)
    }
}

enum Task {
    Measure {
        worker: PathBuf,
        hit: Hit,
    },
    /// As a whole, or from the moment on at which its temporary file is there.
    Append {
        copying: bool,
    },
}

/// A task, and which of its processes is hit.
pub struct Scene {
    pub name: &'static str,
    task: Task,
    lasts: Duration,
}

impl Scene {
    fn measuring(name: &'static str, worker: &Path, hit: Hit) -> Self {
        Self { name, task: Task::Measure { worker: worker.to_owned(), hit }, lasts: Duration::ZERO }
    }

    fn appending(name: &'static str, copying: bool) -> Self {
        Self { name, task: Task::Append { copying }, lasts: Duration::ZERO }
    }

    /// A worker that does not care for its input.
    pub fn planted(stage: &Stage) -> Self {
        Self::measuring("orphelin planté", &stage.at("stubborn"), Hit::Command)
    }

    pub fn lasts(&self) -> Duration {
        self.lasts
    }

    /// Starts the task, sends the signal after a while, and looks at what is left.
    pub fn trial(&self, stage: &Stage, signal: Signal, moment: Duration, patience: Duration) -> Result<Verdict> {
        let trial = Trial::new()?;
        let hit = match self.task {
            Task::Measure { hit, .. } => hit,
            Task::Append { .. } => Hit::Command,
        };
        let end = trial.disturb(stage.command_of(&self.task, &trial)?, &self.task, hit, signal, moment)?;
        let (gone_after, left) = processes::wait_until_gone(&trial.mark, patience);
        let mut verdict = Verdict { gone_after, ..Verdict::default() };
        if !left.is_empty() {
            verdict.faults.push(format!("{} processus encore là après {} s", left.len(), patience.as_secs()));
            processes::end(&left);
        }
        let may_leave = signal == Signal::SIGKILL && hit == Hit::Command;
        match self.task {
            Task::Measure { .. } => {
                let has_file = judge::files(trial.folder.path(), OUTPUT, may_leave, &mut verdict)?;
                judge::measuring(&end, hit, signal, has_file, &mut verdict);
                if has_file {
                    judge::complete(&trial.at(OUTPUT), &mut verdict)?;
                }
            }
            Task::Append { .. } => {
                judge::files(trial.folder.path(), RESULTS, may_leave, &mut verdict)?;
                let (contents, new) = (fs::read(trial.at(RESULTS))?, [&stage.old[..], &stage.rows[0]].concat());
                judge::appending(&end, signal, &contents, &stage.old, &new, &mut verdict);
                stage.succeed(stage.append(1, &trial.at(RESULTS)))?;
                judge::files(trial.folder.path(), RESULTS, false, &mut verdict)?;
                if fs::read(trial.at(RESULTS))? != [&contents[..], &stage.rows[1]].concat() {
                    verdict.faults.push("l'ajout suivant n'a pas écrit ses lignes, ou en a perdu".to_owned());
                }
            }
        }
        Ok(verdict)
    }
}

/// One task with its processes and files.
struct Trial {
    folder: TempDir,
    mark: String,
}

impl Trial {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mark = folder.path().display().to_string();
        Ok(Self { folder, mark })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn disturb(&self, mut command: Command, task: &Task, hit: Hit, signal: Signal, moment: Duration) -> Result<End> {
        // Neither pipes, which an orphan could hold open, nor files in the folder that is looked at.
        let words = tempfile::NamedTempFile::new()?;
        let mut child = command.stdout(Stdio::null()).stderr(words.reopen()?).spawn()?;
        let group = Pid::from_raw(child.id().try_into()?);
        self.wait_for_begin(task, &mut child)?;
        thread::sleep(moment);
        // Once waited for, its number may be another process's.
        if child.try_wait()?.is_none() {
            let sent = match hit {
                Hit::Command => kill(group, signal),
                Hit::Both => killpg(group, signal),
                Hit::Worker => self.worker(&mut child, group)?.map_or(Ok(()), |worker| kill(worker, signal)),
            };
            // The command is still this program's child; its worker may have gone meanwhile.
            ensure!(sent.is_ok() || hit == Hit::Worker, "le signal n'a pas pu être envoyé");
        }
        let status = self.wait(&mut child)?;
        Ok(End { status, words: fs::read_to_string(words.path())? })
    }

    /// Until what the signal is to meet is going on, or the command has ended.
    fn wait_for_begin(&self, task: &Task, child: &mut Child) -> Result<()> {
        let has_begun = || -> Result<bool> {
            let mut names = fs::read_dir(self.folder.path())?.filter_map(|entry| Some(entry.ok()?.file_name()));
            Ok(names.any(|name| judge::is_temporary(&name.to_string_lossy())))
        };
        while matches!(task, Task::Append { copying: true }) && !has_begun()? && child.try_wait()?.is_none() {}
        Ok(())
    }

    /// The worker as soon as it runs; none when the command has ended.
    fn worker(&self, child: &mut Child, command: Pid) -> Result<Option<Pid>> {
        loop {
            let worker = processes::child_of(command, &self.mark);
            if worker.is_some() || child.try_wait()?.is_some() {
                return Ok(worker);
            }
        }
    }

    fn wait(&self, child: &mut Child) -> Result<std::process::ExitStatus> {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(120) {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            thread::sleep(Duration::from_millis(1));
        }
        processes::end(&processes::marked(&self.mark));
        child.wait()?;
        bail!("une commande n'a pas fini deux minutes après le signal")
    }
}
