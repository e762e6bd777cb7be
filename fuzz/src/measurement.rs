//! A measurement's JSON of any bytes: refused, or recorded and shown as it is.

use std::collections::BTreeMap;
use std::fs;

use iteragpu_lab::compare::{MeasurementComparison, Verdict};
use iteragpu_lab::results::{COLUMNS, read_measurement, run_id};
use iteragpu_lab::simulation::compare_with_simulation;
use iteragpu_lab::{LabError, Measurement, append, compare_measurements, summarize};

use crate::MEASUREMENT;
use crate::inert::{assert_refused, assert_shows};
use crate::scratch;

pub fn check(data: &[u8]) {
    let outcome = read_measurement(&scratch::holding("mesure.json", data));
    match &outcome {
        Ok(measurement) => {
            assert_json(measurement);
            assert_shows(&outcome);
            assert_simulated(measurement);
            assert_beside_another(measurement);
            assert_recorded(measurement);
        }
        Err(error) => {
            assert!(matches!(error, LabError::NotAMeasurement { .. }), "{error:?}");
            assert_refused(&outcome);
        }
    }
}

/// What is read says the same when it is written and read again.
fn assert_json(measurement: &Measurement) {
    let json = measurement.to_string();
    assert_eq!(serde_json::from_str::<Measurement>(&json).unwrap(), *measurement);
    let measured = Measurement { simulation: None, ..measurement.clone() }.to_string();
    let hash = measured
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    assert_eq!(run_id(measurement), format!("{}-{hash:016x}", measurement.measured_at_utc));
}

/// What it was simulated to be is shown, whatever it says; so is what it is compared to.
fn assert_simulated(measurement: &Measurement) {
    if let Some(simulation) = &measurement.simulation {
        assert_shows(&Ok(simulation.clone()));
    }
    let compared = compare_with_simulation(measurement);
    assert_shows(&compared);
    if let Ok(comparison) = compared {
        let equal = comparison.rows.iter().all(|row| row.differences() == [0; 6]);
        assert_eq!(comparison.identical, equal && comparison.rows.len() == measurement.phases.len());
    }
}

/// Beside a measurement known to be good, one way round says the contrary of the other; nothing is
/// ranked across environments.
fn assert_beside_another(measurement: &Measurement) {
    let good: Measurement = serde_json::from_slice(MEASUREMENT).unwrap();
    let (forth, back) = (compare_measurements(&good, measurement), compare_measurements(measurement, &good));
    assert_shows(&forth);
    assert_shows(&back);
    let (Ok(forth), Ok(back)) = (forth, back) else {
        return assert_eq!(measurement.phases, good.phases, "only a measurement beside itself is refused");
    };
    assert_eq!(serde_json::from_str::<MeasurementComparison>(&forth.to_string()).unwrap(), forth);
    for (row, mirror) in forth.counters.rows.iter().zip(&back.counters.rows) {
        assert_eq!(row.differences(), mirror.differences().map(|difference| -difference));
    }
    for (times, mirror) in forth.times.iter().zip(&back.times) {
        assert_eq!((times.first, times.second), (mirror.second, mirror.first));
        let ratios = [times.smallest_ratio, times.ratio_of_medians, times.largest_ratio];
        assert!(ratios.iter().flatten().all(|ratio| ratio.is_finite()));
        assert!(ratios.iter().flatten().is_sorted(), "{ratios:?}");
    }
    if forth.ranking.verdict.is_some() {
        assert!(forth.environment_unknown.is_empty());
        assert!(!forth.environment_differences.iter().any(|found| found.forbids_ranking));
    }
    assert_eq!(forth.ranking.verdict.is_some(), back.ranking.verdict.is_some());
    assert_eq!(
        forth.ranking.verdict == Some(Verdict::FirstFaster),
        back.ranking.verdict == Some(Verdict::SecondFaster)
    );
}

/// A new file gets one row a pass, which reads back as what was measured; only once.
fn assert_recorded(measurement: &Measurement) {
    let file = scratch::fresh("resultats.csv");
    let appended = append(measurement, &file);
    assert_shows(&appended);
    assert_eq!(appended.unwrap().rows, measurement.phases.len() as u64);
    let written = fs::read(&file).unwrap();
    assert_rows(measurement, &written);
    assert_summary(measurement, &file);
    assert!(matches!(append(measurement, &file), Err(LabError::RunAlreadyRecorded { line: 2, .. })));
    assert_eq!((fs::read(&file).unwrap(), scratch::files()), (written, 1));
}

fn assert_rows(measurement: &Measurement, written: &[u8]) {
    let mut reader = csv::Reader::from_reader(written);
    assert_eq!(reader.headers().unwrap(), COLUMNS);
    let rows: Vec<BTreeMap<String, String>> = reader.deserialize().map(Result::unwrap).collect();
    assert_eq!(rows.len(), measurement.phases.len());
    for (cells, row) in rows.iter().zip(&measurement.phases) {
        assert_eq!(cells["phase"], row.phase);
        assert_eq!(cells["elapsed_seconds"].parse::<f64>().unwrap().to_bits(), row.elapsed_seconds.to_bits());
        assert_eq!(cells["peak_reserved_bytes"], row.peak_reserved_bytes.to_string());
        for cell in cells.values() {
            assert!(!cell.trim_start().starts_with(['=', '+', '-', '@']), "a formula: {cell}");
        }
    }
}

fn assert_summary(measurement: &Measurement, file: &std::path::Path) {
    let outcome = summarize(file);
    assert_shows(&outcome);
    let summary = outcome.unwrap();
    assert_eq!((summary.rows, summary.runs), (measurement.phases.len() as u64, 1));
    assert_eq!(summary.environments.len(), 1);
    assert_eq!(summary.environments[0].configurations.len(), 1);
    for phase in &summary.environments[0].configurations[0].phases {
        let rows: Vec<_> = measurement.phases.iter().filter(|row| row.phase == phase.phase).collect();
        assert_eq!(phase.count, rows.len() as u64);
        assert_eq!(phase.peak_allocated_bytes.max, rows.iter().map(|row| row.peak_allocated_bytes).max().unwrap());
        assert_eq!(phase.elapsed_seconds.min, rows.iter().map(|row| row.elapsed_seconds).fold(f64::MAX, f64::min));
    }
}
