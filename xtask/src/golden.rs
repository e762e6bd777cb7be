//! Compares measurements on a real GPU with golden values of the original: every counter of every
//! phase, the model's size and the four digests, case by case, each in a fresh process.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use iteragpu_lab::arguments::parse_device;
use iteragpu_lab::measure::{Extras, MeasureConfig, Measurement, PhaseRow, measure_with};
use iteragpu_lab::worker::WorkerProgram;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::UsageError;

#[derive(Args)]
pub struct GoldenArgs {
    /// Fichier des valeurs de référence, par exemple tests/golden/h200_counters.json
    #[arg(value_name = "FICHIER")]
    file: PathBuf,
    /// GPU à mesurer [par défaut : cuda:0]
    #[arg(long, value_name = "GPU", default_value = "cuda:0", hide_default_value = true)]
    device: String,
    /// Demande aussi le temps à l'horloge du GPU : les valeurs de référence doivent rester les mêmes
    #[arg(long, value_name = "NOMBRE")]
    device_time: Option<u64>,
    /// Nouveau fichier JSON qui garde toutes les mesures
    #[arg(long, value_name = "FICHIER")]
    output: Option<PathBuf>,
}

pub fn run(arguments: &GoldenArgs) -> anyhow::Result<ExitCode> {
    let cases = read_cases(&arguments.file)?;
    parse_device("--device", &arguments.device).map_err(|error| UsageError(error.to_string()))?;
    let output = arguments.output.as_ref().map(iteragpu_lab::NewFile::check).transpose()?;
    let worker = WorkerProgram::locate()?;
    let extras = Extras { digest: true, device_passes: arguments.device_time };
    let mut failed = 0;
    let mut measurements = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let config = configuration(case, &arguments.device)
            .with_context(|| UsageError(format!("cas {} illisible", number + 1)))?;
        let measured = measure_with(&worker, &config, extras, &mut |_| ());
        let differences = match &measured {
            Ok(measurement) => differences(case, measurement)?,
            Err(error) => vec![error.to_string()],
        };
        failed += usize::from(!differences.is_empty());
        report(number + 1, &config, &differences);
        measurements.extend(measured.ok());
    }
    if let Some(output) = output {
        // A type and not a `Value`, which would sort the keys.
        output.write(&serde_json::to_vec_pretty(&Kept { measurements })?)?;
    }
    println!("{} cas identiques, {failed} cas différents", cases.len() - failed);
    Ok(ExitCode::from(u8::from(failed > 0)))
}

#[derive(Serialize)]
struct Kept {
    measurements: Vec<Measurement>,
}

fn read_cases(file: &PathBuf) -> anyhow::Result<Vec<Value>> {
    let unreadable = || UsageError(format!("{} : fichier de référence illisible", file.display()));
    let text = fs::read_to_string(file).with_context(unreadable)?;
    let document: Value = serde_json::from_str(&text).with_context(unreadable)?;
    let cases = document["cases"].as_array().cloned().unwrap_or_default();
    // A comparison of nothing would always succeed.
    if cases.is_empty() {
        return Err(UsageError(format!("{} : aucun cas à comparer", file.display())).into());
    }
    Ok(cases)
}

fn configuration(case: &Value, device: &str) -> anyhow::Result<MeasureConfig> {
    let mut configuration = case["configuration"].clone();
    configuration["device"] = Value::from(device);
    Ok(serde_json::from_value(configuration)?)
}

fn report(number: usize, config: &MeasureConfig, differences: &[String]) {
    let verdict = if differences.is_empty() { "identique" } else { "DIFFÉRENT" };
    let MeasureConfig { batch, context, width, dtype, seed, .. } = config;
    println!("cas {number} : {batch}/{context}/{width} {} graine {seed} : {verdict}", dtype.name());
    for difference in differences {
        println!("    {difference}");
    }
}

/// Every golden value that the measurement does not repeat exactly. A golden case without phases
/// or digests is a difference too: nothing may pass for want of something to compare.
fn differences(golden: &Value, measurement: &Measurement) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    compare(
        &mut found,
        "synthetic_model",
        &golden["synthetic_model"],
        &serde_json::to_value(&measurement.synthetic_model)?,
    );
    compare(
        &mut found,
        "digests_sha256",
        &golden["digests_sha256"],
        &serde_json::to_value(&measurement.digests_sha256)?,
    );
    let phases = golden["phases"].as_array().map(Vec::as_slice).unwrap_or_default();
    if phases.is_empty() || phases.len() != measurement.phases.len() {
        found.push(format!("phases : {} attendues, {} mesurées", phases.len(), measurement.phases.len()));
    }
    for (expected, row) in phases.iter().zip(&measurement.phases) {
        compare(
            &mut found,
            &format!("{} {}", row.phase, row.run_index),
            expected,
            &serde_json::to_value(untimed(row))?,
        );
    }
    Ok(found)
}

