//! What the file of an exploration says, for tables, charts and a page. It is read line by line, and only
//! the figures that these need are kept: a merged file may hold a million runs.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::merge::{Source, refused};
use super::plan::Plan;
use super::record::{NextLine, PlanRecord, Record, RunRecord, TOO_LONG};
use crate::environment::EnvironmentReport;
use crate::error::{LabError, shortened};
use crate::json;
use crate::measure::{Measurement, WARM_FORWARD};
use crate::simulation::simulation_of;
use crate::spread::Spread;

/// Times that are kept of a whole file, 16 bytes each; points share them out evenly.
const MAX_KEPT: usize = 4 << 20;

/// Times that are kept of one point, at most and, however many points there are, at least.
const MAX_ROOM: usize = 1 << 16;
const MIN_ROOM: usize = 32;

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

/// Times in seconds.
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
    let (mut source, mut reading, mut last_line_cut) = (Source::open(path)?, Reading::new(MAX_KEPT), false);
    for number in 1.. {
        let line = match source.next()? {
            NextLine::Whole(line) => line,
            NextLine::TooLong => return Err(refused(path, number, TOO_LONG)),
            NextLine::Cut => {
                last_line_cut = true;
                break;
            }
            NextLine::End => break,
        };
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
struct Reading {
    explorations: Vec<Exploration>,
    places: HashMap<String, usize>,
    /// Times kept of all points, and how many may be.
    kept: usize,
    max_kept: usize,
    /// Times that a point may keep.
    room: usize,
}

impl Reading {
    fn new(max_kept: usize) -> Self {
        Self { explorations: Vec::new(), places: HashMap::new(), kept: 0, max_kept, room: MAX_ROOM }
    }

    fn take(&mut self, line: &[u8]) -> Result<(), &'static str> {
        match Record::of(line)? {
            Record::Plan(plan) => self.begin(*plan),
            Record::Run(run) => self.add(&run),
        }
    }

    fn begin(&mut self, plan: PlanRecord) -> Result<(), &'static str> {
        if self.places.insert(plan.exploration_id.clone(), self.explorations.len()).is_some() {
            return Err("répète un plan");
        }
        self.explorations.push(Exploration::new(plan));
        Ok(())
    }

    fn add(&mut self, run: &RunRecord) -> Result<(), &'static str> {
        let place = self.places.get(&run.exploration_id);
        let exploration = place.and_then(|place| self.explorations.get_mut(*place));
        let point = exploration.ok_or("n'est d'aucun des plans qui la précèdent")?.take(run)?;
        if let Some(measurement) = &run.measurement {
            let before = point.kept();
            point.add(run.trial, measurement, self.room);
            self.kept = self.kept + point.kept() - before;
        }
        while self.kept > self.max_kept && self.room > MIN_ROOM {
            self.halve_room();
        }
        Ok(())
    }

    fn halve_room(&mut self) {
        self.room /= 2;
        self.kept = 0;
        for point in self.explorations.iter_mut().flat_map(|exploration| &mut exploration.points) {
            point.thin(self.room);
            self.kept += point.kept();
        }
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
        let points = record.plan.points.iter().map(|_| Point::default()).collect();
        Self { done: vec![false; record.plan.runs.len()], points, failures: Vec::new(), record }
    }

    /// Notes that a run is there, and gives its point.
    fn take(&mut self, run: &RunRecord) -> Result<&mut Point, &'static str> {
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
            Some(_) => point.measured_runs += 1,
            None => {
                point.failed_runs += 1;
                let reason = shortened(run.reason.as_deref().unwrap_or_default(), MAX_REASON);
                self.failures.push(FailedRun { point: planned.point, trial: run.trial, reason });
            }
        }
        Ok(point)
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
#[derive(Default)]
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
    fn kept(&self) -> usize {
        self.warm_forward.kept.len() + self.device_forward.kept.len() + self.device_graph_replay.kept.len()
    }

    fn thin(&mut self, room: usize) {
        let samples = [&mut self.warm_forward, &mut self.device_forward, &mut self.device_graph_replay];
        samples.into_iter().for_each(|sample| sample.thin(room));
    }

    fn add(&mut self, trial: u64, measurement: &Measurement, room: usize) {
        for row in measurement.phases.iter().filter(|row| row.phase == WARM_FORWARD) {
            self.warm_forward.add(trial, row.elapsed_seconds, room);
        }
        if let Some(time) = &measurement.device_time {
            self.device_forward.add(trial, time.forward.median_device_seconds, room);
            if let Some(replay) = &time.graph_replay {
                self.device_graph_replay.add(trial, replay.median_device_seconds, room);
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

/// Times as they come: one in every `step` is kept, and `step` doubles whenever there is no more room.
struct Sample {
    step: u64,
    count: u64,
    min: f64,
    max: f64,
    kept: Vec<Observation>,
}

impl Default for Sample {
    fn default() -> Self {
        Self { step: 1, count: 0, min: f64::INFINITY, max: 0.0, kept: Vec::new() }
    }
}

impl Sample {
    fn add(&mut self, trial: u64, seconds: f64, room: usize) {
        if self.count.is_multiple_of(self.step) {
            self.kept.push(Observation { trial, seconds });
            self.thin(room);
        }
        self.count += 1;
        self.min = self.min.min(seconds);
        self.max = self.max.max(seconds);
    }

    fn thin(&mut self, room: usize) {
        while self.kept.len() > room {
            let mut stays = false;
            self.kept.retain(|_| {
                stays = !stays;
                stays
            });
            self.kept.shrink_to(room);
            self.step *= 2;
        }
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
    use crate::explore::PlanOptions;
    use crate::measure::{MeasureConfig, PhaseRow};

    type Outcome = Result<(), Box<dyn std::error::Error>>;

    fn times(room: usize, count: u64) -> Option<SampledTimes> {
        let mut sample = Sample::default();
        (0..count).for_each(|number| sample.add(1 + number % 3, number as f64, room));
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

    /// Four points, three trials of fifty repetitions: their times are thinned, their numbers and extremes are not.
    #[test]
    fn a_file_keeps_no_more_times_than_it_may() -> Outcome {
        let text = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/mesures/h200-golden.json"))?;
        let kept: serde_json::Value = serde_json::from_slice(&text)?;
        let mut measurement: Measurement = serde_json::from_value(kept["measurements"][0].clone())?;
        let row = measurement.phases.pop().ok_or("no phase")?;
        measurement.phases =
            (1..=50).map(|index| PhaseRow { elapsed_seconds: f64::from(index), ..row.clone() }).collect();
        let options = PlanOptions { trials: 3, ..PlanOptions::default() };
        let plan = Plan::new(MeasureConfig::default(), &["width=1,2,3,4"], &options)?;
        let plan = PlanRecord::new(plan, measurement.environment.clone());
        for (max_kept, expected) in [(600, 150), (400, 75), (200, 38), (10, 19)] {
            let mut reading = Reading::new(max_kept);
            // So that halving it soon tells.
            reading.room = 256;
            reading.begin(plan.clone())?;
            for index in 1..=12 {
                let run = RunRecord::new(&plan, index, Ok(measurement.clone())).ok_or("not planned")?;
                reading.add(&run)?;
            }
            assert!(reading.kept <= max_kept.max(4 * MIN_ROOM), "{max_kept}: {}", reading.kept);
            let report = reading.explorations.pop().ok_or("no exploration")?.report();
            for point in report.points {
                let times = point.warm_forward.ok_or("no times")?;
                assert_eq!((times.count, times.min_seconds, times.max_seconds), (150, 1.0, 50.0));
                assert_eq!(times.observations.len(), expected, "{max_kept}");
                assert!((times.median_seconds - 25.5).abs() <= 2.0, "{max_kept}: {}", times.median_seconds);
            }
        }
        Ok(())
    }
}
