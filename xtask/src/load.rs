//! Many measurements on one GPU, one after the other and at once: all of them alike, and nothing that
//! grows.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, ExitCode};
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use iteragpu_lab::measure::{Extras, Measurement, measure_with};
use iteragpu_lab::protocol::Failure;
use iteragpu_lab::worker::WorkerProgram;
use iteragpu_lab::{LabError, MeasureConfig};

#[derive(Args)]
pub struct LoadArgs {
    /// Mesures à la suite
    #[arg(long, value_name = "NOMBRE", default_value = "200", hide_default_value = true)]
    runs: usize,
    /// Mesures à la fois, d'abord petites, puis trop grandes pour tenir toutes sur le GPU
    #[arg(long, value_name = "NOMBRE", default_value = "8", hide_default_value = true)]
    at_once: usize,
    /// GPU à mesurer [par défaut : cuda:0]
    #[arg(long, value_name = "GPU", default_value = "cuda:0", hide_default_value = true)]
    device: String,
}

pub fn run(arguments: &LoadArgs) -> Result<ExitCode> {
    let worker = WorkerProgram::locate()?;
    let config = MeasureConfig { device: arguments.device.clone(), ..MeasureConfig::default() };
    in_a_row(&worker, &config, arguments.runs)?;
    let small = at_once(&worker, &config, arguments.at_once);
    println!("{} petites mesures à la fois : {}", arguments.at_once, verdict(&small)?);
    ensure!(small.iter().all(Result::is_ok), "une petite mesure a été refusée");
    // A quarter of an H200 each, in inputs, activations and weights.
    let large = MeasureConfig { batch: 64, context: 16384, width: 4096, warmup: 1, repeats: 1, ..config.clone() };
    let large = at_once(&worker, &large, arguments.at_once);
    println!("{} grandes mesures à la fois : {}", arguments.at_once, verdict(&large)?);
    println!("ensuite, une petite : {}", verdict(&at_once(&worker, &config, 1))?);
    Ok(ExitCode::SUCCESS)
}

/// Fresh processes, one after the other, watched from this one.
fn in_a_row(worker: &WorkerProgram, config: &MeasureConfig, runs: usize) -> Result<()> {
    // The first ones load code and fill this process's own allocator.
    let warm: Vec<_> = (0..5).map(|_| measured(worker, config)).collect();
    let before = Resources::now()?;
    let outcomes: Vec<_> = (0..runs).map(|_| measured(worker, config)).collect();
    let after = Resources::now()?;
    println!("{runs} mesures à la suite : {}", verdict(&outcomes)?);
    println!("avant : {before}\naprès : {after}");
    ensure!(outcomes.iter().chain(&warm).all(Result::is_ok), "une mesure a été refusée");
    ensure!(after.descriptors == before.descriptors, "le nombre de descripteurs a changé");
    ensure!(after.threads == before.threads, "le nombre de fils a changé");
    // Kept measurements are part of it: less than 8 KiB each.
    ensure!(after.resident_kib <= before.resident_kib + 1024 + 8 * runs as u64, "la mémoire a grandi");
    Ok(())
}

fn at_once(worker: &WorkerProgram, config: &MeasureConfig, number: usize) -> Vec<Result<Measurement, LabError>> {
    thread::scope(|scope| {
        let running: Vec<_> = (0..number).map(|_| scope.spawn(|| measured(worker, config))).collect();
        running.into_iter().filter_map(|thread| thread.join().ok()).collect()
    })
}

fn measured(worker: &WorkerProgram, config: &MeasureConfig) -> Result<Measurement, LabError> {
    // Digests copy everything to the machine's memory: not for what fills a GPU.
    let digest = config.batch == MeasureConfig::default().batch;
    measure_with(worker, config, Extras { digest, device_passes: None }, &mut |_| ())
}

/// Counts outcomes. All measurements must have the same counters and digests, and every refusal must be
/// one for want of memory.
fn verdict(outcomes: &[Result<Measurement, LabError>]) -> Result<String> {
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    let mut refused = 0;
    for outcome in outcomes {
        match outcome {
            Ok(measurement) => *kinds.entry(untimed(measurement)?).or_default() += 1,
            Err(LabError::Unavailable(Failure::OutOfGpuMemory { .. } | Failure::OutOfHostMemory { .. })) => {
                refused += 1
            }
            Err(other) => bail!("refus inattendu : {other}"),
        }
    }
    ensure!(kinds.len() <= 1, "{} jeux de compteurs différents", kinds.len());
    let measured = outcomes.len() - refused;
    Ok(format!("{measured} identiques, {refused} refusées faute de mémoire"))
}

/// Everything that has to be the same in each.
fn untimed(measurement: &Measurement) -> Result<String> {
    let mut copy = measurement.clone();
    copy.measured_at_utc.clear();
    copy.phases.iter_mut().for_each(|row| row.elapsed_seconds = 0.0);
    Ok(serde_json::to_string(&copy)?)
}

/// What this process holds.
struct Resources {
    resident_kib: u64,
    threads: u64,
    descriptors: usize,
    gpu_memory: String,
}

impl Resources {
    fn now() -> Result<Self> {
        let status = fs::read_to_string("/proc/self/status")?;
        let number = |name: &str| -> Result<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).context("/proc/self/status")?;
            Ok(line.split_whitespace().next().unwrap_or_default().parse()?)
        };
        Ok(Self {
            resident_kib: number("VmRSS:")?,
            threads: number("Threads:")?,
            descriptors: fs::read_dir("/proc/self/fd")?.count(),
            gpu_memory: gpu_memory(),
        })
    }
}

/// As the vendor's tool sees it from outside.
fn gpu_memory() -> String {
    let query = ["--query-gpu=memory.used", "--format=csv,noheader"];
    let output = Command::new("nvidia-smi").args(query).output();
    output.map_or("non lue".to_owned(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

impl std::fmt::Display for Resources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { resident_kib, threads, descriptors, gpu_memory } = self;
        write!(f, "{resident_kib} Kio résidents, {threads} fils, {descriptors} descripteurs, GPU {gpu_memory}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measurements() -> Result<Vec<Measurement>> {
        let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/mesures/h200-golden.json"))?;
        let document: serde_json::Value = serde_json::from_str(&text)?;
        Ok(serde_json::from_value(document["measurements"].clone())?)
    }

    #[test]
    fn one_byte_of_difference_is_found_and_time_is_none() -> Result<()> {
        let one = measurements()?.swap_remove(0);
        let mut other = one.clone();
        other.phases[0].elapsed_seconds += 1.0;
        assert_eq!(verdict(&[Ok(one.clone()), Ok(other.clone())])?, "2 identiques, 0 refusées faute de mémoire");
        other.phases[4].peak_reserved_bytes += 1;
        assert!(verdict(&[Ok(one), Ok(other)]).is_err());
        Ok(())
    }

    #[test]
    fn only_want_of_memory_is_a_refusal() {
        let words = String::new();
        let refused = |failure| [Err(LabError::Unavailable(failure))];
        assert!(verdict(&refused(Failure::OutOfGpuMemory { words })).is_ok());
        assert!(verdict(&refused(Failure::NoVisibleGpu)).is_err());
    }
}
