//! What the file of an exploration says, for tables, charts and a page. It is read line by line, and only
//! the figures that these need are kept: a merged file may hold a million runs.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::merge::{Source, refused};
use super::plan::Plan;
use super::record::{PlanRecord, Record, RunRecord};
use crate::environment::EnvironmentReport;
use crate::error::{LabError, shortened};
use crate::json;
use crate::measure::{Measurement, PHASES};
use crate::simulation::simulation_of;
use crate::spread::Spread;

/// More explorations in one file would not be compared by anybody.
const MAX_EXPLORATIONS: usize = 1_000;

/// SampledTimes that are kept of one exploration, shared out evenly among its points.
const MAX_KEPT: usize = 1 << 20;

/// Characters of a reason that are kept.
const MAX_REASON: usize = 300;

/// What a file of explorations says. `Display` prints it as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Always `exploration_report`: figures of measurements, and simulated ones under keys of their own.
    pub kind: String,
    /// The file's name, without its folder.
    pub file: String,
    /// Whether the last line was cut, as an interrupted writer leaves it: it was not read.
    pub last_line_cut: bool,
    /// One entry for every exploration; they are never merged.
    pub explorations: Vec<ExplorationReport>,
}

/// One exploration, on one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExplorationReport {
    /// Its identifier.
    pub exploration_id: String,
    /// Start, UTC, RFC 3339.
    pub started_at_utc: String,
    /// The environment that every run was measured in.
    pub environment: EnvironmentReport,
    /// What was planned.
    pub plan: Plan,
    /// Runs that were measured.
    pub measured_runs: u64,
    /// Runs that failed, each with its reason.
    pub failed_runs: u64,
    /// Runs that are planned and not there: the exploration is unfinished unless it is 0.
    pub missing_runs: u64,
    /// One entry a point of the plan, in the same order.
    pub points: Vec<PointReport>,
    /// Every failed run, in the order of the file.
    pub failures: Vec<FailedRun>,
}

/// The runs of one point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PointReport {
    /// Runs that were measured.
    pub measured_runs: u64,
    /// Runs that failed.
    pub failed_runs: u64,
    /// `elapsed_seconds` of each repetition of each trial; `null` when nothing was measured.
    pub warm_forward: Option<SampledTimes>,
    /// On the device's clock, a pass at a time: one median a trial.
    pub device_forward: Option<SampledTimes>,
    /// On the device's clock, replayed as a graph: one median a trial.
    pub device_graph_replay: Option<SampledTimes>,
    /// Maximum over the phases, of each trial.
    pub peak_allocated_bytes: Option<Extremes>,
    /// Maximum over the phases, of each trial.
    pub peak_reserved_bytes: Option<Extremes>,
    /// The same maxima simulated; `null` when nothing was measured, or with a reason.
    pub simulated: Option<SimulatedPeaks>,
    /// Why nothing was simulated, in French.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulation_note: Option<String>,
}

/// SampledTimes in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampledTimes {
    /// How many there are.
    pub count: u64,
    /// The shortest of all.
    pub min_seconds: f64,
    /// The median of those in `observations`: of all, unless there are fewer.
    pub median_seconds: f64,
    /// The longest of all.
    pub max_seconds: f64,
    /// All of them in the order of the file; where there are too many, one in every 2, 4, 8, …
    pub observations: Vec<Observation>,
}

/// One time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// Number of the trial, from 1 on.
    pub trial: u64,
    /// The time.
    pub seconds: f64,
}

/// Smallest and largest of the trials; equal when the trials agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extremes {
    /// Smallest.
    pub min: u64,
    /// Largest.
    pub max: u64,
}

/// Simulated maxima over the phases: not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SimulatedPeaks {
    /// Of allocated.
    pub peak_allocated_bytes: u64,
    /// Of reserved.
    pub peak_reserved_bytes: u64,
}

/// A run that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedRun {
    /// Position of its point in the plan, from 0 on.
    pub point: usize,
    /// Number of the trial, from 1 on.
    pub trial: u64,
    /// Why, in French, shortened.
    pub reason: String,
}

/// Reads the file of one exploration, or several files put together.
///
/// # Errors
/// [`LabError::Unreadable`]; [`LabError::ExplorationRefused`] naming the first line that is no line of an
/// exploration, or that is not of a plan before it, or that repeats one. A last line without its end is no
/// error: its writer was interrupted.
///
/// # Examples
/// ```no_run
/// use iteragpu_lab::explore::report;
///
/// let report = report("exploration.jsonl")?;
/// println!("{}", report.table());
/// std::fs::write("exploration.html", report.page()).ok();
/// # Ok::<(), iteragpu_lab::LabError>(())
/// ```
pub fn report(path: impl AsRef<Path>) -> Result<Report, LabError> {
    let path = path.as_ref();
    let (mut source, mut reading, mut last_line_cut) = (Source::open(path)?, Reading::default(), false);
    for number in 1.. {
        let Some(line) = source.next()? else { break };
        if !line.ends_with(b"\n") {
            // Not read to the end, unless nothing follows.
            if source.next()?.is_some() {
                return Err(refused(path, number, "est trop longue"));
            }
            last_line_cut = true;
            break;
        }
        reading.take(&line).map_err(|words| refused(path, number, words))?;
    }
    if reading.explorations.is_empty() {
        let path = shortened(&path.to_string_lossy(), 120);
        return Err(LabError::ExplorationRefused { path, reason: "aucun plan n'y figure".to_owned() });
    }
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    Ok(Report {
        kind: "exploration_report".to_owned(),
        file: shortened(&name, 120),
        last_line_cut,
        explorations: reading.explorations.into_iter().map(Exploration::report).collect(),
    })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", json::Pretty(self))
    }
}

