//! Times `mesure-memoire results summary` on a large made-up results file, in fresh processes, with
//! the peak memory that the system reports for each. A benchmark, not a test: machines are shared.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use iteragpu_lab::results::COLUMNS;
use serde_json::Value;

use crate::{UsageError, fresh_process};

#[derive(Args)]
pub struct ResultsBenchArgs {
    /// Nombre de lignes du fichier inventé [par défaut : 1000000]
    #[arg(long, value_name = "NOMBRE", default_value_t = 1_000_000, hide_default_value = true)]
    rows: u64,
    /// Nombre de processus neufs [par défaut : 5]
    #[arg(long, value_name = "NOMBRE", default_value_t = 5, hide_default_value = true)]
    runs: usize,
    /// Mélange les lignes : aucune ne ressemble à la précédente
    #[arg(long)]
    shuffled: bool,
}

pub fn run(arguments: &ResultsBenchArgs) -> anyhow::Result<ExitCode> {
    if arguments.rows == 0 || arguments.runs == 0 {
        return Err(UsageError("--rows et --runs : au moins 1.".to_owned()).into());
    }
    fresh_process::prepare()?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("resultats.csv");
    write_rows(&file, arguments.rows, arguments.shuffled)?;
    println!("{} lignes, {} octets", arguments.rows, file.metadata()?.len());
    for _ in 0..arguments.runs {
        let (seconds, kibibytes) = observe(&file, arguments.rows)?;
        println!("  {seconds:.2} s, {kibibytes} Kio au plus");
    }
    Ok(ExitCode::SUCCESS)
}

/// Seconds and peak memory of one summary in a process of its own.
fn observe(file: &Path, rows: u64) -> anyhow::Result<(f64, u64)> {
    let observed = fresh_process::observe(&["results".as_ref(), "summary".as_ref(), file.as_os_str()])?;
    let summary: Value = serde_json::from_slice(&observed.stdout)?;
    if summary["rows"] != rows {
        bail!("{} lignes résumées au lieu de {rows}", summary["rows"]);
    }
    Ok((observed.seconds, observed.peak_kibibytes))
}

/// Runs of nine rows each, over three environments and eight configurations.
pub fn write_rows(file: &Path, rows: u64, shuffled: bool) -> anyhow::Result<()> {
    let mut output = BufWriter::new(File::create(file)?);
    writeln!(output, "{}", COLUMNS.join(","))?;
    for place in 0..rows {
        // A step without a factor in common with the number of rows meets each row once.
        let number = if shuffled { (u128::from(place) * 999_999_937 % u128::from(rows)) as u64 } else { place };
        output.write_all(row(number).as_bytes())?;
    }
    output.flush().context("le fichier inventé n'a pas pu être écrit")
}

const PASSES: [(&str, u64); 9] = [
    ("model_load", 0),
    ("inputs", 0),
    ("cold_forward", 0),
    ("warmup", 0),
    ("warm_forward", 1),
    ("warm_forward", 2),
    ("warm_forward", 3),
    ("warm_forward", 4),
    ("warm_forward", 5),
];

fn row(number: u64) -> String {
    let (run, pass) = (number / 9, (number % 9) as usize);
    let (phase, run_index) = PASSES[pass];
    // Scattered, and the same each time.
    let scattered = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let (driver, width, batch) =
        (["580.159.04", "570.86.15", "550.54.14"][(run % 3) as usize], 1024 << (run % 4), 1 + run % 2);
    let (allocated, reserved) =
        (33_792 + width * batch * 4, 2_097_152 * (1 + pass as u64) + (scattered % 5) * 2_097_152);
    let iterations = if phase == "warmup" { "3" } else { "" };
    let time = format!("2026-11-30T{:02}:{:02}:{:02}.{run:06}+00:00", run / 3600 % 24, run / 60 % 60, run % 60);
    format!(
        "{time}-{run:016x},{time},Linux,0.1.0,0.24.0,2.11.0+cu130,13.0,{driver},cuda:0,NVIDIA H200,150109880320,default,\
         {batch},128,{width},float32,3,5,1729,{phase},{run_index},{iterations},0.{scattered:09},\
         {allocated},{reserved},{allocated},{reserved},{allocated},{reserved},,,,,,,\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_made_up_file_is_a_results_file() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let (in_order, shuffled) = (folder.path().join("a.csv"), folder.path().join("b.csv"));
        write_rows(&in_order, 1000, false)?;
        write_rows(&shuffled, 1000, true)?;
        let summary = iteragpu_lab::summarize(&in_order)?;
        assert_eq!((summary.rows, summary.runs, summary.environments.len()), (1000, 112, 3));
        assert_eq!(summary, iteragpu_lab::summarize(&shuffled)?);
        Ok(())
    }
}
