//! Times the cells of notebooks in fresh kernels, beside those of a bare kernel, with the kernel's compile
//! cache as a kernel leaves it and as [`kernel_cache`] mends it. A benchmark, not a test: machines are shared.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::Args;
use iteragpu_lab::NewFile;
use serde::Serialize;
use serde_json::json;

use crate::bench::{at_least_one, median};
use crate::{clean, kernel_cache, notebook, workspace};

#[derive(Args)]
pub struct KernelBenchArgs {
    /// Les notebooks à chronométrer [par défaut : ceux du projet]
    #[arg(value_name = "FICHIER")]
    files: Vec<PathBuf>,
    /// Nombre de noyaux neufs de chaque sorte [par défaut : 3]
    #[arg(long, value_name = "NOMBRE", default_value = "3", hide_default_value = true, value_parser = at_least_one)]
    runs: usize,
    /// Nouveau fichier JSON qui garde chaque observation
    #[arg(long, value_name = "FICHIER")]
    output: Option<PathBuf>,
}

/// The cells of a bare kernel. The first `let` is told apart: rust-analyzer then reads the standard library.
const BARE: [(&str, &str); 5] = [
    ("first", "1 + 1"),
    ("second", "1 + 1"),
    ("first-let", "let one: i32 = 1;"),
    ("second-let", "let two: i32 = 2;"),
    ("later", "1 + 1"),
];

pub fn run(arguments: &KernelBenchArgs) -> Result<ExitCode> {
    let output = arguments.output.as_ref().map(NewFile::check).transpose()?;
    let files = if arguments.files.is_empty() { clean::project_files()? } else { arguments.files.clone() };
    let (mut bare, mut notebooks) = (Vec::new(), Vec::new());
    for file in &files {
        notebooks.push(observe(file, arguments.runs, &mut bare)?);
    }
    print_cells("noyau nu", &[("", &bare)], &bare)?;
    for observed in &notebooks {
        observed.print(&bare)?;
    }
    if let Some(output) = output {
        let kept = json!({ "machine": machine()?, "bare": bare, "notebooks": notebooks });
        output.write(format!("{kept:#}\n").as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn machine() -> Result<serde_json::Value> {
    let cores = std::thread::available_parallelism()?;
    let rustc = workspace::output_of(Command::new("rustc").arg("--version"))?;
    Ok(json!({ "cores": cores, "rustc": rustc.trim(), "evcxr_jupyter": crate::kernel::VERSION }))
}

/// The seconds of one cell, a figure for each kernel.
#[derive(Serialize)]
struct Cell {
    id: String,
    seconds: Vec<f64>,
}

#[derive(Serialize)]
struct Observed {
    notebook: String,
    empty_cache: Vec<Cell>,
    cache_as_left: Vec<Cell>,
    cache_mended: Vec<Cell>,
}

/// One kernel fills a cache of its own; then all sorts in turn, so that the drift of the machine touches all alike.
fn observe(file: &Path, runs: usize, bare: &mut Vec<Cell>) -> Result<Observed> {
    let source = fs::read_to_string(file).with_context(|| format!("lecture impossible de {}", file.display()))?;
    let folder = fs::canonicalize(file)?.parent().map(Path::to_owned).context("un notebook est dans un dossier")?;
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    println!("{name} : un noyau remplit un cache de compilation neuf, puis trois noyaux à chacun des {runs} tours…");
    let caches = tempfile::tempdir()?;
    let (left, mended) = (caches.path().join("left"), caches.path().join("mended"));
    let mut observed =
        Observed { notebook: name, empty_cache: Vec::new(), cache_as_left: Vec::new(), cache_mended: Vec::new() };
    add(&mut observed.empty_cache, notebook::cell_seconds(&source, &folder, &left)?)?;
    workspace::succeed(Command::new("cp").arg("--recursive").args([&left, &mended]))?;
    kernel_cache::mend_below(&mended)?;
    for _ in 0..runs {
        add(bare, notebook::cell_seconds(&bare_notebook(), &folder, &left)?)?;
        add(&mut observed.cache_as_left, notebook::cell_seconds(&source, &folder, &left)?)?;
        add(&mut observed.cache_mended, notebook::cell_seconds(&source, &folder, &mended)?)?;
    }
    Ok(observed)
}

fn bare_notebook() -> String {
    let cells = BARE.map(|(id, source)| {
        json!({ "cell_type": "code", "id": id, "metadata": {}, "source": source, "outputs": [], "execution_count": null })
    });
    let kernel = json!({ "name": "rust", "display_name": "Rust", "language": "rust" });
    json!({ "cells": cells, "metadata": { "kernelspec": kernel }, "nbformat": 4, "nbformat_minor": 5 }).to_string()
}

fn add(cells: &mut Vec<Cell>, run: Vec<(String, f64)>) -> Result<()> {
    if cells.is_empty() {
        cells.extend(run.iter().map(|(id, _)| Cell { id: id.clone(), seconds: Vec::new() }));
    }
    if !cells.iter().map(|cell| &cell.id).eq(run.iter().map(|(id, _)| id)) {
        bail!("un noyau n'a pas exécuté les mêmes cellules que le précédent");
    }
    for (cell, (_, seconds)) in cells.iter_mut().zip(run) {
        cell.seconds.push(seconds);
    }
    Ok(())
}

impl Observed {
    fn print(&self, bare: &[Cell]) -> Result<()> {
        let sorts = [
            ("cache vide", &self.empty_cache),
            ("cache laissé tel quel", &self.cache_as_left),
            ("cache remis en état", &self.cache_mended),
        ];
        print_cells(&self.notebook, &sorts, bare)
    }
}

/// The first cell is compared with the bare kernel's first, each other one with the bare kernel's last.
fn print_cells(title: &str, sorts: &[(&str, &Vec<Cell>)], bare: &[Cell]) -> Result<()> {
    println!("\n{title}");
    for (sort, cells) in sorts {
        println!("  {sort:<28} minimum   médiane   maximum   rapport au noyau nu");
        for (place, cell) in cells.iter().enumerate() {
            let beside = if place == 0 { bare.first() } else { bare.last() }.context("aucun noyau nu")?;
            let ratio = middle(cell)? / middle(beside)?;
            let smallest = cell.seconds.iter().copied().fold(f64::INFINITY, f64::min);
            let largest = cell.seconds.iter().copied().fold(0.0, f64::max);
            println!(
                "    {:<26} {smallest:>5.2} s   {:>5.2} s   {largest:>5.2} s   {ratio:>5.1}",
                cell.id,
                middle(cell)?
            );
        }
    }
    Ok(())
}

fn middle(cell: &Cell) -> Result<f64> {
    median(&cell.seconds).context("une cellule sans observation")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_gathered_by_cell_and_other_cells_refused() -> Result<()> {
        let mut cells = Vec::new();
        let run = |first: f64| vec![("a".to_owned(), first), ("b".to_owned(), 1.0)];
        for first in [3.0, 1.0, 2.0] {
            add(&mut cells, run(first))?;
        }
        assert_eq!((cells.len(), cells[0].seconds.len(), middle(&cells[0])?), (2, 3, 2.0));
        assert!(add(&mut cells, vec![("a".to_owned(), 1.0)]).is_err());
        Ok(())
    }
}
