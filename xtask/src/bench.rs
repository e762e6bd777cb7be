//! Times `mesure-memoire measure` beside the original's program and a bare CUDA + cuBLAS program:
//! fresh processes in turn, medians and ratios of one run. A benchmark, not a test: machines are
//! shared, so only ratios of one run mean something.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, bail};
use clap::Args;
use serde_json::{Value, json};

#[derive(Args)]
pub struct BenchArgs {
    /// Programme mesure-memoire à chronométrer
    #[arg(long, value_name = "PROGRAMME")]
    ours: PathBuf,
    /// Programme Python d'origine, lancé avec python3
    #[arg(long, value_name = "FICHIER")]
    original: PathBuf,
    /// Programme CUDA nu, compilé depuis xtask/bench/bare_cublas.cu
    #[arg(long, value_name = "PROGRAMME")]
    bare: Option<PathBuf>,
    /// Configuration batch/context/width/dtype, à répéter pour en mesurer plusieurs
    #[arg(long = "config", value_name = "CONFIGURATION", default_value = "1/16/64/float32", hide_default_value = true)]
    configurations: Vec<String>,
    /// Nombre de processus neufs par programme [par défaut : 7]
    #[arg(long, value_name = "NOMBRE", default_value = "7", value_parser = at_least_one)]
    runs: usize,
    /// Passages mesurés par processus [par défaut : 5]
    #[arg(long, value_name = "NOMBRE", default_value = "5", value_parser = at_least_one)]
    repeats: usize,
    /// Nouveau fichier JSON qui garde chaque observation
    #[arg(long, value_name = "FICHIER")]
    output: Option<PathBuf>,
}

pub fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| "un entier à partir de 1".to_owned())
}

pub fn run(arguments: &BenchArgs) -> anyhow::Result<ExitCode> {
    let output = arguments.output.as_ref().map(iteragpu_lab::NewFile::check).transpose()?;
    let mut results = Vec::new();
    for configuration in &arguments.configurations {
        results.push(compare(arguments, configuration)?);
    }
    if let Some(output) = output {
        output.write(format!("{:#}\n", json!({ "results": results })).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Observations of one program in one configuration, in seconds.
#[derive(Default)]
struct Observations {
    process: Vec<f64>,
    warm_forward: Vec<f64>,
}

fn compare(arguments: &BenchArgs, configuration: &str) -> anyhow::Result<Value> {
    let options = options(configuration, arguments.repeats)?;
    let mut programs = vec![
        ("original", command("python3", &[arguments.original.as_path()], &options), Observations::default()),
        ("iteragpu", command(&arguments.ours, &[], &options), Observations::default()),
    ];
    if let Some(bare) = &arguments.bare {
        programs.push(("bare", Command::new(bare), Observations::default()));
    }
    // One round that does not count fills the caches; then all in turn, so that drift of the
    // machine touches all alike.
    for round in 0..=arguments.runs {
        for (name, command, observations) in &mut programs {
            let seen = observe(command).with_context(|| format!("{name}, {configuration}"))?;
            if *name != "bare" && seen.warm_forward.len() != arguments.repeats {
                bail!(
                    "{name}, {configuration} : {} passages mesurés au lieu de {}",
                    seen.warm_forward.len(),
                    arguments.repeats
                );
            }
            if round > 0 {
                observations.process.extend(seen.process);
                observations.warm_forward.extend(seen.warm_forward);
            }
        }
    }
    println!("{configuration} ({} processus neufs, {} passages chacun)", arguments.runs, arguments.repeats);
    let mut result = json!({ "configuration": configuration });
    for (name, _, observations) in &programs {
        result[name] =
            json!({ "process_seconds": observations.process, "warm_forward_seconds": observations.warm_forward });
        print_row(name, "processus", &observations.process);
        print_row(name, "warm_forward", &observations.warm_forward);
    }
    print_ratios(&programs);
    Ok(result)
}

fn options(configuration: &str, repeats: usize) -> anyhow::Result<Vec<String>> {
    let parts: Vec<&str> = configuration.split('/').collect();
    let [batch, context, width, dtype] = parts[..] else { bail!("configuration attendue : batch/context/width/dtype") };
    let repeats = repeats.to_string();
    let pairs =
        [("--batch", batch), ("--context", context), ("--width", width), ("--dtype", dtype), ("--repeats", &repeats)];
    let pairs = pairs.iter().flat_map(|(name, value)| [(*name).to_owned(), (*value).to_owned()]);
    Ok([String::from("measure")].into_iter().chain(pairs).collect())
}

fn command(program: impl AsRef<std::ffi::OsStr>, before: &[&Path], options: &[String]) -> Command {
    let mut command = Command::new(program);
    command.args(before).args(options);
    command
}

fn observe(command: &mut Command) -> anyhow::Result<Observations> {
    let start = Instant::now();
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    let elapsed = start.elapsed().as_secs_f64();
    if !output.status.success() {
        bail!("terminé par {}", output.status);
    }
    // Only the bare program prints no measurement; the caller checks that the others do.
    let measurement: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let rows = measurement["phases"].as_array().cloned().unwrap_or_default();
    let warm = rows.iter().filter(|row| row["phase"] == "warm_forward");
    Ok(Observations {
        process: vec![elapsed],
        warm_forward: warm.filter_map(|row| row["elapsed_seconds"].as_f64()).collect(),
    })
}

fn print_row(name: &str, what: &str, observations: &[f64]) {
    if let Some(median) = median(observations) {
        let smallest = observations.iter().copied().fold(f64::INFINITY, f64::min);
        let largest = observations.iter().copied().fold(0.0, f64::max);
        println!("  {name:<9} {what:<13} médiane {median:.6} s, de {smallest:.6} à {largest:.6} s");
    }
}

fn print_ratios(programs: &[(&str, Command, Observations)]) {
    let [(_, _, original), (_, _, ours), bare @ ..] = programs else { return };
    let ratio = |what: &str, numerator: &[f64], denominator: &[f64]| {
        if let (Some(numerator), Some(denominator)) = (median(numerator), median(denominator)) {
            println!("  {what} : {:.2}", numerator / denominator);
        }
    };
    ratio("processus, original / iteragpu", &original.process, &ours.process);
    ratio("warm_forward, original / iteragpu", &original.warm_forward, &ours.warm_forward);
    if let [(_, _, bare)] = bare {
        ratio("processus, iteragpu / CUDA nu", &ours.process, &bare.process);
    }
}

pub fn median(observations: &[f64]) -> Option<f64> {
    let mut sorted = observations.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = sorted.get(middle)?;
    Some(if sorted.len() % 2 == 1 { *upper } else { (sorted[middle - 1] + upper) / 2.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn a_program_that_fails_or_measures_nothing_is_no_observation() {
        let nothing = BenchArgs {
            ours: "true".into(),
            original: "/dev/null".into(),
            bare: None,
            configurations: Vec::new(),
            runs: 1,
            repeats: 1,
            output: None,
        };
        assert!(compare(&nothing, "1/1/1/float32").is_err());
        assert!(at_least_one("0").is_err());
        assert!(observe(&mut Command::new("false")).is_err());
        assert!(options("1/16/64", 3).is_err());
    }
}
