//! Results files as people keep them: rows are added whole or not at all, read right or refused,
//! and summarized as a slow and obvious program would.
#![cfg(unix)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use common::StandIn;
use iteragpu_lab::results::{COLUMNS, Spread, read_measurement, run_id};
use iteragpu_lab::simulation::{Simulation, simulation_of};
use iteragpu_lab::{LabError, Measurement, Summary, accepted_units, append, summarize};
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::Value;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

const COMMAND: &str = env!("CARGO_BIN_EXE_mesure-memoire");

fn read(path: &str) -> std::io::Result<String> {
    fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR")))
}

#[derive(Deserialize)]
struct Golden {
    measurements: Vec<Measurement>,
}

/// Real measurements of an H200, each of another configuration.
fn measurements() -> Outcome<Vec<Measurement>> {
    let golden: Golden = serde_json::from_str(&read("docs/mesures/h200-golden.json")?)?;
    Ok(golden.measurements)
}

/// A measurement that ended in another second.
fn measurement_of_second(second: u32) -> Outcome<Measurement> {
    let mut measurement = measurements()?.swap_remove(0);
    measurement.measured_at_utc = format!("2026-11-30T12:00:{second:02}.000001+00:00");
    Ok(measurement)
}

fn start(arguments: &[&str], folder: &Path) -> std::io::Result<Child> {
    let mut command = Command::new(COMMAND);
    command.arg("results").args(arguments).current_dir(folder).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
}

fn run(arguments: &[&str], folder: &Path) -> std::io::Result<Output> {
    start(arguments, folder)?.wait_with_output()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Names in a folder, those of temporary files included.
fn names(folder: &Path) -> std::io::Result<Vec<String>> {
    let entries = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    let mut names: Vec<String> = entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

fn table(text: &str) -> Result<Vec<Vec<String>>, csv::Error> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_bytes());
    reader.records().map(|record| Ok(record?.iter().map(str::to_owned).collect())).collect()
}

/// A results file with one real measurement, as text.
fn one_run() -> Outcome<String> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("r.csv");
    append(&measurements()?[0], &file)?;
    Ok(fs::read_to_string(file)?)
}

fn column(name: &str) -> usize {
    COLUMNS.iter().position(|column| *column == name).unwrap_or(usize::MAX)
}

/// The file with one cell changed; rows count from 1, as lines do, so that the first is line 2.
fn with_cell(text: &str, line: usize, name: &str, cell: &str) -> Outcome<String> {
    let mut rows = table(text)?;
    rows[line - 1][column(name)] = cell.to_owned();
    written(&rows, b',')
}

fn written(rows: &[Vec<String>], delimiter: u8) -> Outcome<String> {
    let mut writer = csv::WriterBuilder::new().delimiter(delimiter).from_writer(Vec::new());
    rows.iter().try_for_each(|row| writer.write_record(row))?;
    Ok(String::from_utf8(writer.into_inner()?)?)
}

fn summary_of(bytes: &[u8]) -> Result<Result<Summary, LabError>, std::io::Error> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("r.csv");
    fs::write(&file, bytes)?;
    Ok(summarize(&file))
}

// What the project ships.

#[test]
fn the_shipped_grid_is_the_header_and_nothing_else() -> Outcome {
    assert_eq!(read("resultats-bruts.csv")?, format!("{}\n", COLUMNS.join(",")));
    let blank = summarize(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/resultats-bruts.csv")))?;
    assert_eq!((blank.rows, blank.runs, blank.environments.len()), (0, 0, 0));
    Ok(())
}

#[test]
fn every_column_is_documented_in_order() -> Outcome {
    let document = read("docs/resultats.md")?;
    let documented: Vec<&str> =
        document.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(name, _)| name)).collect();
    assert_eq!(documented, COLUMNS);
    Ok(())
}

// Adding.

#[test]
fn a_measurement_becomes_one_row_a_pass_and_reads_back() -> Outcome {
    let measurement = &measurements()?[0];
    let text = one_run()?;
    let rows = table(&text)?;
    assert_eq!(rows.len(), 1 + measurement.phases.len());
    for (row, phase) in rows[1..].iter().zip(&measurement.phases) {
        let cell = |name: &str| row[column(name)].as_str();
        assert_eq!(cell("run_id"), run_id(measurement));
        assert_eq!(cell("device_name"), "NVIDIA H200");
        assert_eq!(cell("torch_version"), "2.11.0+cu130");
        assert_eq!((cell("phase"), cell("run_index")), (phase.phase.as_str(), phase.run_index.to_string().as_str()));
        assert_eq!(cell("elapsed_seconds").parse::<f64>()?, phase.elapsed_seconds);
        assert_eq!(cell("peak_reserved_bytes"), phase.peak_reserved_bytes.to_string());
        assert_eq!(cell("iterations"), phase.iterations.map(|n| n.to_string()).unwrap_or_default());
        assert!(row[column("work_unit")..].iter().all(String::is_empty), "left to people");
    }
    Ok(())
}

#[test]
fn the_identifier_is_fnv_1a_of_the_json_text() -> Outcome {
    let measurement = &measurements()?[0];
    let mut hash: u64 = 14_695_981_039_346_656_037;
    for byte in measurement.to_string().bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(1_099_511_628_211);
    }
    assert_eq!(run_id(measurement), format!("{}-{hash:016x}", measurement.measured_at_utc));
    assert_ne!(run_id(measurement), run_id(&measurement_of_second(1)?));
    Ok(())
}

#[test]
fn a_simulation_beside_it_makes_no_other_measurement() -> Outcome {
    let measured = measurements()?.swap_remove(0);
    let simulated = Measurement { simulation: Some(simulation_of(&measured)?), ..measured.clone() };
    let folder = tempfile::tempdir()?;
    let results = folder.path().join("r.csv");
    append(&measured, &results)?;
    assert!(matches!(append(&simulated, &results), Err(LabError::RunAlreadyRecorded { .. })));
    Ok(())
}

/// Were it read to its end first, it would take all memory.
#[cfg(target_os = "linux")]
#[test]
fn a_device_without_an_end_is_no_measurement() -> Outcome {
    let refused = read_measurement(Path::new("/dev/zero"));
    assert!(matches!(refused, Err(LabError::NotAMeasurement { .. })), "{refused:?}");
    let folder = tempfile::tempdir()?;
    assert!(matches!(read_measurement(folder.path()), Err(LabError::Unreadable { .. })));
    Ok(())
}

#[test]
fn results_without_an_end_are_refused_before_they_fill_the_memory() -> Outcome {
    let refused = common::in_little_memory(COMMAND).args(["results", "summary", "/dev/zero"]).output()?;
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("/dev/zero, ligne 1, colonne toutes"), "{}", stderr(&refused));
    // Blank lines are skipped, but not for ever; a row is as long as people make it, but not longer.
    let good = one_run()?;
    let (header, rows) = good.split_once('\n').ok_or("no rows")?;
    let blank = |lines: usize| format!("{header}\n{}{rows}", "\n".repeat(lines));
    let remark = |length: usize| with_cell(&good, 3, "remark", &"a".repeat(length));
    for (text, expected) in [(blank(2 << 20), "colonne toutes"), (remark(2 << 20)?, "ligne 3, colonne toutes")] {
        let refused = summary_of(text.as_bytes())?.map(|_| ()).map_err(|error| error.to_string());
        assert!(refused.as_ref().is_err_and(|text| text.contains(expected) && text.contains("1 Mio")), "{refused:?}");
    }
    assert!(summary_of(blank(1_000_000).as_bytes())?.is_ok());
    assert!(summary_of(remark(1_000_000)?.as_bytes())?.is_ok());
    Ok(())
}

