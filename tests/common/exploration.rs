//! Files of explorations that nobody measured: real environments, simulated counters, made-up times.

use std::fs;
use std::path::Path;

use iteragpu_lab::explore::{Plan, PlanOptions, PlanRecord, RunRecord};
use iteragpu_lab::measure::{DeviceSeconds, DeviceTime};
use iteragpu_lab::simulation::simulation_of;
use iteragpu_lab::{MeasureConfig, Measurement, PhaseRow};

pub type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// A real measurement of an H200, as it is kept in the documents.
pub fn measured() -> Outcome<Measurement> {
    let text = fs::read_to_string("docs/mesures/h200-golden.json")?;
    let mut kept: serde_json::Value = serde_json::from_str(&text)?;
    Ok(serde_json::from_value(kept["measurements"][0].take())?)
}

/// A plan of the H200 with an identifier of its own, around batch 1, context 16, two repetitions.
pub fn planned(id: &str, vary: &[&str], options: &PlanOptions) -> Outcome<PlanRecord> {
    let base = MeasureConfig { batch: 1, context: 16, width: 64, repeats: 2, ..MeasureConfig::default() };
    Ok(PlanRecord {
        schema_version: 1,
        artifact: "iteragpu-lab-v1".to_owned(),
        kind: "exploration_plan".to_owned(),
        exploration_id: id.to_owned(),
        started_at_utc: "2026-12-01T08:00:00.000000+00:00".to_owned(),
        environment: measured()?.environment,
        plan: Plan::new(base, vary, options)?,
    })
}

fn ended(record: &PlanRecord, run_index: u64) -> Outcome<RunRecord> {
    let plan = &record.plan;
    let run = plan.runs.get(run_index as usize - 1).ok_or("not planned")?;
    Ok(RunRecord {
        kind: "exploration_run".to_owned(),
        exploration_id: record.exploration_id.clone(),
        run_index,
        trial: run.trial,
        configuration: plan.points[run.point].clone(),
        ended_at_utc: "2026-12-01T08:01:00.000000+00:00".to_owned(),
        measurement: None,
        reason: None,
    })
}

/// The run at `run_index`, from 1 on, failed.
pub fn failed(record: &PlanRecord, run_index: u64, reason: &str) -> Outcome<RunRecord> {
    Ok(RunRecord { reason: Some(reason.to_owned()), ..ended(record, run_index)? })
}

/// The run at `run_index`, from 1 on, with these times of its repetitions and the counters of its simulation.
pub fn run(record: &PlanRecord, run_index: u64, seconds: &[f64]) -> Outcome<RunRecord> {
    let ended = ended(record, run_index)?;
    let mut measurement = Measurement { environment: record.environment.clone(), ..measured()? };
    measurement.configuration.chosen = ended.configuration.clone();
    let simulation = simulation_of(&measurement)?;
    let row = |row: &iteragpu_lab::simulation::SimulatedRow| PhaseRow {
        phase: row.phase.clone(),
        run_index: row.run_index,
        elapsed_seconds: row.run_index.checked_sub(1).map_or(0.01, |place| seconds[place as usize]),
        baseline_allocated_bytes: row.baseline_allocated_bytes,
        baseline_reserved_bytes: row.baseline_reserved_bytes,
        end_allocated_bytes: row.end_allocated_bytes,
        end_reserved_bytes: row.end_reserved_bytes,
        peak_allocated_bytes: row.peak_allocated_bytes,
        peak_reserved_bytes: row.peak_reserved_bytes,
        iterations: row.iterations,
    };
    measurement.phases = simulation.phases.iter().map(row).collect();
    measurement.synthetic_model = simulation.synthetic_model;
    Ok(RunRecord { measurement: Some(measurement), ..ended })
}

/// With these times on the device's clock; the second ones are of the replayed graph.
pub fn with_device_time(mut run: RunRecord, forward: [f64; 3], graph_replay: [f64; 3]) -> RunRecord {
    let of = |mut seconds: [f64; 3]| {
        let device_seconds = seconds.to_vec();
        seconds.sort_by(f64::total_cmp);
        let [min_device_seconds, median_device_seconds, max_device_seconds] = seconds;
        DeviceSeconds { device_seconds, min_device_seconds, median_device_seconds, max_device_seconds }
    };
    let time = DeviceTime {
        passes: 3,
        scope: "Temps à l'horloge du GPU.".to_owned(),
        forward: of(forward),
        graph_replay: Some(of(graph_replay)),
        graph_replay_note: None,
    };
    if let Some(measurement) = &mut run.measurement {
        measurement.device_time = Some(time);
    }
    run
}

/// One line.
pub fn line(record: &impl serde::Serialize) -> Outcome<String> {
    Ok(serde_json::to_string(record)? + "\n")
}

/// A plan and its runs, each run in turn by `run`.
pub fn lines(record: &PlanRecord, mut run: impl FnMut(u64) -> Outcome<RunRecord>) -> Outcome<String> {
    let mut text = line(record)?;
    for run_index in 1..=record.plan.runs.len() as u64 {
        text += &line(&run(run_index)?)?;
    }
    Ok(text)
}

/// Writes a file under `folder`.
pub fn file(folder: &Path, name: &str, text: &str) -> std::io::Result<std::path::PathBuf> {
    let path = folder.join(name);
    fs::write(&path, text)?;
    Ok(path)
}