/// Times differ from run to run; everything else is exact.
fn untimed(row: &PhaseRow) -> Map<String, Value> {
    let mut row = serde_json::to_value(row).ok().and_then(|row| row.as_object().cloned()).unwrap_or_default();
    row.remove("elapsed_seconds");
    row
}

/// Both sides must have the same keys: what is missing on one cannot be called equal.
fn compare(found: &mut Vec<String>, place: &str, expected: &Value, measured: &Value) {
    let (Some(expected), Some(measured)) = (expected.as_object(), measured.as_object()) else {
        found.push(format!("{place} : {expected} attendu, {measured} mesuré"));
        return;
    };
    let keys: BTreeSet<&String> = expected.keys().chain(measured.keys()).collect();
    for key in keys.into_iter().filter(|key| *key != "elapsed_seconds") {
        let [value, other] = [expected, measured].map(|side| side.get(key).unwrap_or(&Value::Null));
        if other != value {
            found.push(format!("{place} {key} : {value} attendu, {other} mesuré"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    type Plant = fn(&mut Value);

    /// A measurement that repeats a golden case, made from the case itself.
    fn twin(case: &Value) -> anyhow::Result<Measurement> {
        let mut phases = case["phases"].clone();
        for row in phases.as_array_mut().into_iter().flatten() {
            row["elapsed_seconds"] = json!(0.5);
        }
        let mut configuration = case["configuration"].clone();
        configuration["device"] = json!("cuda:0");
        configuration["float32_matmul_precision"] = json!("highest");
        configuration["autocast"] = json!(false);
        configuration["training"] = json!(false);
        Ok(serde_json::from_value(json!({
            "schema_version": 1, "artifact": "iteragpu-lab-v1", "kind": "allocator_measurement", "measured_at_utc": "",
            "environment": iteragpu_lab::environment_report("cuda:0")?,
            "configuration": configuration, "synthetic_model": case["synthetic_model"], "scope": "", "interpretation": "",
            "phases": phases, "digests_sha256": case["digests_sha256"],
        }))?)
    }

    fn first_case() -> anyhow::Result<Value> {
        let file = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/h200_counters.json"));
        read_cases(&file)?.into_iter().next().context("no case")
    }

    #[test]
    fn a_repeated_case_has_no_differences() -> anyhow::Result<()> {
        let case = first_case()?;
        assert_eq!(differences(&case, &twin(&case)?)?, Vec::<String>::new());
        Ok(())
    }

    #[test]
    fn each_planted_wrong_value_is_named() -> anyhow::Result<()> {
        let case = first_case()?;
        let twin = twin(&case)?;
        let planted: [(&str, Plant); 9] = [
            ("synthetic_model definition", |case| {
                case["synthetic_model"] = json!({"parameter_count": 8320, "parameter_bytes": 33280})
            }),
            ("warm_forward 2 peak_reserved_bytes", |case| {
                drop(case["phases"][5].as_object_mut().map(|row| row.remove("peak_reserved_bytes")))
            }),
            ("cold_forward 0 peak_reserved_bytes", |case| case["phases"][2]["peak_reserved_bytes"] = json!(1)),
            ("inputs 0 baseline_allocated_bytes", |case| case["phases"][1]["baseline_allocated_bytes"] = json!(null)),
            ("warmup 0 iterations", |case| case["phases"][3]["iterations"] = json!(2)),
            ("digests_sha256 output", |case| case["digests_sha256"]["output"] = json!("00")),
            ("digests_sha256", |case| case["digests_sha256"] = json!(null)),
            ("synthetic_model parameter_bytes", |case| case["synthetic_model"]["parameter_bytes"] = json!(33281)),
            ("phases", |case| case["phases"] = json!([])),
        ];
        for (name, plant) in planted {
            let mut wrong = case.clone();
            plant(&mut wrong);
            let found = differences(&wrong, &twin)?;
            assert!(found.len() == 1 && found[0].starts_with(name), "{name}: {found:?}");
        }
        Ok(())
    }

    #[test]
    fn a_file_without_cases_is_refused() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        for (name, text) in [("empty.json", "{\"cases\": []}"), ("other.json", "{}"), ("broken.json", "{")] {
            let file = folder.path().join(name);
            fs::write(&file, text)?;
            assert!(read_cases(&file).is_err(), "{name}");
        }
        Ok(())
    }
}
