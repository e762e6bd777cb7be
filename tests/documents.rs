//! The figures and outputs that the documents show are those of the commands and of the raw
//! measurements. On a difference the expected text is printed, ready to be put in.
#![cfg(unix)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use common::StandIn;
use iteragpu_lab::Measurement;
use iteragpu_lab::explore::RunRecord;
use iteragpu_lab::simulation::compare_with_simulation;
use serde::Deserialize;
use serde_json::Value;

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn read(path: &str) -> std::io::Result<String> {
    fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR")))
}

/// Lines of the fenced block after the comment that names it.
fn block(document: &str, name: &str) -> Option<Vec<String>> {
    let (_, rest) = document.split_once(&format!("<!-- sortie : {name} -->\n```"))?;
    let (body, _) = rest.split_once("\n```")?;
    Some(body.lines().skip(1).map(str::to_owned).collect())
}

fn expect_block(document: &str, name: &str, expected: &[String]) -> Outcome {
    let shown = block(document, name).ok_or_else(|| format!("no block {name}"))?;
    assert_eq!(shown, expected, "block {name} should read:\n{}", expected.join("\n"));
    Ok(())
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

#[derive(Deserialize)]
struct Golden {
    measurements: Vec<Measurement>,
}

#[test]
fn a_kept_environment_and_a_kept_phase_are_shown() -> Outcome {
    let document = read("docs/mesurer.md")?;
    let golden: Golden = serde_json::from_str(&read("docs/mesures/h200-golden.json")?)?;
    let Measurement { environment, phases, .. } = &golden.measurements[0];
    let command = format!("$ mesure-memoire environment --device {}", environment.requested_device);
    expect_block(&document, "environment", &[vec![command], lines(&environment.to_string())].concat())?;

    let cold = serde_json::to_string_pretty(&phases[2])?;
    expect_block(&document, "cold_forward", &lines(&cold))
}

#[test]
fn the_shown_measure_command_is_accepted() -> Outcome {
    let shown = block(&read("docs/mesurer.md")?, "measure").ok_or("no measure")?;
    let stand_in = StandIn::new("good")?;
    let arguments: Vec<&str> = shown[0].split(' ').skip(2).collect();
    let mut command = Command::new(env!("CARGO_BIN_EXE_mesure-memoire"));
    let output = command.args(&arguments).current_dir(stand_in.beside("")).env("ITERAGPU_WORKER", stand_in.program());
    assert!(output.output()?.status.success());
    assert!(stand_in.beside("mesures-petit-essai.json").exists());
    Ok(())
}

#[test]
fn the_quote_that_the_command_prints_is_shown() -> Outcome {
    let document = read("docs/tarifs/README.md")?;
    let shown = block(&document, "forfait").ok_or("no forfait")?;
    let arguments: Vec<&str> = shown[0].split(' ').skip(2).collect();
    let output = Command::new(env!("CARGO_BIN_EXE_calcul-forfaits")).args(&arguments).output()?;
    let expected = [vec![shown[0].clone()], lines(&String::from_utf8(output.stdout)?)].concat();
    expect_block(&document, "forfait", &expected)
}

#[test]
fn the_plan_that_the_command_prints_is_shown() -> Outcome {
    let options = ["--vary", "width=64,128,256,512", "--vary", "batch=1,2,4", "--base", "batch=1,context=16,width=64"];
    let mut explore = Command::new(env!("CARGO_BIN_EXE_mesure-memoire"));
    let output =
        explore.arg("explore").args(options).args(["--trials", "3", "--device-time", "50", "--dry-run"]).output()?;
    expect_block(&read("docs/exploration.md")?, "plan", &lines(&String::from_utf8(output.stdout)?))
}

/// The whole numbers of a line, with spaces between groups of three digits.
fn numbers(line: &str) -> Vec<u64> {
    let joined = line.replace([' ', '\u{a0}', '\u{202f}'], "_");
    let groups = joined.split(|c: char| !c.is_ascii_digit() && c != '_').map(|group| group.replace('_', ""));
    groups.filter_map(|group| group.parse().ok()).collect()
}

/// The invented example's arithmetic is done again.
#[test]
fn the_quality_protocols_example_adds_up() -> Outcome {
    let protocol = read("protocole-qualite.md")?;
    let line =
        |start: &str| protocol.lines().find(|line| line.starts_with(start)).ok_or_else(|| format!("no line {start}"));
    let count = numbers(line("- Compte : ")?);
    let [accepted, wrong, refused, failed, attempted] = count[..] else { return Err(format!("{count:?}").into()) };
    assert_eq!(accepted + wrong + refused + failed, attempted);

    let share = accepted as f64 / attempted as f64 * 100.0;
    let shown_share = format!(" = {share:.1}\u{a0}%").replace('.', ",");
    assert!(line("- Part acceptée : ")?.contains(&shown_share), "{shown_share}");
    let quote = iteragpu_lab::PriceList::shipped()?.quote("b200", 7, 1, Some(accepted))?;
    assert_eq!(numbers(line("- Prix du forfait entier : ")?)[0], quote.total_price_cents);
    let cost = quote.cost_per_accepted_result_cents.unwrap_or_default();
    assert!(protocol.contains(&format!("\"cost_per_accepted_result_cents\": \"{cost}\"")), "{cost}");
    let cents: f64 = cost.parse()?;
    let rounded = format!("= {cents:.2} centimes environ, soit {:.2} USD environ", cents / 100.0).replace('.', ",");
    assert!(line("- Coût par lettre acceptée : ")?.contains(&rounded), "{rounded}");
    Ok(())
}

/// The kept measurements repeat the golden values of the original: counters and digests, whole.
#[test]
fn the_kept_measurements_are_the_golden_ones() -> Outcome {
    let expected: Value = serde_json::from_str(&read("tests/golden/h200_counters.json")?)?;
    let cases = expected["cases"].as_array().ok_or("no cases")?;
    for file in ["docs/mesures/h200-golden.json", "docs/mesures/h200-x2-golden-cuda1.json"] {
        let mut kept: Value = serde_json::from_str(&read(file)?)?;
        let kept = kept["measurements"].as_array_mut().ok_or("no measurements")?;
        assert_eq!(kept.len(), cases.len(), "{file}");
        for (case, measured) in cases.iter().zip(kept) {
            for row in measured["phases"].as_array_mut().into_iter().flatten() {
                row.as_object_mut().and_then(|row| row.remove("elapsed_seconds")).ok_or("a row without time")?;
            }
            for key in ["phases", "digests_sha256", "synthetic_model"] {
                assert_eq!(case[key], measured[key], "{file} {key}");
            }
        }
    }
    Ok(())
}

fn median(observations: &Value) -> Option<f64> {
    let mut sorted: Vec<f64> = observations.as_array()?.iter().filter_map(Value::as_f64).collect();
    sorted.sort_by(f64::total_cmp);
    let upper = sorted.get(sorted.len() / 2)?;
    Some((sorted[(sorted.len() - 1) / 2] + upper) / 2.0)
}

fn timing_table() -> Result<String, Box<dyn std::error::Error>> {
    let mut table = String::from(
        "| batch/context/width/dtype | processus entier : original | ici | rapport | un passage à chaud : original | ici | rapport |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for file in ["docs/mesures/h200-bench-1-16-64.json", "docs/mesures/h200-bench-others.json"] {
        let document: Value = serde_json::from_str(&read(file)?)?;
        for result in document["results"].as_array().ok_or("no results")? {
            let of = |program: &str, what: &str| median(&result[program][what]).ok_or("no observations");
            let (process, warm) = ("process_seconds", "warm_forward_seconds");
            let (slow, fast) = (of("original", process)?, of("iteragpu", process)?);
            let (slow_warm, fast_warm) = (of("original", warm)?, of("iteragpu", warm)?);
            let name = result["configuration"].as_str().unwrap_or_default();
            let micros = |seconds: f64| format!("{:.0} µs", seconds * 1e6);
            table += &format!(
                "| {name} | {slow:.2} s | {fast:.2} s | {:.1} | {} | {} | {:.1} |\n",
                slow / fast,
                micros(slow_warm),
                micros(fast_warm),
                slow_warm / fast_warm
            );
        }
    }
    // French decimals.
    Ok(table.replace('.', ","))
}

#[test]
fn the_timing_table_is_computed_from_the_raw_observations() -> Outcome {
    let table = timing_table()?;
    assert!(read("docs/mesures/README.md")?.contains(&table), "docs/mesures/README.md should hold:\n{table}");
    Ok(())
}

#[test]
fn the_shown_ratios_are_those_of_the_first_benchmark() -> Outcome {
    let document: Value = serde_json::from_str(&read("docs/mesures/h200-bench-1-16-64.json")?)?;
    let result = &document["results"][0];
    let process = |program: &str| median(&result[program]["process_seconds"]).ok_or("no observations");
    let warm = |program: &str| median(&result[program]["warm_forward_seconds"]).ok_or("no observations");
    let sentence = format!(
        "le processus entier prend {:.2} s au lieu de {:.2} s pour l'original ({:.1} fois moins) et {:.2} s pour un programme CUDA nu ; \
         un passage à chaud prend {:.0} µs au lieu de {:.0} µs ({:.1} fois moins)",
        process("iteragpu")?,
        process("original")?,
        process("original")? / process("iteragpu")?,
        process("bare")?,
        warm("iteragpu")? * 1e6,
        warm("original")? * 1e6,
        warm("original")? / warm("iteragpu")?
    );
    let sentence = sentence.replace('.', ",");
    assert!(read("docs/mesurer.md")?.contains(&sentence), "docs/mesurer.md should hold:\n{sentence}");
    Ok(())
}

/// Medians of one kept run of `cargo xtask bench-kernel`, a cell a line.
fn kernel_table(kept: &Value) -> Result<String, Box<dyn std::error::Error>> {
    let mut table = String::from(
        "| notebook | cellule | cache vide | cache laissé tel quel | cache remis en état | rapport |\n\
         | --- | --- | ---: | ---: | ---: | ---: |\n",
    );
    for notebook in kept["notebooks"].as_array().ok_or("no notebooks")? {
        let name = notebook["notebook"].as_str().unwrap_or_default();
        for (place, cell) in notebook["cache_mended"].as_array().ok_or("no cells")?.iter().enumerate() {
            let of = |sort: &str| median(&notebook[sort][place]["seconds"]).ok_or("no observations");
            let (left, mended) = (of("cache_as_left")?, of("cache_mended")?);
            table += &format!(
                "| {name} | {} | {:.2} s | {left:.2} s | {mended:.2} s | {:.1} |\n",
                cell["id"].as_str().unwrap_or_default(),
                of("empty_cache")?,
                left / mended
            );
        }
    }
    Ok(table.replace(".ipynb", "").replace('.', ","))
}

fn bare_kernel_sentence(kept: &Value) -> Result<String, Box<dyn std::error::Error>> {
    let of = |place: usize| median(&kept["bare"][place]["seconds"]).ok_or("no observations");
    let sentence = format!(
        "La première cellule y prend {:.2} s, le premier `let` {:.2} s, le second {:.2} s, et une cellule ordinaire {:.2} s.",
        of(0)?,
        of(2)?,
        of(3)?,
        of(4)?
    );
    // French decimals; the sentence keeps its own full stop.
    Ok(format!("{}.", sentence.trim_end_matches('.').replace('.', ",")))
}

#[test]
fn the_kernels_times_are_those_of_the_kept_run() -> Outcome {
    let kept: Value = serde_json::from_str(&read("docs/mesures/noyau.json")?)?;
    let document = read("docs/noyau.md")?;
    for expected in [kernel_table(&kept)?, bare_kernel_sentence(&kept)?] {
        assert!(document.contains(&expected), "docs/noyau.md should hold:\n{expected}");
    }
    Ok(())
}

/// What each setting did to one measurement; the first one has none.
fn settings_table(kept: &Value) -> Result<String, Box<dyn std::error::Error>> {
    let mut table = String::from(
        "| variable | code | alloué, puis réservé après `cold_forward` | sortie | un passage à chaud | ce que dit `runtime_settings` |\n\
         | --- | ---: | ---: | --- | ---: | --- |\n",
    );
    let outcomes = kept.as_array().ok_or("no outcomes")?;
    let without = &outcomes.first().ok_or("no outcome")?["measurement"];
    for outcome in outcomes {
        let setting = outcome["setting"].as_str().map_or("aucune".to_owned(), |setting| format!("`{setting}`"));
        let code = &outcome["exit_code"];
        let measurement = match &outcome["measurement"] {
            Value::Null => {
                let words = outcome["refusal"].as_str().ok_or("neither measured nor refused")?;
                table += &format!("| {setting} | {code} | | | | « {words} » |\n");
                continue;
            }
            found => serde_json::from_value::<Measurement>(found.clone())?,
        };
        let warm: Vec<f64> =
            measurement.phases.iter().filter(|row| row.run_index > 0).map(|row| row.elapsed_seconds).collect();
        let micros = median(&serde_json::to_value(warm)?).ok_or("no pass")? * 1e6;
        let output = &outcome["measurement"]["digests_sha256"]["output"];
        let same = if *output == without["digests_sha256"]["output"] { "identique" } else { "autre" };
        let cold = &measurement.phases[2];
        let settings = measurement.environment.runtime_settings.ok_or("no settings")?;
        table += &format!(
            "| {setting} | {code} | {}, {} | {same} | {micros:.0} µs | `{settings}` |\n",
            cold.end_allocated_bytes, cold.end_reserved_bytes
        );
    }
    Ok(table)
}

#[test]
fn the_settings_table_is_computed_from_what_was_measured() -> Outcome {
    let table = settings_table(&serde_json::from_str(&read("docs/mesures/h200-settings.json")?)?)?;
    assert!(read("docs/fiabilite.md")?.contains(&table), "docs/fiabilite.md should hold:\n{table}");
    Ok(())
}

/// What was compared on a real GPU, counted in the kept file.
fn verification_sentence(kept: &Value) -> Result<String, Box<dyn std::error::Error>> {
    let cases = kept["cases"].as_array().ok_or("no cases")?;
    let number = |case: &Value, name: &str| case["configuration"][name].as_u64().unwrap_or_default();
    let range = |name: &str| {
        let values = || cases.iter().map(|case| number(case, name));
        format!("`{name}` de {} à {}", values().min().unwrap_or_default(), values().max().unwrap_or_default())
    };
    // A row for each of the four first phases, and one for each repetition; six counters a row.
    let counters: u64 = cases.iter().map(|case| 6 * (4 + number(case, "repeats"))).sum();
    let of_type = |name: &str| cases.iter().filter(|case| case["configuration"]["dtype"] == name).count();
    let largest = cases.iter().filter_map(|case| case["simulated_peak_reserved_bytes"].as_u64()).max();
    let differing = cases.iter().filter(|case| case["identical"] != true).count();
    Ok(format!(
        "{} configurations : {}, {}, {} ; {} en float32, {} en float16, {} en bfloat16 ; réserve de {} octets au plus. \
         {counters} compteurs comparés, {differing} configuration avec un écart.",
        cases.len(),
        range("batch"),
        range("context"),
        range("width"),
        of_type("float32"),
        of_type("float16"),
        of_type("bfloat16"),
        largest.unwrap_or_default(),
    ))
}

#[test]
fn the_verification_of_the_simulation_is_counted_in_the_kept_file() -> Outcome {
    let sentence = verification_sentence(&serde_json::from_str(&read("docs/mesures/h200-simulation.json")?)?)?;
    assert!(read("docs/simulation.md")?.contains(&sentence), "docs/simulation.md should hold:\n{sentence}");
    Ok(())
}

/// Medians of all observations, in microseconds: of the host's clock, then of the device's, then of PyTorch itself.
fn device_time_table(kept: &Value) -> Result<String, Box<dyn std::error::Error>> {
    let columns = [
        ("original", "original"),
        ("plain", "ici"),
        ("with_device_time", "ici, avec `--device-time`"),
        ("forward", "`forward`"),
        ("graph_replay", "`graph_replay`"),
        ("pytorch_forward", "PyTorch : comme `forward`"),
        ("pytorch_graph_replay", "comme `graph_replay`"),
        ("pytorch_graph_replay_together", "sans les événements"),
    ];
    let titles: Vec<&str> = columns.iter().map(|(_, title)| *title).collect();
    let mut table = format!("| batch/context/width/dtype | {} |\n| --- |{}\n", titles.join(" | "), " ---: |".repeat(8));
    for result in kept["results"].as_array().ok_or("no results")? {
        let micros = |key: &str| median(&result[key]).map(|seconds| format!("{:.1}", seconds * 1e6));
        let cells: Option<Vec<String>> = columns.iter().map(|(key, _)| micros(key)).collect();
        table +=
            &format!("| {} | {} |\n", name_of(&result["configuration"]), cells.ok_or("no observations")?.join(" | "));
    }
    Ok(table.replace('.', ","))
}

fn name_of(configuration: &Value) -> String {
    let parts = configuration.as_array().into_iter().flatten();
    parts.map(|part| part.as_str().map_or_else(|| part.to_string(), str::to_owned)).collect::<Vec<_>>().join("/")
}

/// What the host adds to the floor.
fn overhead_table(kept: &Value) -> Result<String, Box<dyn std::error::Error>> {
    let mut table = String::from(
        "| batch/context/width/dtype | original | ici | un passage à chaud, en fois `graph_replay` |\n| --- | ---: | ---: | ---: |\n",
    );
    for result in kept["results"].as_array().ok_or("no results")? {
        let of = |key: &str| median(&result[key]).ok_or("no observations");
        let (original, ours, floor) = (of("original")?, of("plain")?, of("graph_replay")?);
        let micros = |seconds: f64| format!("{:.1} µs", seconds * 1e6);
        table += &format!(
            "| {} | {} | {} | {:.2} |\n",
            name_of(&result["configuration"]),
            micros(original - floor),
            micros(ours - floor),
            ours / floor
        );
    }
    Ok(table.replace('.', ","))
}

/// The median of each process at 1/16/64 float32, with and without the device's time: two speeds.
fn two_speeds(kept: &Value) -> Result<String, Box<dyn std::error::Error>> {
    let (result, repeats) = (&kept["results"][0], kept["repeats"].as_u64().ok_or("no repeats")? as usize);
    let floor = median(&result["graph_replay"]).ok_or("no observations")?;
    let mut medians = Vec::new();
    for key in ["plain", "with_device_time"] {
        for process in result[key].as_array().ok_or("no observations")?.chunks(repeats) {
            medians.push(median(&Value::from(process)).ok_or("no observations")?);
        }
    }
    medians.sort_by(f64::total_cmp);
    let within = medians.iter().filter(|seconds| **seconds <= 5.0 * floor).count();
    let shown: Vec<String> = medians.iter().map(|seconds| format!("{:.1}", seconds * 1e6)).collect();
    let sentence = format!(
        "les médianes des {} processus de cette série sont {} µs, dont {within} d'au plus cinq fois {:.2} µs",
        medians.len(),
        shown.join(" ; "),
        floor * 1e6
    );
    Ok(sentence.replace('.', ","))
}

#[test]
fn the_devices_time_is_computed_from_the_raw_observations() -> Outcome {
    let kept: Value = serde_json::from_str(&read("docs/mesures/h200-device-time.json")?)?;
    assert!(
        kept["results"].as_array().is_some_and(|results| results.iter().all(|seen| seen["counters_equal"] == true))
    );
    let document = read("docs/exploration.md")?;
    for expected in [device_time_table(&kept)?, overhead_table(&kept)?, two_speeds(&kept)?] {
        assert!(document.contains(&expected), "docs/exploration.md should hold:\n{expected}");
    }
    Ok(())
}

/// A row for each point, from the lines of the file: medians of all passes, and the extremes of the trials' medians.
fn exploration_table(lines: &str) -> Result<String, Box<dyn std::error::Error>> {
    let mut points: BTreeMap<(u64, u64), Vec<Value>> = BTreeMap::new();
    for line in lines.lines().skip(1) {
        let run: Value = serde_json::from_str(line)?;
        let number = |name: &str| run["configuration"][name].as_u64().unwrap_or_default();
        points.entry((number("width"), number("batch"))).or_default().push(run["measurement"].clone());
    }
    let mut table = String::from(
        "| width | batch | un passage à chaud | `forward` | `graph_replay` | part de la machine |\n| ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for ((width, batch), trials) in points {
        let warm = |trial: &Value| -> Value {
            let rows = trial["phases"].as_array().into_iter().flatten();
            rows.filter(|row| row["phase"] == "warm_forward").map(|row| row["elapsed_seconds"].clone()).collect()
        };
        let device = |key: &'static str| move |trial: &Value| trial["device_time"][key]["device_seconds"].clone();
        let (all, shown) = spread(&trials, warm)?;
        let (_, forward) = spread(&trials, device("forward"))?;
        let (floor, replay) = spread(&trials, device("graph_replay"))?;
        table += &format!("| {width} | {batch} | {shown} | {forward} | {replay} | {:.1} |\n", (all - floor) * 1e6);
    }
    Ok(table.replace('.', ","))
}

/// The median of all observations, and how it is shown with the extremes of the trials' medians.
fn spread(
    trials: &[Value],
    observations: impl Fn(&Value) -> Value,
) -> Result<(f64, String), Box<dyn std::error::Error>> {
    let each: Vec<Value> = trials.iter().map(observations).collect();
    let all = each.iter().filter_map(Value::as_array).flatten().cloned().collect();
    let all = median(&all).ok_or("no observations")?;
    let medians: Vec<f64> = each.iter().filter_map(median).collect();
    let (min, max) = medians.iter().fold((f64::MAX, 0.0_f64), |(min, max), one| (min.min(*one), max.max(*one)));
    Ok((all, format!("{:.1} ({:.1} à {:.1})", all * 1e6, min * 1e6, max * 1e6)))
}

#[test]
fn the_explorations_table_is_computed_from_its_file() -> Outcome {
    let lines = read("docs/mesures/h200-exploration.jsonl")?;
    let table = exploration_table(&lines)?;
    assert!(read("docs/exploration.md")?.contains(&table), "docs/exploration.md should hold:\n{table}");
    // What the document says of the simulation.
    let mut identical = 0;
    for line in lines.lines().skip(1) {
        let run: RunRecord = serde_json::from_str(line)?;
        identical += u32::from(compare_with_simulation(&run.measurement.ok_or("not measured")?)?.identical);
    }
    assert_eq!(identical, 51);
    Ok(())
}

/// Profiles as the document lists them.
#[test]
fn the_profiles_are_the_documented_ones() -> Outcome {
    let document = read("docs/simulation.md")?;
    for name in ["hopper", "blackwell", "ada", "ampere", "turing", "unknown"] {
        let profile: iteragpu_lab::AllocatorProfile = name.parse()?;
        let evidence = serde_json::to_value(profile.evidence)?;
        let line = document.lines().find(|line| line.starts_with(&format!("| `{name}` |"))).ok_or(name)?;
        for text in [
            profile.cublas_workspace_bytes.to_string(),
            profile.cublaslt_workspace_bytes.to_string(),
            evidence.as_str().unwrap_or_default().to_owned(),
        ] {
            assert!(line.contains(&text), "{name}: {text}");
        }
    }
    Ok(())
}

/// Names in backticks that look like those of tests: lower case and at least three underscores, or ended by
/// an ellipsis, which stands for every test that begins like it.
fn test_names(document: &str) -> BTreeSet<&str> {
    let quoted = document.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let looks_like_a_test = |name: &&str| {
        let whole = name.trim_end_matches('…');
        (whole != *name || name.matches('_').count() >= 3)
            && whole.contains('_')
            && whole.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    };
    quoted.filter(looks_like_a_test).collect()
}

/// Every Rust source under a folder, one after the other.
fn sources(folder: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            text += &sources(&path)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text += &fs::read_to_string(&path)?;
        }
    }
    Ok(text)
}