#[test]
fn from_a_shell_with_exit_codes_and_streams() -> Outcome {
    let stand_in = StandIn::new("good")?;
    let folder = stand_in.beside("");
    let mut measure = Command::new(COMMAND);
    measure.args(["measure", "--warmup", "1", "--repeats", "2", "--output", "m.json"]);
    let measured = measure.current_dir(&folder).env("ITERAGPU_WORKER", stand_in.program()).output()?;
    assert!(measured.status.success(), "{}", stderr(&measured));

    let arguments = ["append", "--from", "m.json", "--to", "mes.csv"];
    let added = run(&arguments, &folder)?;
    assert_eq!((added.status.code(), added.stdout.len()), (Some(0), 0), "{}", stderr(&added));
    assert!(stderr(&added).starts_with("6 lignes ajoutées à « mes.csv »"), "{}", stderr(&added));
    let kept = fs::read(folder.join("mes.csv"))?;

    let again = run(&arguments, &folder)?;
    assert_eq!((again.status.code(), again.stdout.len()), (Some(2), 0));
    assert!(stderr(&again).contains("contient déjà l'essai") && stderr(&again).contains("à la ligne 2"));
    assert_eq!(fs::read(folder.join("mes.csv"))?, kept);

    let summary = run(&["summary", "mes.csv"], &folder)?;
    assert_eq!((summary.status.code(), stderr(&summary).as_str()), (Some(0), ""));
    let value: Value = serde_json::from_slice(&summary.stdout)?;
    assert_eq!((&value["kind"], &value["rows"]), (&"allocator_measurement_summary".into(), &6.into()));
    let warm = &value["environments"][0]["configurations"][0]["phases"][4];
    assert_eq!((&warm["phase"], &warm["count"]), (&"warm_forward".into(), &2.into()));
    assert_eq!(warm["peak_reserved_bytes"], serde_json::json!({"min": 6, "median": 6, "max": 6}));
    assert_eq!(value["environments"][0]["driver_version"], Value::Null);

    let missing = run(&["summary", "absent.csv"], &folder)?;
    assert_eq!((missing.status.code(), missing.stdout.len()), (Some(2), 0));
    assert!(stderr(&missing).contains("absent.csv"));
    for arguments in [&["append"][..], &["append", "--from", "m.json"], &["summary"], &[], &["sumary", "x"]] {
        assert_eq!(run(arguments, &folder)?.status.code(), Some(2), "{arguments:?}");
    }
    for arguments in [&["--help"][..], &["append", "--help"], &["summary", "--help"]] {
        let help = run(arguments, &folder)?;
        let said = String::from_utf8_lossy(&help.stdout).into_owned();
        assert_eq!((help.status.code(), stderr(&help).as_str()), (Some(0), ""), "{arguments:?}");
        assert!(said.contains("Usage : ") && !said.contains("Usage:") && !said.contains("Print"), "{said}");
    }
    Ok(())
}

#[test]
fn the_blank_grid_stays_blank() -> Outcome {
    let folder = tempfile::tempdir()?;
    let grid = folder.path().join("resultats-bruts.csv");
    fs::write(&grid, read("resultats-bruts.csv")?)?;
    symlink(&grid, folder.path().join("link.csv"))?;
    for name in ["resultats-bruts.csv", "link.csv", "Resultats-Bruts.CSV", "./resultats-bruts.csv"] {
        let refused = append(&measurements()?[0], &folder.path().join(name)).map_err(|error| error.to_string());
        assert!(refused.is_err_and(|text| text.contains("un autre nom")), "{name}");
    }
    assert_eq!(fs::read_to_string(&grid)?, read("resultats-bruts.csv")?);
    assert_eq!(names(folder.path())?, ["link.csv", "resultats-bruts.csv"]);
    // A copy under a name of its own is what people are asked for.
    let copy = folder.path().join("copie.csv");
    fs::copy(&grid, &copy)?;
    append(&measurements()?[0], &copy)?;
    assert_eq!(fs::read_to_string(&copy)?, one_run()?);
    // Behind the grid's name, not even a link to such a copy is written to.
    fs::remove_file(&grid)?;
    symlink(&copy, &grid)?;
    assert!(matches!(append(&measurements()?[1], &grid), Err(LabError::InvalidArgument { .. })));
    assert_eq!(fs::read_to_string(&copy)?, one_run()?);
    Ok(())
}

/// One file in every way that people and spreadsheets save it.
fn dialects() -> Outcome<Vec<(&'static str, Vec<u8>)>> {
    let plain = with_cell(&one_run()?, 2, "remark", "essai n° 1, relu à Orléans")?;
    let mut rows = table(&plain)?;
    let semicolons = written(&rows, b';')?;
    for row in &mut rows[1..] {
        for (name, from, to) in
            [("elapsed_seconds", ".", ","), ("device_total_bytes", "150109880320", "150\u{a0}109\u{a0}880\u{a0}320")]
        {
            row[column(name)] = row[column(name)].replace(from, to);
        }
    }
    let french = written(&rows, b';')?.replace('\n', "\r\n");
    let narrow = french.replace('\u{a0}', "\u{202f}");
    let latin_1 = french.chars().map(|c| u8::try_from(u32::from(c))).collect::<Result<Vec<u8>, _>>()?;
    rows = table(&plain)?;
    rows.iter_mut().for_each(|row| row.reverse());
    rows = table(&plain)?;
    rows.iter_mut().flatten().for_each(|cell| *cell = format!(" {cell} "));
    let spaced = written(&rows, b',')?;
    let quoted = plain
        .lines()
        .map(|line| if line.contains('"') { line.to_owned() } else { format!("\"{}\"", line.replace(',', "\",\"")) });
    Ok(vec![
        ("plain", plain.clone().into_bytes()),
        ("no final newline", plain.trim_end().as_bytes().to_vec()),
        ("CRLF, no final newline", plain.trim_end().replace('\n', "\r\n").into_bytes()),
        ("mark", format!("\u{feff}{plain}").into_bytes()),
        ("blank last lines", format!("{plain}\r\n \n\n  ").into_bytes()),
        ("semicolons", semicolons.into_bytes()),
        ("French Excel, UTF-8 with mark", format!("\u{feff}{french}").into_bytes()),
        ("French Excel, narrow spaces", narrow.into_bytes()),
        ("French Excel, Latin-1", latin_1),
        ("columns reversed", written(&rows, b',')?.into_bytes()),
        ("spaces around cells", spaced.into_bytes()),
        ("all quoted", quoted.collect::<Vec<_>>().join("\n").into_bytes()),
    ])
}