impl ExplorationReport {
    /// Whether every planned run is there, measured or failed.
    pub fn is_finished(&self) -> bool {
        self.missing_runs == 0
    }
}

/// What the lines so far have said.
#[derive(Default)]
struct Reading {
    explorations: Vec<Exploration>,
    places: HashMap<String, usize>,
}

impl Reading {
    fn take(&mut self, line: &[u8]) -> Result<(), &'static str> {
        match Record::of(line)? {
            Record::Plan(plan) => self.begin(*plan),
            Record::Run(run) => {
                let place = self.places.get(&run.exploration_id);
                let exploration = place.and_then(|place| self.explorations.get_mut(*place));
                exploration.ok_or("n'est d'aucun des plans qui la précèdent")?.take(&run)
            }
        }
    }

    fn begin(&mut self, plan: PlanRecord) -> Result<(), &'static str> {
        if self.explorations.len() == MAX_EXPLORATIONS {
            return Err("commence une exploration de trop : 1000 au plus par fichier");
        }
        if self.places.insert(plan.exploration_id.clone(), self.explorations.len()).is_some() {
            return Err("répète un plan");
        }
        self.explorations.push(Exploration::new(plan));
        Ok(())
    }
}

/// One exploration while it is read.
struct Exploration {
    record: PlanRecord,
    done: Vec<bool>,
    points: Vec<Point>,
    failures: Vec<FailedRun>,
}

impl Exploration {
    fn new(record: PlanRecord) -> Self {
        // Even, so that what is thinned out stays evenly spaced.
        let room = (MAX_KEPT / record.plan.points.len()).clamp(32, 1 << 16) & !1;
        let points = record.plan.points.iter().map(|_| Point::new(room)).collect();
        Self { done: vec![false; record.plan.runs.len()], points, failures: Vec::new(), record }
    }

    fn take(&mut self, run: &RunRecord) -> Result<(), &'static str> {
        const NOT_PLANNED: &str = "n'est pas du plan";
        if !self.record.holds(run) {
            return Err(NOT_PLANNED);
        }
        let (planned, _) = self.record.planned(run.run_index).ok_or(NOT_PLANNED)?;
        // `holds` has found it in the plan: it counts from 1 on.
        let done = self.done.get_mut(run.run_index as usize - 1).ok_or(NOT_PLANNED)?;
        if std::mem::replace(done, true) {
            return Err("répète une mesure");
        }
        let point = self.points.get_mut(planned.point).ok_or(NOT_PLANNED)?;
        match &run.measurement {
            Some(measurement) if measurement.environment != self.record.environment => {
                return Err("a été mesurée dans un autre environnement que celui de son plan");
            }
            Some(measurement) => point.take(run.trial, measurement),
            None => {
                point.failed_runs += 1;
                let reason = shortened(run.reason.as_deref().unwrap_or_default(), MAX_REASON);
                self.failures.push(FailedRun { point: planned.point, trial: run.trial, reason });
            }
        }
        Ok(())
    }

    fn report(self) -> ExplorationReport {
        let points: Vec<PointReport> = self.points.into_iter().map(Point::report).collect();
        let measured_runs = points.iter().map(|point| point.measured_runs).sum();
        let failed_runs = self.failures.len() as u64;
        ExplorationReport {
            missing_runs: self.done.iter().filter(|done| !**done).count() as u64,
            exploration_id: self.record.exploration_id,
            started_at_utc: self.record.started_at_utc,
            environment: self.record.environment,
            plan: self.record.plan,
            measured_runs,
            failed_runs,
            points,
            failures: self.failures,
        }
    }
}

/// One point while it is read.
struct Point {
    measured_runs: u64,
    failed_runs: u64,
    warm_forward: Sample,
    device_forward: Sample,
    device_graph_replay: Sample,
    allocated: Option<Extremes>,
    reserved: Option<Extremes>,
    simulation: Option<Result<SimulatedPeaks, String>>,
}

impl Point {
    fn new(room: usize) -> Self {
        Self {
            measured_runs: 0,
            failed_runs: 0,
            warm_forward: Sample::new(room),
            device_forward: Sample::new(room),
            device_graph_replay: Sample::new(room),
            allocated: None,
            reserved: None,
            simulation: None,
        }
    }

