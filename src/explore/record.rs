//! The lines of an exploration's file, one JSON object each: its plan, then one line a run. A merged
//! file holds several plans, each before its runs.

use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, Read};

use chrono::DateTime;
use serde::{Deserialize, Serialize};

use super::plan::{Plan, PlannedRun};
use crate::environment::EnvironmentReport;
use crate::measure::{MeasureConfig, Measurement, check};

/// A longer line is no line of ours: 64 MiB, which a run of the most repetitions of a plan does not reach.
const LONGEST_LINE: u64 = 64 << 20;

const PLAN: &str = "exploration_plan";
const RUN: &str = "exploration_run";

/// The first line of an exploration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanRecord {
    /// 1.
    pub schema_version: u32,
    /// `iteragpu-lab-v1`.
    pub artifact: String,
    /// Always `exploration_plan`.
    pub kind: String,
    /// 16 hexadecimal digits drawn when the exploration began: its runs carry them, too.
    pub exploration_id: String,
    /// Start, UTC, RFC 3339 with microseconds.
    pub started_at_utc: String,
    /// The environment that every run is measured in.
    pub environment: EnvironmentReport,
    /// Points and order.
    pub plan: Plan,
}

/// One run: a measurement in a fresh process, or the reason why it failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Always `exploration_run`.
    pub kind: String,
    /// Of its exploration.
    pub exploration_id: String,
    /// Place in the plan's `runs`, from 1 on.
    pub run_index: u64,
    /// Number of the trial, from 1 on.
    pub trial: u64,
    /// What was to be measured.
    pub configuration: MeasureConfig,
    /// End, UTC, RFC 3339 with microseconds.
    pub ended_at_utc: String,
    /// `null` when the run failed.
    pub measurement: Option<Measurement>,
    /// Why it failed, in French; absent when it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// An exploration begins.
    Plan(Box<PlanRecord>),
    /// One of its runs has ended.
    Run(Box<RunRecord>),
}

impl PlanRecord {
    /// A new exploration, which begins now.
    pub(crate) fn new(plan: Plan, environment: EnvironmentReport) -> Self {
        Self {
            schema_version: 1,
            artifact: "iteragpu-lab-v1".to_owned(),
            kind: PLAN.to_owned(),
            // fastrand would draw from the time since the machine started, which many rented ones share.
            exploration_id: format!("{:016x}", RandomState::new().hash_one(())),
            started_at_utc: crate::measure::now(),
            environment,
            plan,
        }
    }

    /// The run at `run_index`, from 1 on.
    pub(crate) fn planned(&self, run_index: u64) -> Option<(PlannedRun, &MeasureConfig)> {
        let run = *self.plan.runs.get(usize::try_from(run_index.checked_sub(1)?).ok()?)?;
        Some((run, self.plan.points.get(run.point)?))
    }

    /// Whether it is a line that [`PlanRecord::new`] could have written.
    fn is_consistent(&self) -> bool {
        (self.schema_version, self.artifact.as_str()) == (1, "iteragpu-lab-v1")
            && number_of(&self.exploration_id).is_some()
            && DateTime::parse_from_rfc3339(&self.started_at_utc).is_ok()
            && self.plan.is_consistent()
    }

    /// Whether `measurement` was made in this exploration's environment and has what its plan asks for.
    fn is_made_so(&self, measurement: &Measurement) -> bool {
        measurement.environment == self.environment
            && measurement.device_time.as_ref().map(|time| time.passes) == self.plan.device_passes
    }

    /// Whether `run` is one of this exploration's, as planned.
    pub(crate) fn holds(&self, run: &RunRecord) -> bool {
        let planned = self.planned(run.run_index);
        run.exploration_id == self.exploration_id
            && run.measurement.as_ref().is_none_or(|measurement| self.is_made_so(measurement))
            && planned.is_some_and(|(planned, point)| planned.trial == run.trial && *point == run.configuration)
    }
}

impl RunRecord {
    /// The run at `run_index` of `exploration`, which ended now; none where none is planned.
    pub(crate) fn new(exploration: &PlanRecord, run_index: u64, outcome: Result<Measurement, String>) -> Option<Self> {
        let (run, configuration) = exploration.planned(run_index)?;
        Some(Self {
            kind: RUN.to_owned(),
            exploration_id: exploration.exploration_id.clone(),
            run_index,
            trial: run.trial,
            configuration: configuration.clone(),
            ended_at_utc: crate::measure::now(),
            reason: outcome.as_ref().err().cloned(),
            measurement: outcome.ok(),
        })
    }

    /// A complete measurement of its configuration, or else a reason.
    fn is_consistent(&self) -> bool {
        match (&self.measurement, &self.reason) {
            (Some(measurement), None) => {
                measurement.configuration.chosen == self.configuration && check(measurement).is_ok()
            }
            (None, Some(_)) => true,
            _ => false,
        }
    }
}

impl Record {
    /// Reads one line, or says in French what is wrong with it.
    pub(crate) fn of(line: &[u8]) -> Result<Self, &'static str> {
        #[derive(Deserialize)]
        struct Kind {
            kind: String,
        }
        const NOT_JSON: &str = "n'est pas une ligne d'exploration";
        const INCOMPLETE: &str = "n'a pas toutes les clés attendues";
        // Nearly every line is a run: it is read once.
        if let Ok(run) = serde_json::from_slice::<RunRecord>(line)
            && run.kind == RUN
        {
            return if run.is_consistent() {
                Ok(Self::Run(Box::new(run)))
            } else {
                Err("contient une mesure incohérente")
            };
        }
        let Kind { kind } = serde_json::from_slice(line).map_err(|_| NOT_JSON)?;
        match kind.as_str() {
            PLAN => {
                let plan: PlanRecord = serde_json::from_slice(line).map_err(|_| INCOMPLETE)?;
                if plan.is_consistent() { Ok(Self::Plan(Box::new(plan))) } else { Err("contient un plan incohérent") }
            }
            RUN => Err(INCOMPLETE),
            _ => Err(NOT_JSON),
        }
    }
}

/// What the 16 hexadecimal digits of an exploration's identifier are; none for any other text.
pub(crate) fn number_of(exploration_id: &str) -> Option<u64> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_ours = exploration_id.len() == 16 && exploration_id.bytes().all(is_digit);
    u64::from_str_radix(exploration_id, 16).ok().filter(|_| is_ours)
}

/// What comes next in a file of explorations.
pub(crate) enum NextLine {
    /// A line with its newline.
    Whole(Vec<u8>),
    /// The rest, without a newline: its writer was interrupted.
    Cut,
    /// No line of ours.
    TooLong,
    /// Nothing.
    End,
}

/// What a refusal says of [`NextLine::TooLong`].
pub(crate) const TOO_LONG: &str = "est trop longue";

pub(crate) fn next_line(input: &mut impl BufRead) -> std::io::Result<NextLine> {
    let mut line = Vec::new();
    let read = input.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)?;
    Ok(match read {
        0 => NextLine::End,
        _ if line.ends_with(b"\n") => NextLine::Whole(line),
        // Not read to its end, unless nothing follows.
        _ if input.fill_buf()?.is_empty() => NextLine::Cut,
        _ => NextLine::TooLong,
    })
}