#[test]
fn files_as_people_save_them_are_read_right_and_added_to() -> Outcome {
    let expected_one = summary_of(one_run()?.as_bytes())??;
    let folder = tempfile::tempdir()?;
    let expected = folder.path().join("expected.csv");
    fs::write(&expected, one_run()?)?;
    append(&measurements()?[1], &expected)?;
    let expected_two = summarize(&expected)?;
    for (name, bytes) in dialects()? {
        assert_eq!(summary_of(&bytes)??, expected_one, "{name}");
        let file = folder.path().join("r.csv");
        fs::write(&file, &bytes)?;
        assert!(
            matches!(append(&measurements()?[0], &file), Err(LabError::RunAlreadyRecorded { line: 2, .. })),
            "{name}"
        );
        append(&measurements()?[1], &file)?;
        let now = fs::read(&file)?;
        assert!(now.starts_with(&bytes), "{name}: what was there has changed");
        assert!(now.ends_with(b"\n"), "{name}");
        assert_eq!(summarize(&file)?, expected_two, "{name}");
        // The new lines end as the old ones do.
        let ends = |end: &str| String::from_utf8_lossy(&now).matches(end).count();
        if bytes.windows(2).any(|pair| pair == b"\r\n") && !name.starts_with("blank") {
            assert_eq!(ends("\r\n"), ends("\n"), "{name}");
        }
    }
    Ok(())
}

#[test]
fn broken_files_are_refused_by_line_and_column_and_left_alone() -> Outcome {
    let plain = one_run()?;
    let rows = table(&plain)?;
    let cell = |line, name, cell| with_cell(&plain, line, name, cell);
    let twice = format!("{plain}{}", plain.lines().skip(3).take(1).collect::<String>());
    let semicolons = written(&rows, b';')?;
    let bare = ",".repeat(COLUMNS.len() - 1);
    let missing = plain.replacen("phase,", "", 1);
    let unclosed = format!("{}\"", plain.trim_end());
    let cases = [
        ("ligne 4, colonne peak_reserved_bytes : «  » refusé", cell(4, "peak_reserved_bytes", "")?),
        ("ligne 3, colonne phase : «  »", cell(3, "phase", "")?),
        ("ligne 3, colonne phase : « warm-up »", cell(3, "phase", "warm-up")?),
        ("ligne 2, colonne run_id", cell(2, "run_id", "")?),
        ("ligne 2, colonne measured_at_utc : « 30/11/2026 »", cell(2, "measured_at_utc", "30/11/2026")?),
        ("ligne 2, colonne device : « cpu »", cell(2, "device", "cpu")?),
        ("ligne 2, colonne batch : « 0 »", cell(2, "batch", "0")?),
        ("ligne 2, colonne context : « 0 »", cell(2, "context", "0")?),
        ("ligne 2, colonne width : « 0 »", cell(2, "width", "0")?),
        ("ligne 2, colonne warmup : « 0 »", cell(2, "warmup", "0")?),
        ("ligne 2, colonne repeats : « 0 »", cell(2, "repeats", "0")?),
        ("ligne 2, colonne device_total_bytes : « 0 »", cell(2, "device_total_bytes", "0")?),
        ("ligne 2, colonne dtype : « fp32 »", cell(2, "dtype", "fp32")?),
        ("ligne 2, colonne device_total_bytes : « 1,50E+11 »", cell(2, "device_total_bytes", "1,50E+11")?),
        ("ligne 2, colonne seed : « 1,72E+03 »", cell(2, "seed", "1,72E+03")?),
        ("ligne 3, colonne elapsed_seconds : « 1,049.99 »", cell(3, "elapsed_seconds", "1,049.99")?),
        ("ligne 3, colonne elapsed_seconds : « 1,049 »", cell(3, "elapsed_seconds", "1,049")?),
        ("ligne 3, colonne elapsed_seconds : « 1e-3 »", cell(3, "elapsed_seconds", "1e-3")?),
        ("ligne 3, colonne elapsed_seconds : « -1 »", cell(3, "elapsed_seconds", "-1")?),
        ("ligne 5, colonne end_allocated_bytes : « 12.5 »", cell(5, "end_allocated_bytes", "12.5")?),
        ("ligne 5, colonne end_allocated_bytes : « 1049,99 »", cell(5, "end_allocated_bytes", "1049,99")?),
        ("ligne 5, colonne iterations : « 0 »", cell(5, "iterations", "0")?),
        ("ligne 3, colonne run_index : « 1 »", cell(3, "run_index", "1")?),
        ("ligne 6, colonne run_index : « 0 »", cell(6, "run_index", "0")?),
        ("ligne 4, colonne width : « 65 » refusé. Accepté : « 64 », comme à la ligne 2", cell(4, "width", "65")?),
        (
            "ligne 5, colonne driver_version : «  » refusé. Accepté : « 580.159.04 », comme",
            cell(5, "driver_version", "")?,
        ),
        ("ligne 7, colonne run_index : « warm_forward 1 »", cell(7, "run_index", "1")?),
        ("colonne run_index : « cold_forward 0 »", twice),
        (&format!("ligne {}, colonne toutes", rows.len() + 1), format!("{plain}{bare}\n")),
        (&format!("ligne {}, colonne toutes", rows.len() + 1), format!("{plain}a,b\n")),
        (&format!("ligne {}, colonne toutes", rows.len()), unclosed),
        ("ligne 1, colonne en-tête", missing),
        ("ligne 1, colonne en-tête", plain.replacen("phase,", "fase,", 1)),
        ("ligne 1, colonne en-tête", plain.replacen(',', "\t", 1000)),
        ("ligne 2, colonne toutes", semicolons.replacen(';', ",", 40).replacen(',', ";", COLUMNS.len() - 1)),
        ("ligne 1, colonne en-tête", String::new()),
    ];
    let folder = tempfile::tempdir()?;
    for (expected, text) in &cases {
        let file = folder.path().join("r.csv");
        fs::write(&file, text)?;
        let summary = summarize(&file).map(|_| ()).map_err(|error| error.to_string());
        assert!(summary.as_ref().is_err_and(|text| text.contains(expected)), "{expected}: {summary:?}");
        let added = append(&measurements()?[1], &file).map(|_| ()).map_err(|error| error.to_string());
        assert_eq!(added, summary, "the same refusal");
        assert_eq!(&fs::read_to_string(&file)?, text, "untouched");
    }
    assert_eq!(names(folder.path())?, ["r.csv"]);
    Ok(())
}

/// What a measurement's simulation would be, with one contradiction.
fn simulated(measurement: &Measurement, change: fn(&mut Simulation)) -> Option<Simulation> {
    let mut simulation = simulation_of(measurement).ok()?;
    change(&mut simulation);
    Some(simulation)
}