/// The named tests that no source defines.
fn missing_tests<'a>(document: &'a str, sources: &str) -> Vec<&'a str> {
    let is_defined = |name: &str| match name.strip_suffix('…') {
        Some(start) => sources.contains(&format!("fn {start}")),
        None => sources.contains(&format!("fn {name}(")),
    };
    test_names(document).into_iter().filter(|name| !is_defined(name)).collect()
}

#[test]
fn the_tests_that_the_document_names_exist() -> Outcome {
    let document = read("docs/fiabilite.md")?;
    let mut all = String::new();
    for folder in ["src", "tests", "gpu-worker", "xtask"] {
        all += &sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder))?;
    }
    assert!(test_names(&document).len() > 50, "{:?}", test_names(&document));
    assert_eq!(missing_tests(&document, &all), Vec::<&str>::new());

    let planted = "| `a_test_nobody_wrote`, `the_tests_that_the_document…` | `a_start_of_nothing…`, `peak_bytes` |";
    assert_eq!(missing_tests(planted, &all), ["a_start_of_nothing…", "a_test_nobody_wrote"]);
    Ok(())
}

/// The code cells of a notebook, each with its id.
fn code_cells(notebook: &str) -> Result<Vec<(String, String)>, Box<dyn std::error::Error>> {
    let document: Value = serde_json::from_str(&read(notebook)?)?;
    let cells = document["cells"].as_array().ok_or("no cells")?.iter().filter(|cell| cell["cell_type"] == "code");
    let text = |value: &Value| value.as_array().into_iter().flatten().filter_map(Value::as_str).collect::<String>();
    Ok(cells.map(|cell| (cell["id"].as_str().unwrap_or_default().to_owned(), text(&cell["source"]))).collect())
}

/// Of two rich results in one cell, the kernel shows the last one alone.
fn shows_one_result_at_its_end(cell: &str) -> bool {
    let calls = |line: &str| line.contains("show(") || line.contains("evcxr_display");
    let last = cell.lines().next_back().unwrap_or_default();
    cell.lines().filter(|line| calls(line)).count() == 1 && last.starts_with("show(") && last.ends_with(')')
}

#[test]
fn each_code_cell_shows_one_result_and_at_its_end() -> Outcome {
    for name in ["mesure-memoire", "forfaits", "simulation", "explorer"] {
        let notebook = &format!("notebooks/{name}.ipynb");
        let cells = code_cells(notebook)?;
        assert!(cells.len() > 3, "{notebook}");
        for (id, cell) in cells {
            let definitions = cell.contains(":dep ") && !cell.contains("show(");
            assert!(definitions || shows_one_result_at_its_end(&cell), "{notebook} {id}: {cell}");
        }
    }
    for planted in ["show(&a)\nshow(&b)", "show(&a);", "show(&a)\nlet b = 1;", "show(&a).evcxr_display();\nshow(&b)"] {
        assert!(!shows_one_result_at_its_end(planted), "{planted}");
    }
    Ok(())
}