    fn take(&mut self, trial: u64, measurement: &Measurement) {
        self.measured_runs += 1;
        for row in measurement.phases.iter().filter(|row| row.phase == PHASES[4]) {
            self.warm_forward.add(trial, row.elapsed_seconds);
        }
        if let Some(time) = &measurement.device_time {
            self.device_forward.add(trial, time.forward.median_device_seconds);
            if let Some(replay) = &time.graph_replay {
                self.device_graph_replay.add(trial, replay.median_device_seconds);
            }
        }
        let phases = &measurement.phases;
        Extremes::widen(&mut self.allocated, phases.iter().map(|row| row.peak_allocated_bytes).max());
        Extremes::widen(&mut self.reserved, phases.iter().map(|row| row.peak_reserved_bytes).max());
        // The same for every trial: configuration and environment are.
        self.simulation.get_or_insert_with(|| simulated_peaks(measurement));
    }

    fn report(self) -> PointReport {
        let (simulated, simulation_note) = match self.simulation {
            Some(Ok(peaks)) => (Some(peaks), None),
            Some(Err(reason)) => (None, Some(reason)),
            None => (None, None),
        };
        PointReport {
            measured_runs: self.measured_runs,
            failed_runs: self.failed_runs,
            warm_forward: self.warm_forward.times(),
            device_forward: self.device_forward.times(),
            device_graph_replay: self.device_graph_replay.times(),
            peak_allocated_bytes: self.allocated,
            peak_reserved_bytes: self.reserved,
            simulated,
            simulation_note,
        }
    }
}

fn simulated_peaks(measurement: &Measurement) -> Result<SimulatedPeaks, String> {
    let simulation = simulation_of(measurement).map_err(|error| error.to_string())?;
    let rows = &simulation.phases;
    Ok(SimulatedPeaks {
        peak_allocated_bytes: rows.iter().map(|row| row.peak_allocated_bytes).max().unwrap_or_default(),
        peak_reserved_bytes: rows.iter().map(|row| row.peak_reserved_bytes).max().unwrap_or_default(),
    })
}

impl Extremes {
    fn widen(extremes: &mut Option<Self>, value: Option<u64>) {
        if let Some(value) = value {
            let Self { min, max } = extremes.unwrap_or(Self { min: value, max: value });
            *extremes = Some(Self { min: min.min(value), max: max.max(value) });
        }
    }
}

/// SampledTimes as they come: one in every `step` is kept, and `step` doubles whenever there is no more room.
struct Sample {
    room: usize,
    step: u64,
    count: u64,
    min: f64,
    max: f64,
    kept: Vec<Observation>,
}

impl Sample {
    fn new(room: usize) -> Self {
        Self { room, step: 1, count: 0, min: f64::INFINITY, max: 0.0, kept: Vec::new() }
    }

    fn add(&mut self, trial: u64, seconds: f64) {
        if self.kept.len() == self.room {
            let mut stays = false;
            self.kept.retain(|_| {
                stays = !stays;
                stays
            });
            self.step *= 2;
        }
        if self.count.is_multiple_of(self.step) {
            self.kept.push(Observation { trial, seconds });
        }
        self.count += 1;
        self.min = self.min.min(seconds);
        self.max = self.max.max(seconds);
    }

    fn times(self) -> Option<SampledTimes> {
        let mut seconds: Vec<f64> = self.kept.iter().map(|observation| observation.seconds).collect();
        Some(SampledTimes {
            count: self.count,
            min_seconds: self.min,
            median_seconds: Spread::of_times(&mut seconds)?.median,
            max_seconds: self.max,
            observations: self.kept,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Outcome = Result<(), &'static str>;

    fn times(room: usize, count: u64) -> Option<SampledTimes> {
        let mut sample = Sample::new(room);
        (0..count).for_each(|number| sample.add(1 + number % 3, number as f64));
        sample.times()
    }

    #[test]
    fn nothing_is_left_out_until_there_are_too_many() {
        assert_eq!(times(32, 0), None);
        for count in 1..=32 {
            let all = times(32, count);
            assert!(
                all.is_some_and(|times| times.observations.len() as u64 == count
                    && times.median_seconds == (count - 1) as f64 / 2.0)
            );
        }
    }

    #[test]
    fn too_many_are_thinned_evenly_and_their_extremes_stay() -> Outcome {
        for count in [33, 63, 64, 65, 1_000, 4_097] {
            let times = times(32, count).ok_or("no times")?;
            assert_eq!((times.count, times.min_seconds, times.max_seconds), (count, 0.0, (count - 1) as f64));
            let kept: Vec<u64> = times.observations.iter().map(|observation| observation.seconds as u64).collect();
            let step = kept[1];
            assert!(step.is_power_of_two() && (16..=32).contains(&kept.len()), "{count}: {kept:?}");
            assert_eq!(kept, (0..count).step_by(step as usize).collect::<Vec<_>>());
            assert!((times.median_seconds - count as f64 / 2.0).abs() <= step as f64, "{count}");
        }
        Ok(())
    }
}