#[test]
fn what_is_no_measurement_is_refused_and_creates_nothing() -> Outcome {
    let good = measurements()?.swap_remove(0);
    let changed = |change: fn(&mut Measurement)| {
        let mut measurement = good.clone();
        change(&mut measurement);
        measurement.to_string()
    };
    let cases = [
        ("n'est pas du JSON", "run_id,phase\n".to_owned()),
        ("s'arrête avant la fin", String::new()),
        ("s'arrête avant la fin", good.to_string()[..900].to_owned()),
        ("contient un autre JSON", "[]".to_owned()),
        ("contient un autre JSON", "{\"kind\": \"arithmetic_only\"}".to_owned()),
        ("contient un autre JSON", read("docs/mesures/h200-golden.json")?),
        ("contient un autre JSON", good.environment.to_string()),
        ("artifact « other »", changed(|m| m.artifact = "other".to_owned())),
        ("schema_version 2", changed(|m| m.schema_version = 2)),
        ("kind « simulated »", changed(|m| m.kind = "simulated".to_owned())),
        ("n'est pas une date", changed(|m| m.measured_at_utc = "=cmd".to_owned())),
        ("phases, dont une manque", changed(|m| m.phases.truncate(3))),
        ("phases, dont une manque", changed(|m| m.phases.swap(0, 1))),
        ("la configuration", changed(|m| m.configuration.chosen.device = "cpu".to_owned())),
        ("de inputs 0 sont impossibles", changed(|m| m.phases[1].elapsed_seconds = -1.0)),
        ("de inputs 0 sont impossibles", changed(|m| m.phases[1].peak_allocated_bytes = 0)),
        ("de model_load 0 sont impossibles", changed(|m| m.phases[0].end_allocated_bytes = 0)),
        ("de warmup 0 sont impossibles", changed(|m| m.phases[3].end_reserved_bytes = 1)),
        ("synthetic_model", changed(|m| m.synthetic_model.parameter_count += 1)),
        ("synthetic_model", changed(|m| m.synthetic_model.parameter_bytes = 0)),
        ("synthetic_model", changed(|m| m.synthetic_model.definition = "Linear".to_owned())),
        ("simulation", changed(|m| m.simulation = simulated(m, |s| s.kind = "allocator_measurement".to_owned()))),
        ("simulation", changed(|m| m.simulation = simulated(m, |s| s.configuration.width += 1))),
        ("simulation", changed(|m| m.simulation = simulated(m, |s| s.synthetic_model.parameter_count = 1))),
    ];
    let folder = tempfile::tempdir()?;
    let json = folder.path().join("m.json");
    for (expected, text) in cases {
        fs::write(&json, text)?;
        assert!(matches!(read_measurement(&json), Err(LabError::NotAMeasurement { .. })), "{expected}");
        let refused = run(&["append", "--from", "m.json", "--to", "r.csv"], folder.path())?;
        assert_eq!((refused.status.code(), refused.stdout.len()), (Some(2), 0), "{expected}");
        let said = stderr(&refused);
        assert!(said.contains(expected) && said.contains("Attendu : une mesure complète"), "{expected}: {said}");
    }
    fs::remove_file(&json)?;
    for from in ["absent.json", "."] {
        let refused = run(&["append", "--from", from, "--to", "r.csv"], folder.path())?;
        assert_eq!(refused.status.code(), Some(2));
        assert!(stderr(&refused).contains("ne peut pas être lu"));
    }
    assert!(names(folder.path())?.is_empty());
    // The same content unharmed, and through the library a time that no JSON can hold.
    fs::write(&json, good.to_string())?;
    assert_eq!(read_measurement(&json)?, good);
    let mut endless = good;
    endless.phases[1].elapsed_seconds = f64::INFINITY;
    assert!(matches!(append(&endless, &folder.path().join("r.csv")), Err(LabError::NotAMeasurement { .. })));
    Ok(())
}

#[test]
fn a_hostile_device_name_is_text_in_every_spreadsheet_and_one_cell() -> Outcome {
    let folder = tempfile::tempdir()?;
    for (hostile, written) in [
        ("=HYPERLINK(\"http://x\";\"a\"),1", "'=HYPERLINK(\"http://x\";\"a\"),1"),
        ("@SUM(1+1)*cmd|' /C calc'!A0", "'@SUM(1+1)*cmd|' /C calc'!A0"),
        ("-2+3\r\nx,y;z\u{0}", r"'-2+3\u000d\u000ax,y;z\u0000"),
        ("\t=1", r"\u0009=1"),
        ("\u{202e}=1\u{061c}\u{2066}", r"\u202e=1\u061c\u2066"),
    ] {
        let mut measurement = measurements()?.swap_remove(0);
        measurement.environment.selected_device_name = Some(hostile.to_owned());
        let settings = measurement.environment.runtime_settings.get_or_insert_default();
        settings.set_outside = vec![hostile.to_owned()];
        for start in ["", &one_run()?, &written_with_semicolons()?] {
            let file = folder.path().join("r.csv");
            let _ = fs::remove_file(&file);
            if !start.is_empty() {
                fs::write(&file, start)?;
            }
            append(&measurement, &file)?;
            let steers = |c: char| c.is_control() || "\u{61c}\u{202e}\u{2066}".contains(c);
            assert!(!fs::read_to_string(&file)?.replace(['\r', '\n'], "").contains(steers), "{hostile:?}");
            let summary = summarize(&file)?;
            let names = summary.environments.iter().filter_map(|entry| entry.environment.device_name.as_deref());
            assert!(names.into_iter().any(|name| name == written), "{hostile:?}: {summary}");
        }
    }
    Ok(())
}

/// A file that takes a row too long to be read would be lost.
#[test]
fn texts_without_an_end_do_not_make_a_results_file_unreadable() -> Outcome {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("r.csv");
    let mut measurement = measurements()?.swap_remove(0);
    for (length, accepted) in [(1 << 20, false), (500_000, true)] {
        measurement.environment.selected_device_name = Some("\"".repeat(length));
        let outcome = append(&measurement, &file);
        let refused = matches!(&outcome, Err(LabError::NotAMeasurement { found }) if found.contains("1 Mio"));
        assert_eq!((outcome.is_ok(), refused, file.exists()), (accepted, !accepted, accepted), "{length}: {outcome:?}");
    }
    assert!(summarize(&file).is_ok());
    Ok(())
}

fn written_with_semicolons() -> Outcome<String> {
    written(&table(&one_run()?)?, b';')
}

#[test]
fn a_link_stays_a_link_and_owner_and_permissions_stay() -> Outcome {
    let folder = tempfile::tempdir()?;
    let (file, link) = (folder.path().join("real.csv"), folder.path().join("link.csv"));
    append(&measurements()?[0], &file)?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640))?;
    if file.metadata()?.uid() == 0 {
        // Only root can give a file away.
        chown(&file, Some(65534), Some(65534))?;
    }
    let owner = |file: &Path| file.metadata().map(|metadata| (metadata.uid(), metadata.gid()));
    let before = owner(&file)?;
    symlink("real.csv", &link)?;
    append(&measurements()?[1], &link)?;
    assert!(link.symlink_metadata()?.is_symlink());
    assert_eq!(owner(&file)?, before);
    assert_eq!(summarize(&file)?.runs, 2);
    assert_eq!(file.metadata()?.permissions().mode() & 0o777, 0o640);

    symlink("nowhere.csv", folder.path().join("dangling.csv"))?;
    let refused = append(&measurements()?[0], &folder.path().join("dangling.csv")).map_err(|error| error.to_string());
    assert!(refused.is_err_and(|text| text.contains("un lien vers un fichier qui existe")));
    for (target, expected) in
        [(folder.path(), "un fichier ordinaire"), (Path::new("/dev/null"), "un fichier ordinaire")]
    {
        let refused = append(&measurements()?[0], target).map_err(|error| error.to_string());
        assert!(refused.as_ref().is_err_and(|text| text.contains(expected)), "{refused:?}");
    }
    for target in ["", "/nonexistent/r.csv"] {
        assert!(
            matches!(append(&measurements()?[0], Path::new(target)), Err(LabError::NotWritable { .. })),
            "{target}"
        );
    }
    assert_eq!(names(folder.path())?, ["dangling.csv", "link.csv", "real.csv"]);
    Ok(())
}

