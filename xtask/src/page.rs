//! The page of an exploration in a real browser: on a phone, at a desk, on paper. A page with planted faults
//! goes the same way, and each of them has to be found.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use iteragpu_lab::explore::report;
use serde::Deserialize;
use serde_json::json;

use crate::{python, workspace};

const DRIVER: &str = include_str!("page.py");

/// Two dimensions, three trials, measured on an H200.
const KEPT: &str = "docs/mesures/h200-exploration.jsonl";

/// Smaller letters are not read without zooming in.
const SMALLEST: f64 = 10.0;

/// Its two series take three sheets; many more would mean that each chart has one of its own.
const MOST_SHEETS: usize = 5;

/// Two of time and two of memory.
const CHARTS: usize = 4;

/// Each is a fault of its own: wide, tiny, asking elsewhere, cut on paper.
const PLANTED: &str = "<div style=\"width:900px\">.</div><p style=\"font-size:4px\">.</p>\
     <img src=\"http://example.invalid/x.png\"><script>console.log('planted')</script>";

#[derive(Deserialize)]
struct Seen {
    views: Vec<View>,
    print: Print,
}

/// What a window shows.
#[derive(Deserialize)]
struct View {
    window: String,
    scheme: String,
    wide: bool,
    smallest: f64,
    charts: usize,
    elsewhere: Vec<String>,
    complaints: Vec<String>,
}

#[derive(Deserialize)]
struct Print {
    sheets: usize,
    cut: Vec<String>,
}

/// Fails when the page has a fault, or the planted faults are not all found.
pub fn check(chromium: &Path) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (page, planted) = (folder.path().join("page.html"), folder.path().join("planted.html"));
    let text = report(workspace::root().join(KEPT))?.page();
    fs::write(&page, &text)?;
    let text = text.replace("default-src 'none'", "default-src * 'unsafe-inline'");
    fs::write(&planted, text.replacen("</h1>", &format!("</h1>{PLANTED}"), 1).replace("<svg", "<b"))?;
    let [good, bad] = look(chromium, [&page, &planted])?;
    let faults = good.faults();
    ensure!(faults.is_empty(), "la page d'une exploration a des défauts : {}", faults.join(" ; "));
    let found = bad.faults().join(" ; ");
    for fault in ["plus large", "lettres", "graphiques", "example.invalid", "planted", "coupé"] {
        ensure!(found.contains(fault), "défaut planté, non trouvé ({fault}) : {found}");
    }
    let smallest = good.views.iter().map(|view| view.smallest).fold(f64::INFINITY, f64::min);
    println!(
        "Page d'une exploration : {} vues, lettres de {smallest:.1} px au moins, {} feuilles imprimées ; défauts plantés trouvés",
        good.views.len(),
        good.print.sheets
    );
    Ok(())
}

fn look(chromium: &Path, pages: [&PathBuf; 2]) -> Result<[Seen; 2]> {
    let request = json!({ "chromium": chromium, "pages": pages });
    let mut driver = Command::new(python::interpreter());
    let output = workspace::output_of(driver.args(["-c", DRIVER]).arg(request.to_string()))?;
    let seen: Vec<Seen> = output.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    seen.try_into().ok().context("le pilote du navigateur n'a pas rendu compte de chaque page")
}

impl Seen {
    fn faults(&self) -> Vec<String> {
        let mut faults: Vec<String> = self.views.iter().flat_map(View::faults).collect();
        faults.extend(self.print.cut.iter().map(|element| format!("coupé à l'impression : {element}")));
        if !(1..=MOST_SHEETS).contains(&self.print.sheets) {
            faults.push(format!("{} feuilles imprimées", self.print.sheets));
        }
        faults
    }
}

impl View {
    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.wide {
            faults.push("page plus large que la fenêtre".to_owned());
        }
        if self.smallest < SMALLEST {
            faults.push(format!("lettres de {:.1} px", self.smallest));
        }
        if self.charts != CHARTS {
            faults.push(format!("{} graphiques au lieu de {CHARTS}", self.charts));
        }
        faults.extend(self.elsewhere.iter().map(|address| format!("adresse demandée : {address}")));
        faults.extend(self.complaints.iter().map(|text| format!("console : {text}")));
        faults.into_iter().map(|fault| format!("{} ({}) : {fault}", self.window, self.scheme)).collect()
    }
}
