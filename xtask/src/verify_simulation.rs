//! Measures configurations drawn at random, each in a fresh process on a real GPU, and compares every
//! counter of every phase with the simulation.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::thread;

use anyhow::{Result, ensure};
use clap::Args;
use fastrand::Rng;
use iteragpu_lab::measure::{Dtype, Extras, measure_with};
use iteragpu_lab::simulation::{AllocatorProfile, Comparison, compare_with_simulation, simulate};
use iteragpu_lab::worker::WorkerProgram;
use iteragpu_lab::{EnvironmentReport, MeasureConfig, Measurement};
use serde::Serialize;

#[derive(Args)]
pub struct VerifySimulationArgs {
    /// Nombre de configurations
    #[arg(long, value_name = "NOMBRE", default_value = "300", hide_default_value = true)]
    configurations: usize,
    /// Graine du tirage [par défaut : 1729]
    #[arg(long, value_name = "NOMBRE", default_value = "1729", hide_default_value = true)]
    seed: u64,
    /// Mesures à la fois [par défaut : 3]
    #[arg(long, value_name = "NOMBRE", default_value = "3", hide_default_value = true)]
    at_once: usize,
    /// Demande aussi le temps à l'horloge du GPU, dont les compteurs ne doivent pas dépendre
    #[arg(long, value_name = "NOMBRE")]
    device_time: Option<u64>,
    /// Nouveau fichier JSON qui garde les configurations et les écarts
    #[arg(long, value_name = "FICHIER")]
    output: PathBuf,
}

/// Three of them fit on an H200 at once.
const MOST_RESERVED_BYTES: u64 = 40_000_000_000;

#[derive(Serialize)]
struct Kept {
    seed: u64,
    environment: Option<EnvironmentReport>,
    cases: Vec<Case>,
}

#[derive(Serialize)]
struct Case {
    configuration: MeasureConfig,
    /// Of the simulation, before the run.
    simulated_peak_reserved_bytes: u64,
    identical: bool,
    /// Where something differs, or why nothing was compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    differences: Option<Comparison>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

pub fn run(arguments: &VerifySimulationArgs) -> Result<ExitCode> {
    ensure!(arguments.configurations > 0 && arguments.at_once > 0, "rien à comparer");
    let output = iteragpu_lab::NewFile::check(&arguments.output)?;
    let worker = WorkerProgram::locate()?;
    let extras = Extras { digest: false, device_passes: arguments.device_time };
    let drawn = Mutex::new(draw(arguments.seed, arguments.configurations)?.into_iter());
    let (cases, environment) = (Mutex::new(Vec::new()), Mutex::new(None));
    thread::scope(|scope| {
        for _ in 0..arguments.at_once {
            scope.spawn(|| {
                while let Some((place, config, peak)) = drawn.lock().ok().and_then(|mut drawn| drawn.next()) {
                    let measured = measure_with(&worker, &config, extras, &mut |_| ());
                    if let (Ok(measurement), Ok(mut environment)) = (&measured, environment.lock()) {
                        environment.get_or_insert_with(|| measurement.environment.clone());
                    }
                    let case = case(config, peak, measured.map_err(Into::into));
                    if let Ok(mut cases) = cases.lock() {
                        cases.push((place, case));
                    }
                }
            });
        }
    });
    let mut cases = cases.into_inner().unwrap_or_default();
    cases.sort_by_key(|(place, _)| *place);
    let cases: Vec<Case> = cases.into_iter().map(|(_, case)| case).collect();
    let identical = cases.iter().filter(|case| case.identical).count();
    for case in cases.iter().filter(|case| !case.identical) {
        println!("{}", serde_json::to_string(case)?);
    }
    println!("{identical} identiques sur {} configurations", cases.len());
    let complete = cases.len() == arguments.configurations && identical == cases.len();
    let kept = Kept { seed: arguments.seed, environment: environment.into_inner().unwrap_or_default(), cases };
    output.write(format!("{}\n", serde_json::to_string_pretty(&kept)?).as_bytes())?;
    Ok(ExitCode::from(u8::from(!complete)))
}

fn case(configuration: MeasureConfig, peak: u64, measured: Result<Measurement>) -> Case {
    let compared = measured.and_then(|measurement| Ok(compare_with_simulation(&measurement)?));
    let (differences, error) = match compared {
        Ok(comparison) => (Some(comparison), None),
        Err(error) => (None, Some(error.to_string())),
    };
    let identical = differences.as_ref().is_some_and(|comparison| comparison.identical);
    let differences = differences.filter(|_| !identical);
    Case { configuration, simulated_peak_reserved_bytes: peak, identical, differences, error }
}

/// Configurations that fit, each with the simulated peak of its reserve. Every third is drawn evenly in
/// each dimension, which gives large ones; the others evenly in its magnitude, which finds small and
/// lopsided ones.
fn draw(seed: u64, number: usize) -> Result<Vec<(usize, MeasureConfig, u64)>> {
    let mut random = Rng::with_seed(seed);
    let mut drawn = Vec::new();
    while drawn.len() < number {
        let evenly = drawn.len() % 3 == 2;
        let mut size = |most: u64| match evenly {
            true => 1 + (random.f64() * most as f64) as u64,
            false => 2f64.powf(random.f64() * (most as f64).log2()).round() as u64,
        };
        let (batch, context, width) = (size(256), size(16384), size(16384));
        let dtype = [Dtype::Float32, Dtype::Float16, Dtype::Bfloat16][(random.f64() * 3.0) as usize];
        // Large ones take seconds a pass.
        let (warmup, repeats) = if evenly { (1, 1) } else { (2, 3) };
        let config = MeasureConfig { batch, context, width, dtype, warmup, repeats, ..MeasureConfig::default() };
        let peak =
            simulate(&config, &AllocatorProfile::hopper())?.phases.iter().map(|row| row.peak_reserved_bytes).max();
        if let Some(peak) = peak.filter(|peak| *peak <= MOST_RESERVED_BYTES) {
            drawn.push((drawn.len(), config, peak));
        }
    }
    Ok(drawn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same_configurations_within_bounds() -> Result<()> {
        let drawn = draw(1, 40)?;
        assert!(drawn.iter().zip(draw(1, 40)?).all(|(one, other)| one.1 == other.1));
        assert!(drawn.iter().zip(draw(2, 40)?).any(|(one, other)| one.1 != other.1));
        for (_, config, peak) in &drawn {
            let sizes = [(config.batch, 256), (config.context, 16384), (config.width, 16384)];
            assert!(sizes.iter().all(|(size, most)| (1..=*most).contains(size)) && *peak <= MOST_RESERVED_BYTES);
        }
        Ok(())
    }

    #[test]
    fn one_byte_of_difference_is_no_identity() -> Result<()> {
        let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/mesures/h200-golden.json"))?;
        let mut kept: serde_json::Value = serde_json::from_str(&text)?;
        let mut measurement: Measurement = serde_json::from_value(kept["measurements"][1].take())?;
        let config = measurement.configuration.chosen.clone();
        assert!(case(config.clone(), 0, Ok(measurement.clone())).identical);
        measurement.phases[3].end_reserved_bytes += 1;
        assert!(!case(config.clone(), 0, Ok(measurement.clone())).identical);
        measurement.phases.pop();
        assert!(!case(config.clone(), 0, Ok(measurement)).identical);
        assert!(!case(config, 0, Err(anyhow::anyhow!("refused"))).identical);
        Ok(())
    }
}