// Crashes, full disks, and others at work.

/// The command in a folder of its own, run by somebody who is not root when the tests are.
struct Unprivileged {
    folder: tempfile::TempDir,
}

impl Unprivileged {
    fn new() -> Outcome<Self> {
        let folder = tempfile::tempdir()?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        fs::copy(COMMAND, folder.path().join("mesure-memoire"))?;
        fs::write(folder.path().join("m.json"), measurements()?[1].to_string())?;
        fs::create_dir(folder.path().join("d"))?;
        fs::write(folder.path().join("d/r.csv"), one_run()?)?;
        Ok(Self { folder })
    }

    fn append(&self) -> std::io::Result<Output> {
        let mut command = Command::new(self.folder.path().join("mesure-memoire"));
        command.args(["results", "append", "--from", "m.json", "--to", "d/r.csv"]).current_dir(self.folder.path());
        if self.folder.path().metadata()?.uid() == 0 {
            command.uid(65534).gid(65534);
        }
        command.output()
    }

    fn set_modes(&self, folder: u32, file: u32) -> std::io::Result<()> {
        fs::set_permissions(self.folder.path().join("d/r.csv"), fs::Permissions::from_mode(file))?;
        fs::set_permissions(self.folder.path().join("d"), fs::Permissions::from_mode(folder))
    }
}

#[test]
fn a_read_only_folder_or_file_is_refused_and_unchanged() -> Outcome {
    let place = Unprivileged::new()?;
    for (folder, file) in [(0o555, 0o666), (0o777, 0o444), (0o777, 0o000)] {
        place.set_modes(folder, file)?;
        let refused = place.append()?;
        assert_eq!(
            (refused.status.code(), refused.stdout.len()),
            (Some(1), 0),
            "{folder:o} {file:o}: {}",
            stderr(&refused)
        );
        assert!(stderr(&refused).contains("« d/r.csv » ne peut pas être écrit"), "{}", stderr(&refused));
        place.set_modes(0o777, 0o666)?;
        assert_eq!(fs::read_to_string(place.folder.path().join("d/r.csv"))?, one_run()?);
        assert_eq!(names(&place.folder.path().join("d"))?, ["r.csv"]);
    }
    assert!(place.append()?.status.success(), "with rights, it is added");
    Ok(())
}

/// The limit on the size of files fails a write half-way, as a full disk does.
#[test]
fn a_full_disk_leaves_the_old_file_and_nothing_beside_it() -> Outcome {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("m.json"), measurements()?[1].to_string())?;
    let appended = |blocks: u32| {
        let script = format!("ulimit -f {blocks}; exec \"$1\" results append --from m.json --to r.csv");
        Command::new("/bin/sh").args(["-c", &script, "sh", COMMAND]).current_dir(folder.path()).output()
    };
    for (start, kept) in [(None, vec!["m.json"]), (Some(one_run()?), vec!["m.json", "r.csv"])] {
        if let Some(text) = &start {
            fs::write(folder.path().join("r.csv"), text)?;
        }
        for blocks in [0, 1, 2] {
            let failed = appended(blocks)?;
            assert_eq!((failed.status.code(), failed.stdout.len()), (Some(1), 0), "{blocks}: {}", stderr(&failed));
            assert!(stderr(&failed).contains("ne peut pas être écrit"));
            assert_eq!(names(folder.path())?, kept);
            assert_eq!(fs::read_to_string(folder.path().join("r.csv")).ok(), start);
        }
    }
    assert!(appended(1000)?.status.success());
    Ok(())
}

#[test]
fn simultaneous_appends_lose_nothing_and_double_nothing() -> Outcome {
    for (count, existing) in [(2, true), (2, false), (20, true), (50, false)] {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("r.csv");
        if existing {
            fs::write(&file, one_run()?)?;
        }
        // Each measurement twice: one of the two has to be refused.
        let mut children = Vec::new();
        for number in 0..count {
            let json = format!("{number}.json");
            fs::write(folder.path().join(&json), measurement_of_second(number)?.to_string())?;
            for _ in 0..2 {
                children.push(start(&["append", "--from", &json, "--to", "r.csv"], folder.path())?);
            }
        }
        let mut codes = Vec::new();
        for child in children {
            codes.push(child.wait_with_output()?.status.code());
        }
        for pair in codes.chunks(2) {
            assert!([[Some(0), Some(2)], [Some(2), Some(0)]].iter().any(|good| good == pair), "{codes:?}");
        }
        assert_eq!(summarize(&file)?.runs, u64::from(count) + u64::from(existing));
        assert_eq!(names(folder.path())?.len(), count as usize + 1, "nothing is left behind");
    }
    Ok(())
}

#[test]
fn killed_at_any_moment_it_leaves_the_old_file_or_the_new_one() -> Outcome {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("r.csv");
    let mut rows = table(&one_run()?)?;
    let warm = rows.pop().ok_or("no rows")?;
    for run_index in 2..6_000 {
        let mut row = warm.clone();
        row[column("run_index")] = run_index.to_string();
        rows.push(row);
    }
    let old = written(&rows, b',')?;
    fs::write(folder.path().join("m.json"), measurements()?[1].to_string())?;
    let arguments = ["append", "--from", "m.json", "--to", "r.csv"];

    fs::write(&file, &old)?;
    let begun = std::time::Instant::now();
    assert!(run(&arguments, folder.path())?.status.success());
    let whole = begun.elapsed();
    let new = fs::read_to_string(&file)?;
    assert!(new.starts_with(&old));

    // Whoever looks at any moment sees the one or the other: so does a crash.
    fs::write(&file, &old)?;
    let mut child = start(&arguments, folder.path())?;
    while child.try_wait()?.is_none() {
        let length = file.metadata()?.len();
        assert!([old.len() as u64, new.len() as u64].contains(&length), "{length} bytes in between");
    }

    let (mut olds, mut news) = (0, 0);
    for step in 0..40 {
        fs::write(&file, &old)?;
        let mut child = start(&arguments, folder.path())?;
        std::thread::sleep(whole.mul_f64(f64::from(step) / 30.0));
        child.kill()?;
        child.wait()?;
        match fs::read_to_string(&file)? {
            text if text == old => olds += 1,
            text if text == new => news += 1,
            text => return Err(format!("neither old nor new after step {step}: {} bytes", text.len()).into()),
        }
        // What a killed process leaves behind is in nobody's way, its lock least of all.
    }
    assert_eq!((olds + news, olds > 0), (40, true));
    fs::write(folder.path().join(".iteragpu-lab-incomplete-aB3xY9.tmp"), &old)?;
    fs::write(&file, &old)?;
    assert!(run(&arguments, folder.path())?.status.success());
    // Nor does it stay.
    assert_eq!(names(folder.path())?, ["m.json", "r.csv"]);
    Ok(())
}

