//! `resultats-bruts.csv`: one row for every real pass. Rows are added from measurements and never
//! altered; people fill in what only they can judge.
//!
//! Every column is described in `docs/resultats.md`. An empty cell means unknown; it is never 0.

mod append;
mod summary;
mod units;

pub use append::{Appended, append, read_measurement, run_id};
pub use summary::{
    ConfigurationSummary, EnvironmentSummary, PhaseSummary, RowConfiguration, RowEnvironment, Summary, summarize,
};
pub use units::{AcceptedUnits, UnitSet, accepted_units};

pub use crate::spread::Spread;

/// Columns of a results file, in the order in which it is written. A file may hold them in
/// another order. A measurement fills those up to `peak_reserved_bytes`, people the others.
pub const COLUMNS: &[&str] = &[
    "run_id",
    "measured_at_utc",
    "platform",
    "lab_version",
    "tch_version",
    "torch_version",
    "cuda_build_version",
    "driver_version",
    "device",
    "device_name",
    "device_total_bytes",
    "runtime_settings",
    "batch",
    "context",
    "width",
    "dtype",
    "warmup",
    "repeats",
    "seed",
    "phase",
    "run_index",
    "iterations",
    "elapsed_seconds",
    "baseline_allocated_bytes",
    "baseline_reserved_bytes",
    "end_allocated_bytes",
    "end_reserved_bytes",
    "peak_allocated_bytes",
    "peak_reserved_bytes",
    "work_unit",
    "unit_set",
    "attempted_units",
    "accepted_units",
    "rule_version",
    "price_reference",
    "remark",
];

/// The blank grid that this project ships; it stays blank.
const BLANK_GRID: &str = "resultats-bruts.csv";

const RUN_ID: usize = 0;
const MEASURED_AT_UTC: usize = 1;
const PLATFORM: usize = 2;
const LAB_VERSION: usize = 3;
const TCH_VERSION: usize = 4;
const TORCH_VERSION: usize = 5;
const CUDA_BUILD_VERSION: usize = 6;
const DRIVER_VERSION: usize = 7;
const DEVICE: usize = 8;
const DEVICE_NAME: usize = 9;
const DEVICE_TOTAL_BYTES: usize = 10;
const RUNTIME_SETTINGS: usize = 11;
const BATCH: usize = 12;
const CONTEXT: usize = 13;
const WIDTH: usize = 14;
const DTYPE: usize = 15;
const WARMUP: usize = 16;
const REPEATS: usize = 17;
const SEED: usize = 18;
const PHASE: usize = 19;
const RUN_INDEX: usize = 20;
const ITERATIONS: usize = 21;
const ELAPSED_SECONDS: usize = 22;
/// The six counters stand side by side.
const COUNTERS: std::ops::Range<usize> = 23..29;
const WORK_UNIT: usize = 29;
const UNIT_SET: usize = 30;
const ATTEMPTED_UNITS: usize = 31;
const ACCEPTED_UNITS: usize = 32;
const RULE_VERSION: usize = 33;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_and_names_agree() {
        let named = [
            (RUN_ID, "run_id"),
            (MEASURED_AT_UTC, "measured_at_utc"),
            (PLATFORM, "platform"),
            (LAB_VERSION, "lab_version"),
            (TCH_VERSION, "tch_version"),
            (TORCH_VERSION, "torch_version"),
            (CUDA_BUILD_VERSION, "cuda_build_version"),
            (DRIVER_VERSION, "driver_version"),
            (DEVICE, "device"),
            (DEVICE_NAME, "device_name"),
            (DEVICE_TOTAL_BYTES, "device_total_bytes"),
            (RUNTIME_SETTINGS, "runtime_settings"),
            (BATCH, "batch"),
            (CONTEXT, "context"),
            (WIDTH, "width"),
            (DTYPE, "dtype"),
            (WARMUP, "warmup"),
            (REPEATS, "repeats"),
            (SEED, "seed"),
            (PHASE, "phase"),
            (RUN_INDEX, "run_index"),
            (ITERATIONS, "iterations"),
            (ELAPSED_SECONDS, "elapsed_seconds"),
            (COUNTERS.start, "baseline_allocated_bytes"),
            (COUNTERS.end - 1, "peak_reserved_bytes"),
            (WORK_UNIT, "work_unit"),
            (UNIT_SET, "unit_set"),
            (ATTEMPTED_UNITS, "attempted_units"),
            (ACCEPTED_UNITS, "accepted_units"),
            (RULE_VERSION, "rule_version"),
        ];
        for (index, name) in named {
            assert_eq!(COLUMNS[index], name);
        }
    }
}
