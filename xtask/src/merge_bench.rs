//! Times `mesure-memoire explore merge` on many made-up files, in a fresh process, with the peak memory that
//! the system reports, and checks what it wrote by other means. A benchmark, not a test: machines are shared.

use std::collections::hash_map::DefaultHasher;
use std::fs::{self, File};
use std::hash::Hasher;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use iteragpu_lab::Measurement;
use iteragpu_lab::explore::{Plan, PlanOptions, PlanRecord, RunRecord};
use serde_json::Value;

use crate::{UsageError, fresh_process, workspace};

#[derive(Args)]
pub struct MergeBenchArgs {
    /// Nombre de fichiers inventés [par défaut : 10000]
    #[arg(long, value_name = "NOMBRE", default_value_t = 10_000, hide_default_value = true)]
    files: u64,
    /// Nombre de mesures inventées, réparties entre les fichiers [par défaut : 1000000]
    #[arg(long, value_name = "NOMBRE", default_value_t = 1_000_000, hide_default_value = true)]
    rows: u64,
}

/// One file in that many repeats half of the one before, and has lost the end of its last line.
const REPEATING: u64 = 10;

pub fn run(arguments: &MergeBenchArgs) -> anyhow::Result<ExitCode> {
    let &MergeBenchArgs { files, rows } = arguments;
    if files == 0 || rows < 2 * files {
        return Err(UsageError("--files : au moins 1 ; --rows : au moins 2 par fichier.".to_owned()).into());
    }
    fresh_process::prepare()?;
    let folder = tempfile::tempdir()?;
    let (inputs, output) = (folder.path().join("inputs"), folder.path().join("merged.jsonl"));
    let bytes = write_files(&inputs, files, rows / files)?;
    let mebibytes = bytes as f64 / f64::from(1 << 20);
    println!(
        "Fichiers inventés à partir d'une mesure de H200 : {files}, {} mesures, {bytes} octets",
        rows / files * files
    );
    let words = ["explore", "merge", "--output"].map(AsRef::as_ref);
    let observed = fresh_process::observe(&[&words[..], &[output.as_os_str(), inputs.as_os_str()]].concat())?;
    let (seconds, peak) = (observed.seconds, observed.peak_kibibytes);
    println!("  {}", observed.stderr.replace(&*folder.path().to_string_lossy(), "…"));
    println!("  {seconds:.2} s, {:.0} Mio/s lus, {peak} Kio au plus", mebibytes / seconds);
    let kept = check(&inputs, &output)?;
    println!("  contrôle indépendant : les {kept} lignes distinctes, chacune une fois, chaque exploration d'un bloc");
    Ok(ExitCode::SUCCESS)
}

/// One exploration a file, of one repeated point. Returns the number of bytes.
fn write_files(folder: &Path, files: u64, rows: u64) -> anyhow::Result<u64> {
    fs::create_dir(folder)?;
    let mut kept: Value = serde_json::from_slice(&fs::read(workspace::root().join("docs/mesures/h200-golden.json"))?)?;
    // The smallest.
    let measurement: Measurement = serde_json::from_value(kept["measurements"][4].take())?;
    let mut bytes = 0;
    let mut previous = None;
    for number in 0..files {
        let exploration = Exploration::new(number, rows, &measurement)?;
        let path = folder.join(format!("{number:08}.jsonl"));
        let mut file = BufWriter::new(File::create(&path)?);
        match previous.filter(|_| number % REPEATING == REPEATING - 1) {
            None => exploration.write(&mut file, rows)?,
            Some(previous) => {
                let previous: Exploration = previous;
                previous.write(&mut file, rows / 2)?;
                exploration.write(&mut file, rows - rows / 2)?;
                file.write_all(&exploration.run.as_bytes()[..100])?;
            }
        }
        file.flush().context("un fichier inventé n'a pas pu être écrit")?;
        bytes += path.metadata()?.len();
        previous = Some(exploration);
    }
    Ok(bytes)
}

/// A plan, and its first run.
struct Exploration {
    plan: String,
    run: String,
}