#[test]
fn a_killed_first_append_leaves_no_file_or_a_whole_one() -> Outcome {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("r.csv");
    fs::write(folder.path().join("m.json"), measurements()?[0].to_string())?;
    for step in 0..30 {
        let _ = fs::remove_file(&file);
        let mut child = start(&["append", "--from", "m.json", "--to", "r.csv"], folder.path())?;
        std::thread::sleep(Duration::from_micros(step * 300));
        child.kill()?;
        child.wait()?;
        if let Ok(text) = fs::read_to_string(&file) {
            assert_eq!(text, one_run()?);
        }
    }
    Ok(())
}

// The summary.

#[test]
fn environments_are_kept_apart_and_said_to_differ() -> Outcome {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("r.csv");
    let mut measurement = measurements()?.swap_remove(0);
    append(&measurement, &file)?;
    let alone = summarize(&file)?;
    assert_eq!(
        alone.comparability,
        "Un seul environnement : ses essais se comparent, à configuration et phase égales."
    );

    // Another card of the same name is no other environment.
    measurement.configuration.chosen.device = "cuda:1".to_owned();
    append(&measurement, &file)?;
    let two_cards = summarize(&file)?;
    assert_eq!((two_cards.environments.len(), two_cards.environments[0].configurations[0].phases[0].count), (1, 2));

    measurement.environment.driver_version = Some("570.86.15".to_owned());
    measurement.environment.selected_device_name = Some("NVIDIA A100".to_owned());
    append(&measurement, &file)?;
    let two = summarize(&file)?;
    assert_eq!(two.environments.len(), 2);
    assert!(two.comparability.starts_with("2 environnements"), "{}", two.comparability);
    assert!(two.comparability.ends_with("diffèrent : driver_version, device_name."), "{}", two.comparability);

    measurement.environment.driver_version = None;
    append(&measurement, &file)?;
    let unknown = summarize(&file)?;
    assert_eq!(unknown.environments.len(), 3);
    assert!(
        unknown.comparability.contains("Colonnes vides par endroits : driver_version"),
        "{}",
        unknown.comparability
    );
    Ok(())
}

#[test]
fn results_under_other_settings_are_said_not_to_compare() -> Outcome {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("r.csv");
    let mut measurement = measurements()?.swap_remove(0);
    append(&measurement, &file)?;
    let settings = measurement.environment.runtime_settings.as_mut().ok_or("a measurement without settings")?;
    settings.expandable_segments = true;
    append(&measurement, &file)?;
    let summary = summarize(&file)?;
    assert!(
        summary.comparability.contains("ne sont pas comparables. Colonnes qui diffèrent : runtime_settings."),
        "{}",
        summary.comparability
    );
    let cells = summary.environments.iter().map(|entry| entry.environment.runtime_settings.as_deref());
    assert_eq!(cells.collect::<Vec<_>>(), [Some("default"), Some("expandable_segments=true")]);
    Ok(())
}

/// Measurements kept before settings were recorded read as before, under the same identifier.
#[test]
fn a_measurement_without_settings_is_read_and_its_cell_is_unknown() -> Outcome {
    let folder = tempfile::tempdir()?;
    let mut measurement = measurements()?.swap_remove(0);
    measurement.environment.runtime_settings = None;
    measurement.environment.runtime_settings_note = None;
    let json = folder.path().join("m.json");
    fs::write(&json, measurement.to_string())?;
    assert!(!measurement.to_string().contains("runtime_settings"));
    let read = read_measurement(&json)?;
    assert_eq!(run_id(&read), run_id(&measurement));
    let file = folder.path().join("r.csv");
    append(&read, &file)?;
    assert!(table(&fs::read_to_string(file)?)?[1..].iter().all(|row| row[column("runtime_settings")].is_empty()));
    Ok(())
}

/// Rows that differ in nothing but one column of environment or configuration form two groups.
#[test]
fn each_column_of_environment_and_configuration_keeps_rows_apart() -> Outcome {
    let text = one_run()?;
    let groups = |name: &str, cell: &str| -> Outcome<(usize, usize)> {
        let mut rows = table(&text)?;
        let more: Vec<_> = rows[1..]
            .iter()
            .cloned()
            .map(|mut row| {
                row[column("run_id")] = "another run".to_owned();
                row[column(name)] = cell.to_owned();
                row
            })
            .collect();
        rows.extend(more);
        let summary = summary_of(written(&rows, b',')?.as_bytes())??;
        Ok((summary.environments.len(), summary.environments.iter().map(|entry| entry.configurations.len()).sum()))
    };
    for name in [
        "platform",
        "lab_version",
        "tch_version",
        "torch_version",
        "cuda_build_version",
        "driver_version",
        "device_name",
        "device_total_bytes",
        "runtime_settings",
    ] {
        assert_eq!(groups(name, "12")?, (2, 2), "{name}");
        assert_eq!(groups(name, "")?, (2, 2), "{name}");
    }
    for (name, cell) in
        [("batch", "12"), ("context", "12"), ("width", "12"), ("dtype", "float16"), ("warmup", "12"), ("seed", "0")]
    {
        assert_eq!(groups(name, cell)?, (1, 2), "{name}");
    }
    for (name, cell) in
        [("device", "cuda:1"), ("repeats", "12"), ("measured_at_utc", "2026-01-01T00:00:00Z"), ("remark", "x")]
    {
        assert_eq!(groups(name, cell)?, (1, 1), "{name}");
    }
    Ok(())
}

#[test]
fn a_run_has_one_environment_and_one_configuration_column_by_column() -> Outcome {
    let text = one_run()?;
    for name in &COLUMNS[column("platform")..column("phase")] {
        let cell = if *name == "dtype" { "float16" } else { "12" };
        let cell = if *name == "device" { "cuda:1" } else { cell };
        let refused = summary_of(with_cell(&text, 4, name, cell)?.as_bytes())?.map_err(|error| error.to_string());
        let expected = format!("ligne 4, colonne {name} : « {cell} » refusé");
        let is_free = ["device", "repeats"].contains(name);
        assert!(if is_free { refused.is_ok() } else { refused.is_err_and(|text| text.contains(&expected)) }, "{name}");
    }
    Ok(())
}

#[test]
fn of_several_contradictions_the_first_one_is_named() -> Outcome {
    let one = table(&one_run()?)?;
    for (name, cell) in [("width", "65"), ("phase", "inputs")] {
        let mut rows = vec![one[0].clone()];
        for run in 0..8 {
            for (place, row) in one[1..].iter().enumerate() {
                let mut row = row.clone();
                row[column("run_id")] = format!("run {run}");
                if place == 2 {
                    row[column(name)] = cell.to_owned();
                }
                rows.push(row);
            }
        }
        let refused = summary_of(written(&rows, b',')?.as_bytes())?.map_err(|error| error.to_string());
        assert!(refused.as_ref().is_err_and(|text| text.contains("ligne 4, ")), "{refused:?}");
    }
    Ok(())
}

