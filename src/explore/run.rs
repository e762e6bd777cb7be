//! Runs a plan: one fresh process a run, each finished run on the disk before the next one starts.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{File, TryLockError};
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::plan::Plan;
use super::record::{NextLine, PlanRecord, Record, RunRecord, TOO_LONG, next_line};
use crate::compare::pairs;
use crate::environment::{EnvironmentReport, usable_environment};
use crate::error::{LabError, io_words, shortened};
use crate::export::{NewFile, not_writable};
use crate::measure::{Extras, WARM_FORWARD, measure_with};
use crate::temporary::is_same;
use crate::worker::WorkerProgram;

/// What an exploration has come to. `Display` says it in French.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explored {
    /// The file's name as given.
    pub path: PathBuf,
    /// Runs that the file held before.
    pub resumed: u64,
    /// Runs of the plan; the file now has all of them.
    pub runs: u64,
    /// Those that failed, each with its reason.
    pub failed: u64,
}

impl fmt::Display for Explored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, resumed, runs, failed } = self;
        let path = shown(path);
        match runs {
            1 => write!(f, "« {path} » contient la mesure du plan")?,
            _ => write!(f, "« {path} » contient les {runs} mesures du plan")?,
        }
        match (runs, resumed) {
            (_, 0) => {}
            (1, _) => f.write_str(", faite auparavant")?,
            (_, 1) => f.write_str(", dont 1 faite auparavant")?,
            _ => write!(f, ", dont {resumed} faites auparavant")?,
        }
        match failed {
            0 => f.write_str("."),
            _ => write!(f, " ; échecs, chacun avec sa raison : {failed}."),
        }
    }
}

/// How far an exploration is, after each run and once before the first.
#[derive(Debug)]
pub struct Progress<'a> {
    /// Runs of the plan.
    pub runs: u64,
    /// Runs in the file.
    pub done: u64,
    /// The run that has just ended; none before the first.
    pub last: Option<&'a RunRecord>,
    /// What the runs still to come may take, from the mean of those of this call; none before the first.
    pub remaining: Option<Duration>,
}

impl fmt::Display for Progress<'_> {
    /// One French line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.done, self.runs)?;
        if let Some(remaining) = self.remaining() {
            write!(f, ", {remaining}")?;
        }
        // Last, as a reason is made of sentences.
        self.last.map_or(Ok(()), |run| write!(f, " : {}", told(run)))
    }
}

impl Progress<'_> {
    /// How long the rest may take, in French words; none where nobody knows or nothing is left.
    pub fn remaining(&self) -> Option<String> {
        let remaining = self.remaining.filter(|_| self.done < self.runs)?;
        Some(format!("reste environ {}", duration(remaining)))
    }
}

/// A run's point and outcome, on one French line.
pub fn told(run: &RunRecord) -> String {
    let point = &run.configuration;
    let (batch, context, width, dtype) = (point.batch, point.context, point.width, point.dtype.name());
    let outcome = match (&run.measurement, &run.reason) {
        (Some(measurement), _) => {
            let times =
                measurement.phases.iter().filter(|row| row.phase == WARM_FORWARD).map(|row| row.elapsed_seconds);
            format!("passage à chaud le plus court {:.6} s", times.fold(f64::INFINITY, f64::min))
        }
        (None, Some(reason)) => format!("échec. {reason}"),
        (None, None) => "échec".to_owned(),
    };
    format!("essai {}, batch {batch}, context {context}, width {width}, {dtype} : {outcome}", run.trial)
}