impl Exploration {
    fn new(number: u64, rows: u64, measurement: &Measurement) -> anyhow::Result<Self> {
        let configuration = measurement.configuration.chosen.clone();
        let options = PlanOptions { trials: rows, ..PlanOptions::default() };
        let mut environment = measurement.environment.clone();
        environment.selected_device_name = Some(format!("GPU inventé {number}"));
        let plan = PlanRecord {
            schema_version: 1,
            artifact: "iteragpu-lab-v1".to_owned(),
            kind: "exploration_plan".to_owned(),
            // Scattered, and the same each time.
            exploration_id: format!("{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            started_at_utc: measurement.measured_at_utc.clone(),
            environment: environment.clone(),
            plan: Plan::new(configuration.clone(), &[format!("width={}", configuration.width)], &options)?,
        };
        let run = RunRecord {
            kind: "exploration_run".to_owned(),
            exploration_id: plan.exploration_id.clone(),
            run_index: 1,
            trial: 1,
            configuration,
            ended_at_utc: measurement.measured_at_utc.clone(),
            measurement: Some(Measurement { environment, ..measurement.clone() }),
            reason: None,
        };
        Ok(Self { plan: serde_json::to_string(&plan)?, run: serde_json::to_string(&run)? })
    }

    /// The plan and the first runs.
    fn write(&self, file: &mut impl Write, runs: u64) -> anyhow::Result<()> {
        writeln!(file, "{}", self.plan)?;
        let first = r#""run_index":1,"trial":1"#;
        let (before, after) = self.run.split_once(first).context("une ligne inventée n'a pas la forme attendue")?;
        for run in 1..=runs {
            writeln!(file, r#"{before}"run_index":{run},"trial":{run}{after}"#)?;
        }
        Ok(())
    }
}

/// Without the library: the merged file holds every complete line of the inputs once, and no other; after
/// a plan come its runs, until the next plan. Returns the number of its lines.
fn check(inputs: &Path, output: &Path) -> anyhow::Result<usize> {
    let mut given = Vec::new();
    for entry in fs::read_dir(inputs)? {
        for_each_line(&entry?.path(), |line| {
            given.push(hash(line));
            Ok(())
        })?;
    }
    given.sort_unstable();
    given.dedup();
    let (mut written, mut current) = (Vec::new(), Vec::new());
    for_each_line(output, |line| {
        let id = identifier(line).context("une ligne sans exploration_id")?;
        if line.starts_with(b"{\"schema_version\"") {
            current = id.to_vec();
        } else if current != id {
            bail!("une mesure n'est pas à la suite de son plan");
        }
        written.push(hash(line));
        Ok(())
    })?;
    written.sort_unstable();
    if given != written {
        bail!(
            "{} lignes distinctes données, {} lignes écrites, et ce ne sont pas les mêmes",
            given.len(),
            written.len()
        );
    }
    Ok(written.len())
}

fn for_each_line(path: &Path, mut with: impl FnMut(&[u8]) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let mut input = BufReader::new(File::open(path)?);
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line)? > 0 {
        if line.ends_with(b"\n") {
            with(&line)?;
        }
        line.clear();
    }
    Ok(())
}

/// The keys are always the same: what is compared comes from two calls.
fn hash(line: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(line);
    hasher.finish()
}

fn identifier(line: &[u8]) -> Option<&[u8]> {
    const KEY: &[u8] = b"\"exploration_id\":\"";
    let start = line.windows(KEY.len()).position(|window| window == KEY)? + KEY.len();
    line.get(start..start + 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_made_up_files_are_merged_and_a_wrong_merge_is_caught() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let (inputs, output) = (folder.path().join("inputs"), folder.path().join("merged.jsonl"));
        write_files(&inputs, 30, 4)?;
        let merged = iteragpu_lab::explore::merge(std::slice::from_ref(&inputs), &output)?;
        // Three files repeat a plan and two runs of another, and hold two runs of their own.
        let counts = (merged.explorations, merged.runs, merged.duplicates, merged.cut_lines);
        assert_eq!(counts, (30, 30 * 4 - 3 * 2, 3 * 3, 3));
        assert_eq!(check(&inputs, &output)?, 30 + 114);

        let text = fs::read_to_string(&output)?;
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let (missing, twice) = ([&lines[..7], &lines[8..]].concat(), [&lines[..8], &lines[7..]].concat());
        let mut misplaced = lines.clone();
        misplaced.swap(1, 7);
        let changed = text.replacen("\"trial\":2", "\"trial\":3", 1);
        for wrong in [missing.concat(), twice.concat(), misplaced.concat(), changed] {
            fs::write(&output, wrong)?;
            assert!(check(&inputs, &output).is_err());
        }
        Ok(())
    }
}