#[test]
fn cells_that_read_alike_end_to_end_are_told_apart() -> Outcome {
    let mut rows = table(&one_run()?)?;
    for (line, run, tch, torch) in [(1, "a", "12", "3"), (2, "b", "1", "23")] {
        for (name, cell) in [("run_id", run), ("tch_version", tch), ("torch_version", torch)] {
            rows[line][column(name)] = cell.to_owned();
        }
    }
    rows.truncate(3);
    assert_eq!(summary_of(written(&rows, b',')?.as_bytes())??.environments.len(), 2);
    Ok(())
}

/// A made-up row: environment, configuration, phase, microseconds, the six counters.
type MadeUp = (usize, usize, usize, u32, [u64; 6]);

const PHASES: [&str; 5] = ["model_load", "inputs", "cold_forward", "warmup", "warm_forward"];

fn made_up_file(rows: &[MadeUp]) -> Outcome<String> {
    let mut lines = vec![COLUMNS.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()];
    for (number, (environment, configuration, phase, micros, counters)) in rows.iter().enumerate() {
        let mut row = vec![String::new(); COLUMNS.len()];
        let cells = [
            ("run_id", format!("run {number}")),
            ("measured_at_utc", "2026-11-30T18:08:38Z".to_owned()),
            ("driver_version", ["", "1", "2"][*environment].to_owned()),
            ("device", format!("cuda:{}", number % 2)),
            ("batch", (configuration + 1).to_string()),
            ("context", "16".to_owned()),
            ("width", "64".to_owned()),
            ("dtype", "float16".to_owned()),
            ("warmup", "1".to_owned()),
            ("repeats", "7".to_owned()),
            ("seed", "0".to_owned()),
            ("phase", PHASES[*phase].to_owned()),
            ("run_index", u8::from(*phase == 4).to_string()),
            ("elapsed_seconds", format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)),
        ];
        for (name, cell) in cells {
            row[column(name)] = cell;
        }
        for (place, counter) in counters.iter().enumerate() {
            row[column("baseline_allocated_bytes") + place] = counter.to_string();
        }
        lines.push(row);
    }
    written(&lines, b',')
}

fn sorted_spread(mut values: Vec<u64>) -> Spread<u64> {
    values.sort_unstable();
    let (lower, upper) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
    let sum = u128::from(lower) + u128::from(upper);
    let median = if sum % 2 == 0 { (sum / 2) as u64 } else { lower };
    Spread { min: values[0], median, max: values[values.len() - 1] }
}

fn check_against_the_obvious(rows: &[MadeUp]) -> Outcome {
    let summary = summary_of(made_up_file(rows)?.as_bytes())??;
    let mut groups: BTreeMap<(usize, usize, usize), Vec<&MadeUp>> = BTreeMap::new();
    for row in rows {
        groups.entry((row.0, row.1, row.2)).or_default().push(row);
    }
    let mut found = Vec::new();
    for environment in &summary.environments {
        for configuration in &environment.configurations {
            for phase in &configuration.phases {
                let driver = environment.environment.driver_version.as_deref().unwrap_or("0").parse::<usize>()?;
                let place = PHASES.iter().position(|name| *name == phase.phase).ok_or("no such phase")?;
                found.push(((driver, configuration.configuration.batch as usize - 1, place), phase));
            }
        }
    }
    // Same groups, none twice, sorted.
    assert_eq!(found.iter().map(|(key, _)| *key).collect::<Vec<_>>(), groups.keys().copied().collect::<Vec<_>>());
    for ((_, phase), rows) in found.iter().zip(groups.values()) {
        assert_eq!(phase.count, rows.len() as u64);
        let spread = |place: usize| sorted_spread(rows.iter().map(|row| row.4[place]).collect());
        assert_eq!(phase.baseline_allocated_bytes, spread(0));
        assert_eq!(phase.baseline_reserved_bytes, spread(1));
        assert_eq!(phase.end_allocated_bytes, spread(2));
        assert_eq!(phase.end_reserved_bytes, spread(3));
        assert_eq!(phase.peak_allocated_bytes, spread(4));
        assert_eq!(phase.peak_reserved_bytes, spread(5));
        let mut times: Vec<f64> = rows.iter().map(|row| f64::from(row.3) / 1e6).collect();
        times.sort_by(f64::total_cmp);
        let median = (times[(times.len() - 1) / 2] + times[times.len() / 2]) / 2.0;
        assert_eq!(phase.elapsed_seconds, Spread { min: times[0], median, max: times[times.len() - 1] });
    }
    Ok(())
}

fn made_up() -> impl Strategy<Value = MadeUp> {
    // Counters near each other and at both ends, so that groups hold equal and odd values.
    let counter = prop_oneof![0..4u64, Just(u64::MAX), Just(u64::MAX - 1), any::<u64>()];
    (0..3usize, 0..2usize, 0..5usize, any::<u32>(), prop::array::uniform6(counter))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_summary_is_that_of_an_obvious_program(rows in prop::collection::vec(made_up(), 0..60)) {
        check_against_the_obvious(&rows).map_err(|error| TestCaseError::fail(error.to_string()))?;
    }

    #[test]
    fn the_order_of_rows_does_not_matter(rows in prop::collection::vec(made_up(), 1..40).prop_shuffle(), turn in 0..40usize) {
        let text = made_up_file(&rows).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let mut lines: Vec<&str> = text.lines().collect();
        let places = lines.len() - 1;
        lines[1..].rotate_left(turn % places);
        lines[1..].reverse();
        let (one, other) = (summary_of(text.as_bytes())?, summary_of(lines.join("\n").as_bytes())?);
        prop_assert_eq!(one.ok(), other.ok());
    }
}

/// The oracle can fail: a changed figure, a group too many.
#[test]
fn the_obvious_program_notices_a_difference() {
    assert_eq!(sorted_spread(vec![3, 1, 2]), Spread { min: 1, median: 2, max: 3 });
    assert_ne!(sorted_spread(vec![3, 1, 2]), Spread { min: 1, median: 1, max: 3 });
}

#[test]
fn the_summary_survives_its_own_json() -> Outcome {
    let summary = summary_of(one_run()?.as_bytes())??;
    assert_eq!(serde_json::from_str::<Summary>(&summary.to_string())?, summary);
    assert!(!summary.to_string().contains("/tmp"), "no path in any output");
    Ok(())
}

// Accepted units.

/// A results file whose rows have the given quality side: what a unit is, set, attempted, accepted, rule.
fn judged(rows: &[[&str; 5]]) -> Outcome<String> {
    let mut lines = vec![COLUMNS.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()];
    for cells in rows {
        let mut row = vec![String::new(); COLUMNS.len()];
        let from = column("work_unit");
        for (place, cell) in cells.iter().enumerate() {
            row[from + place] = (*cell).to_owned();
        }
        row[column("remark")] = "à relire".to_owned();
        lines.push(row);
    }
    written(&lines, b',')
}

fn units_of(text: &str) -> Outcome<Result<iteragpu_lab::AcceptedUnits, LabError>> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("r.csv");
    fs::write(&file, text)?;
    Ok(accepted_units(&file))
}