/// Whole seconds, with minutes and hours where there are any.
fn duration(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        seconds => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// Runs `plan` into the file `output`: a new one, or with `resume` the one that an interrupted call of the
/// same plan has left (a new one where there is none).
///
/// A run that fails while the GPU can still be used, for want of memory for instance, is recorded with its
/// reason, and the rest goes on. When the GPU can no longer be used, the exploration stops with the reason,
/// and that run is still to be done.
///
/// # Errors
/// The reason why nothing can be measured; [`LabError::FileExists`] without `resume`;
/// [`LabError::ExplorationRefused`] when the file is another plan's, was measured in another environment,
/// is in use, or is damaged; [`LabError::ExplorationStopped`] when it cannot go on to its end.
///
/// # Examples
/// ```no_run
/// use iteragpu_lab::MeasureConfig;
/// use iteragpu_lab::explore::{Plan, PlanOptions, explore};
///
/// let plan = Plan::new(MeasureConfig::default(), &["width=64,128,256"], &PlanOptions::default())?;
/// let explored = explore(&plan, "exploration.jsonl", false, &mut |progress| println!("{progress}"))?;
/// println!("{explored}");
/// # Ok::<(), iteragpu_lab::LabError>(())
/// ```
pub fn explore(
    plan: &Plan,
    output: impl AsRef<Path>,
    resume: bool,
    tell: &mut dyn FnMut(&Progress<'_>),
) -> Result<Explored, LabError> {
    let output = output.as_ref();
    let is_new = !(resume && output.is_file());
    // Before the GPU is started: a taken name is found at once.
    let new_file = is_new.then(|| NewFile::check(output).map_err(before_measuring)).transpose()?;
    let worker = WorkerProgram::locate()?;
    let environment = usable_environment(&worker, &plan.base.device)?;
    if let Some(file) = new_file {
        file.write(&line(&PlanRecord::new(plan.clone(), environment.clone()))?)?;
    }
    let exploration = Exploration::open(output)?;
    exploration.check(plan, &environment)?;
    exploration.drop_cut_line()?;
    exploration.run(&worker, tell)
}

/// An exploration's file, which nobody else writes to.
struct Exploration {
    path: PathBuf,
    file: File,
    /// Of its whole lines, in bytes.
    length: u64,
    plan: PlanRecord,
    done: BTreeSet<u64>,
    failed: u64,
}

impl Exploration {
    fn open(path: &Path) -> Result<Self, LabError> {
        let file = File::options().read(true).append(true).open(path).map_err(|error| not_open(path, &error))?;
        match file.try_lock() {
            Ok(()) => Self::read(path, file),
            Err(TryLockError::WouldBlock) => Err(refused(path, "une autre exploration y écrit en ce moment")),
            Err(TryLockError::Error(error)) => Err(unreadable(path, error)),
        }
    }

    /// Reads what the file holds, but for the start of a line whose writer was interrupted.
    fn read(path: &Path, file: File) -> Result<Self, LabError> {
        let unreadable = |error| unreadable(path, error);
        let at = |number: u64, words: &str| refused(path, &format!("la ligne {number} {words}"));
        let mut lines = BufReader::new(file.try_clone().map_err(unreadable)?);
        let (mut plan, mut done, mut failed, mut length) = (None, BTreeSet::new(), 0, 0);
        for number in 1.. {
            let line = match next_line(&mut lines).map_err(unreadable)? {
                NextLine::Whole(line) => line,
                NextLine::TooLong => return Err(at(number, TOO_LONG)),
                NextLine::Cut | NextLine::End => break,
            };
            length += line.len() as u64;
            match (Record::of(&line).map_err(|words| at(number, words))?, &plan) {
                (Record::Plan(first), None) => plan = Some(*first),
                (Record::Plan(_), Some(_)) => {
                    return Err(at(number, "commence un second plan : un fichier réuni ne se reprend pas"));
                }
                (Record::Run(_), None) => return Err(at(number, "précède tout plan")),
                (Record::Run(run), Some(plan)) => {
                    if !plan.holds(&run) || !done.insert(run.run_index) {
                        return Err(at(number, "n'est pas du plan, ou répète une mesure"));
                    }
                    failed += u64::from(run.measurement.is_none());
                }
            }
        }
        let Some(plan) = plan else { return Err(refused(path, "aucun plan n'y figure")) };
        Ok(Self { path: path.to_owned(), file, length, plan, done, failed })
    }

    /// Only once nothing else speaks against going on: a refused file is left as it is.
    fn drop_cut_line(&self) -> Result<(), LabError> {
        self.file.set_len(self.length).map_err(|error| not_writable(&self.path, error))
    }

    /// Refuses to go on with another plan or in another environment.
    fn check(&self, plan: &Plan, environment: &EnvironmentReport) -> Result<(), LabError> {
        if self.plan.plan != *plan {
            let keys = differing_keys(&self.plan.plan, plan);
            let reason =
                format!("son plan n'est pas celui demandé ({keys}) ; pour reprendre, redonnez les mêmes options");
            return Err(refused(&self.path, &reason));
        }
        match self.changed_keys(environment) {
            None => Ok(()),
            Some(keys) => {
                let reason = format!("ses mesures ont été commencées dans un autre environnement ({keys})");
                Err(refused(&self.path, &reason))
            }
        }
    }

    /// Where `environment` is not the one that the exploration began in.
    fn changed_keys(&self, environment: &EnvironmentReport) -> Option<String> {
        let began_in = &self.plan.environment;
        (began_in != environment).then(|| differing_keys(began_in, environment))
    }

    fn run(mut self, worker: &WorkerProgram, tell: &mut dyn FnMut(&Progress<'_>)) -> Result<Explored, LabError> {
        let runs = self.plan.plan.runs.len() as u64;
        let resumed = self.done.len() as u64;
        tell(&Progress { runs, done: resumed, last: None, remaining: None });
        let started = Instant::now();
        for run_index in 1..=runs {
            if self.done.contains(&run_index) {
                continue;
            }
            let Some(run) = self.measured(run_index, worker).map_err(|cause| self.stopped(cause))? else { continue };
            self.keep(&run).map_err(|cause| self.stopped(cause))?;
            let done = self.done.len() as u64;
            let mean = started.elapsed().as_secs_f64() / (done - resumed) as f64;
            let remaining = Duration::try_from_secs_f64(mean * (runs - done) as f64).ok();
            tell(&Progress { runs, done, last: Some(&run), remaining });
        }
        Ok(Explored { path: self.path, resumed, runs, failed: self.failed })
    }

    fn stopped(&self, cause: LabError) -> LabError {
        let path = shortened(&self.path.to_string_lossy(), 120);
        let (done, runs) = (self.done.len() as u64, self.plan.plan.runs.len() as u64);
        LabError::ExplorationStopped { path, done, runs, cause: Box::new(cause) }
    }

    /// Measures a run, or finds out that it has failed: the GPU can be used, but not for this.
    fn measured(&self, run_index: u64, worker: &WorkerProgram) -> Result<Option<RunRecord>, LabError> {
        let Some((_, point)) = self.plan.planned(run_index) else { return Ok(None) };
        let extras = Extras { digest: false, device_passes: self.plan.plan.device_passes };
        let outcome = measure_with(worker, point, extras, &mut |_| ());
        let environment = match &outcome {
            Ok(measurement) => measurement.environment.clone(),
            Err(_) => usable_environment(worker, &point.device)?,
        };
        if let Some(keys) = self.changed_keys(&environment) {
            return Err(refused(&self.path, &format!("l'environnement a changé ({keys})")));
        }
        Ok(RunRecord::new(&self.plan, run_index, outcome.map_err(|error: LabError| error.to_string())))
    }

    /// Puts the run's line on the disk, whole or not at all.
    fn keep(&mut self, run: &RunRecord) -> Result<(), LabError> {
        if !self.is_as_left() {
            return Err(refused(&self.path, "un autre programme l'a retiré, remplacé ou modifié"));
        }
        let line = line(run)?;
        if let Err(error) = self.file.write_all(&line).and_then(|()| self.file.sync_all()) {
            // What stays of the line would be cut by the next call.
            let _ = self.file.set_len(self.length);
            return Err(not_writable(&self.path, error));
        }
        self.length += line.len() as u64;
        self.done.insert(run.run_index);
        self.failed += u64::from(run.measurement.is_none());
        Ok(())
    }

    /// Whether the name still leads to this file, as long as it was: a lock keeps away only those who ask
    /// for it, and runs in a file without a name would be lost.
    fn is_as_left(&self) -> bool {
        let (Ok(ours), Ok(named)) = (self.file.metadata(), self.path.metadata()) else { return false };
        is_same(&ours, &named) && ours.len() == self.length
    }
}

/// What follows from the other keys of a plan says nothing more.
const DERIVED: [&str; 2] = ["points", "runs"];

/// The keys under which two records of the same type differ.
fn differing_keys<T: serde::Serialize>(one: &T, other: &T) -> String {
    let (Ok(one), Ok(other)) = (serde_json::to_value(one), serde_json::to_value(other)) else { return String::new() };
    let pairs = pairs("", &one, &other).into_iter();
    let keys = pairs.filter(|pair| pair.first != pair.second && !DERIVED.contains(&pair.key.as_str()));
    keys.map(|pair| pair.key).collect::<Vec<_>>().join(", ")
}

fn unreadable(path: &Path, error: io::Error) -> LabError {
    LabError::unreadable(&shown(path), error)
}

/// A place that takes no file is an argument to correct, found before anything was measured.
fn before_measuring(error: LabError) -> LabError {
    match error {
        LabError::NotWritable { path, source } => not_open(Path::new(&path), &source),
        other => other,
    }
}

fn not_open(path: &Path, error: &io::Error) -> LabError {
    refused(path, &format!("il ne peut pas être écrit ({})", io_words(error)))
}

fn refused(path: &Path, reason: &str) -> LabError {
    LabError::ExplorationRefused { path: shown(path), reason: reason.to_owned() }
}

fn shown(path: &Path) -> String {
    shortened(&path.to_string_lossy(), 120)
}

/// A record as one line of JSON.
fn line(record: &impl serde::Serialize) -> Result<Vec<u8>, LabError> {
    let text = serde_json::to_vec(record);
    let mut line = text.map_err(|error| LabError::NotAMeasurement { found: error.to_string() })?;
    line.push(b'\n');
    Ok(line)
}
