//! The page of an exploration in a real browser: on a phone, at a desk, on paper. A page with planted faults
//! goes the same way, and each of them has to be found.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use iteragpu_lab::Measurement;
use iteragpu_lab::explore::{Plan, PlanOptions, PlanRecord, RunRecord, report};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{python, workspace};

const DRIVER: &str = include_str!("page.py");

/// Smaller letters are not read without zooming in.
const SMALLEST: f64 = 10.0;

/// Two series of a few points take three sheets; many more would mean that each chart has one of its own.
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
    let page = made_up_page(folder.path())?;
    let planted = folder.path().join("planted.html");
    let text = fs::read_to_string(&page)?.replace("default-src 'none'", "default-src * 'unsafe-inline'");
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

/// Two dimensions, two trials, from a measurement of an H200; its times are stretched.
fn made_up_page(folder: &Path) -> Result<PathBuf> {
    let mut kept: Value = serde_json::from_slice(&fs::read(workspace::root().join("docs/mesures/h200-golden.json"))?)?;
    let measurement: Measurement = serde_json::from_value(kept["measurements"][0].take())?;
    let options = PlanOptions { trials: 2, ..PlanOptions::default() };
    let vary = ["width=64,128,256,512,1024,2048,4096,8192", "dtype=float32,float16,bfloat16"];
    let plan = PlanRecord {
        schema_version: 1,
        artifact: "iteragpu-lab-v1".to_owned(),
        kind: "exploration_plan".to_owned(),
        exploration_id: "0123456789abcdef".to_owned(),
        started_at_utc: measurement.measured_at_utc.clone(),
        environment: measurement.environment.clone(),
        plan: Plan::new(measurement.configuration.chosen.clone(), &vary, &options)?,
    };
    let mut text = serde_json::to_string(&plan)?;
    for (index, planned) in (1_u32..).zip(&plan.plan.runs) {
        let configuration = plan.plan.points[planned.point].clone();
        let mut measurement = measurement.clone();
        measurement.configuration.chosen = configuration.clone();
        measurement.phases.iter_mut().for_each(|row| row.elapsed_seconds *= f64::from(index));
        let run = RunRecord {
            kind: "exploration_run".to_owned(),
            exploration_id: plan.exploration_id.clone(),
            run_index: u64::from(index),
            trial: planned.trial,
            configuration,
            ended_at_utc: plan.started_at_utc.clone(),
            measurement: Some(measurement),
            reason: None,
        };
        text = [text, serde_json::to_string(&run)?].join("\n");
    }
    let (file, page) = (folder.join("exploration.jsonl"), folder.join("exploration.html"));
    fs::write(&file, text + "\n")?;
    fs::write(&page, report(&file)?.page())?;
    Ok(page)
}