#[test]
fn repetitions_of_one_set_are_not_new_units() -> Outcome {
    let rows = [
        ["lettre", "tirage A", "1 200", "1062", "1.0"],
        ["", "", "", "", ""],
        ["lettre", "tirage B", "10", "0", "1.0"],
        ["lettre ", "tirage A", "1200", "1 062", "1.0"],
        ["lettre", " tirage A", "1200", "1062", " 1.0"],
        ["", "", "", "", "1.0"],
    ];
    let units = units_of(&judged(&rows)?)??;
    assert_eq!((units.attempted_units, units.accepted_units), (1210, 1062));
    assert_eq!((units.work_unit.as_str(), units.rule_version.as_str()), ("lettre", "1.0"));
    let sets: Vec<_> =
        units.unit_sets.iter().map(|set| (set.unit_set.as_str(), set.accepted_units, set.rows)).collect();
    assert_eq!(sets, [("tirage A", 1062, 3), ("tirage B", 0, 1)]);
    assert_eq!(serde_json::from_str::<Value>(&units.to_string())?["kind"], "recorded_units");
    // As French Excel saves it.
    let french = written(&table(&judged(&rows)?)?, b';')?.replace('\n', "\r\n");
    assert_eq!(units_of(&format!("\u{feff}{french}\r\n"))??, units);
    Ok(())
}

#[test]
fn contradictions_and_nothing_accepted_are_refused() -> Outcome {
    let good = ["lettre", "A", "10", "8", "1.0"];
    let max = "18446744073709551615";
    let cases: [(&str, Vec<[&str; 5]>); 19] = [
        (
            "ligne 3, colonne accepted_units : « 9 » refusé. Accepté : pour le même ensemble, le même nombre qu'à la ligne 2, « 8 »",
            vec![good, ["lettre", "A", "10", "9", "1.0"]],
        ),
        ("ligne 3, colonne attempted_units : « 11 »", vec![good, ["lettre", "A", "11", "8", "1.0"]]),
        (
            "ligne 3, colonne rule_version : « 1.1 » refusé. Accepté : la même version de la règle qu'à la ligne 2",
            vec![good, ["lettre", "A", "10", "8", "1.1"]],
        ),
        ("ligne 3, colonne rule_version", vec![good, ["lettre", "B", "10", "8", "1.1"]]),
        ("ligne 3, colonne work_unit : « image »", vec![good, ["image", "B", "10", "8", "1.0"]]),
        (
            "ligne 2, colonne accepted_units : « 11 » refusé. Accepté : au plus les 10",
            vec![["lettre", "A", "10", "11", "1.0"]],
        ),
        ("ligne 2, colonne attempted_units : « 0 »", vec![["lettre", "A", "0", "0", "1.0"]]),
        ("ligne 2, colonne attempted_units : «  »", vec![["lettre", "A", "", "8", "1.0"]]),
        ("ligne 2, colonne accepted_units : «  »", vec![["lettre", "A", "10", "", "1.0"]]),
        ("ligne 2, colonne accepted_units : « 8,5 »", vec![["lettre", "A", "10", "8,5", "1.0"]]),
        ("ligne 2, colonne accepted_units : « -1 »", vec![["lettre", "A", "10", "-1", "1.0"]]),
        ("ligne 2, colonne work_unit", vec![["", "A", "10", "8", "1.0"]]),
        ("ligne 2, colonne rule_version", vec![["lettre", "A", "10", "8", ""]]),
        ("ligne 2, colonne unit_set", vec![["lettre", "", "10", "8", "1.0"]]),
        ("ligne 2, colonne unit_set", vec![["lettre", "", "10", "", "1.0"]]),
        ("ligne 2, colonne unit_set", vec![["lettre", "", "", "8", "1.0"]]),
        ("18446744073709551615 unités", vec![["lettre", "A", max, "1", "1.0"], ["lettre", "B", max, "1", "1.0"]]),
        ("Aucune des 10 unités tentées", vec![["lettre", "A", "10", "0", "1.0"]]),
        ("Aucune ligne ne nomme d'ensemble", vec![["lettre", "", "", "", "1.0"]]),
    ];
    for (expected, rows) in cases {
        let refused = units_of(&judged(&rows)?)?.map_err(|error| error.to_string());
        assert!(refused.as_ref().is_err_and(|text| text.contains(expected)), "{expected}: {refused:?}");
    }
    let none = units_of(&judged(&[["lettre", "A", "10", "0", "1.0"]])?)?;
    assert!(matches!(none, Err(LabError::NoAcceptedUnits { .. })));
    assert!(units_of(&one_run()?)?.is_err() && units_of(&judged(&[good])?)?.is_ok());
    assert_eq!(units_of(&judged(&[["lettre", "A", "10", "10", "1.0"]])?)??.accepted_units, 10);
    Ok(())
}

/// What people filled in stays when a measurement is added, and a wrong count stops it.
#[test]
fn the_quality_side_survives_an_append_and_is_checked_by_it() -> Outcome {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("r.csv");
    let mut text = one_run()?;
    for (name, cell) in [
        ("work_unit", "lettre"),
        ("unit_set", "A"),
        ("attempted_units", "10"),
        ("accepted_units", "8"),
        ("rule_version", "1"),
    ] {
        text = with_cell(&text, 2, name, cell)?;
    }
    fs::write(&file, &text)?;
    append(&measurements()?[1], &file)?;
    assert_eq!(accepted_units(&file)?.accepted_units, 8);
    // The judged row is still a row of its run.
    let summary = summarize(&file)?;
    let rows = measurements()?[..2].iter().map(|measurement| measurement.phases.len() as u64).sum();
    assert_eq!((summary.rows, summary.runs), (rows, 2));
    fs::write(&file, with_cell(&text, 2, "accepted_units", "11")?)?;
    let refused = append(&measurements()?[1], &file).map_err(|error| error.to_string());
    assert!(refused.is_err_and(|text| text.contains("ligne 2, colonne accepted_units")));
    Ok(())
}

/// Rows that count units of a task that was not measured here are no error of the summary.
#[test]
fn rows_of_units_alone_are_counted_and_not_summarised() -> Outcome {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("r.csv");
    append(&measurements()?[0], &file)?;
    let before = summarize(&file)?;
    let units = format!("{}lettre,lettres-A,1200,1062,1.0,,\n", ",".repeat(29));
    fs::write(&file, format!("{}{units}", fs::read_to_string(&file)?))?;
    assert_eq!(summarize(&file)?, before);
    assert_eq!(accepted_units(&file)?.accepted_units, 1062);
    // A remark alone is neither a measurement nor work.
    let remark = format!("{}à revoir\n", ",".repeat(34));
    assert!(matches!(
        summary_of(format!("{}\n{remark}", COLUMNS.join(",")).as_bytes())?,
        Err(LabError::InTable { line: 2, .. })
    ));
    // Contradictory units are still refused.
    let wrong = format!("{}lettre,lettres-A,1200,1300,1.0,,\n", ",".repeat(29));
    fs::write(&file, format!("{}{wrong}", fs::read_to_string(&file)?))?;
    assert!(summarize(&file).is_err());
    Ok(())
}
