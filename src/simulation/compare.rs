//! A measurement beside its simulation, row by row.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{AllocatorProfile, SimulatedRow, Simulation, simulate};
use crate::environment::EnvironmentReport;
use crate::error::{LabError, shortened};
use crate::json;
use crate::measure::{Measurement, PhaseRow};
use crate::settings::RuntimeSettings;

/// Characters of a version in a message.
const MAX_VERSION: usize = 40;

/// Differences between what was measured and what is simulated. `Display` prints it as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comparison {
    /// Always `allocator_simulation_comparison`.
    pub kind: String,
    /// Whether every counter of every row is the same.
    pub identical: bool,
    /// The profile that was simulated.
    pub profile: AllocatorProfile,
    /// One entry a phase, in the order in which they ran.
    pub rows: Vec<RowComparison>,
}

/// Counters of one row minus those of the row beside it, in bytes: measured minus simulated, or second
/// measurement minus first. All are 0 where the two are equal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowComparison {
    /// Name of the phase.
    pub phase: String,
    /// 0, or the number of the repetition from 1 on.
    pub run_index: u64,
    /// Of allocated before the phase.
    pub baseline_allocated_difference_bytes: i128,
    /// Of reserved before the phase.
    pub baseline_reserved_difference_bytes: i128,
    /// Of allocated after the phase.
    pub end_allocated_difference_bytes: i128,
    /// Of reserved after the phase.
    pub end_reserved_difference_bytes: i128,
    /// Of the maximum of allocated.
    pub peak_allocated_difference_bytes: i128,
    /// Of the maximum of reserved.
    pub peak_reserved_difference_bytes: i128,
}

/// Simulates the configuration of a measurement, for its GPU.
///
/// # Errors
/// [`LabError::NotModelled`] when the measurement was made by another version than PyTorch 2.11
/// for CUDA, or under other settings than its defaults, or when [`simulate`] refuses its figures.
pub fn simulation_of(measurement: &Measurement) -> Result<Simulation, LabError> {
    if let Some(what) = not_modelled(&measurement.environment) {
        return Err(LabError::NotModelled { what });
    }
    // The figures are the file's: no option of a command line is to be corrected.
    simulate(&measurement.configuration.chosen, &AllocatorProfile::of_measurement(measurement))
        .map_err(|error| LabError::NotModelled { what: error.to_string().trim_end_matches('.').to_owned() })
}

/// What of an environment the simulation does not follow. Where nothing is said of settings, the evidence
/// of the profile tells what was taken.
fn not_modelled(environment: &EnvironmentReport) -> Option<String> {
    let shown = |text: &str| shortened(text, MAX_VERSION);
    if let Some(version) = &environment.hip_build_version {
        return Some(format!("PyTorch pour ROCm (HIP {})", shown(version)));
    }
    match &environment.torch_version {
        None => return Some("PyTorch de version inconnue".to_owned()),
        Some(version) if !version.starts_with("2.11.") => return Some(format!("PyTorch {}", shown(version))),
        Some(_) => {}
    }
    let different = environment.runtime_settings.as_ref().and_then(RuntimeSettings::differences);
    different.map(|different| format!("réglages de PyTorch {different}"))
}

/// Simulates the configuration of a measurement and compares every counter.
///
/// # Errors
/// As [`simulation_of`].
pub fn compare_with_simulation(measurement: &Measurement) -> Result<Comparison, LabError> {
    let simulation = simulation_of(measurement)?;
    let rows: Vec<RowComparison> = measurement.phases.iter().zip(&simulation.phases).map(compared).collect();
    let complete = measurement.phases.len() == simulation.phases.len();
    let identical = complete && rows.iter().all(RowComparison::is_equal);
    let profile = simulation.profile;
    Ok(Comparison { kind: "allocator_simulation_comparison".to_owned(), identical, profile, rows })
}

/// The same for a measurement's outcome, so that a notebook cell can call this whether or not the
/// measurement took place.
///
/// # Errors
/// [`LabError::NothingToCompare`] with the reason when there is no measurement, else as
/// [`simulation_of`].
pub fn compare_outcome(outcome: &Result<Measurement, LabError>) -> Result<Comparison, LabError> {
    match outcome {
        Ok(measurement) => compare_with_simulation(measurement),
        Err(error) => Err(LabError::NothingToCompare { reason: error.to_string() }),
    }
}

fn compared((measured, simulated): (&PhaseRow, &SimulatedRow)) -> RowComparison {
    RowComparison::between(measured, simulated.counters())
}

impl RowComparison {
    /// The counters of a row minus those of another one.
    pub(crate) fn between(row: &PhaseRow, other: [u64; 6]) -> Self {
        let counters = row.counters();
        let difference = |place: usize| i128::from(counters[place]) - i128::from(other[place]);
        Self {
            phase: row.phase.clone(),
            run_index: row.run_index,
            baseline_allocated_difference_bytes: difference(0),
            baseline_reserved_difference_bytes: difference(1),
            end_allocated_difference_bytes: difference(2),
            end_reserved_difference_bytes: difference(3),
            peak_allocated_difference_bytes: difference(4),
            peak_reserved_difference_bytes: difference(5),
        }
    }

    /// Whether all six are 0.
    pub(crate) fn is_equal(&self) -> bool {
        self.differences() == [0; 6]
    }

    /// All six, in the order of the fields.
    pub fn differences(&self) -> [i128; 6] {
        [
            self.baseline_allocated_difference_bytes,
            self.baseline_reserved_difference_bytes,
            self.end_allocated_difference_bytes,
            self.end_reserved_difference_bytes,
            self.peak_allocated_difference_bytes,
            self.peak_reserved_difference_bytes,
        ]
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", json::Pretty(self))
    }
}
