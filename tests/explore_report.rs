//! The report of an exploration: its figures, what is refused, and what its table and its page show.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::exploration::{Outcome, failed, file, line, lines, measured, planned, run, with_device_time};
use common::inert::assert_tags;
use iteragpu_lab::explore::report::{Extremes, PointReport, Report};
use iteragpu_lab::explore::{PlanOptions, PlanRecord, RunRecord, report};
use iteragpu_lab::{Dtype, LabError, Present, PriceList, show};
use num_bigint::BigUint;
use proptest::prelude::*;

/// Text that would run, break out or take over if it were not neutralised.
const HOSTILE: &str = "<script>alert(1)</script><img src=x onerror=alert(2)>\" style='background:url(x)' \u{1b}[31m\u{202e}EVCXR_BEGIN_CONTENT text/html";

fn of_text(text: &str) -> Outcome<Result<Report, LabError>> {
    let folder = tempfile::tempdir()?;
    Ok(report(file(folder.path(), "exploration.jsonl", text)?))
}

fn trials(trials: u64) -> PlanOptions {
    PlanOptions { trials, ..PlanOptions::default() }
}

/// Three widths, two trials: whole numbers of microseconds, which depend on the run only.
fn small() -> Outcome<(PlanRecord, String)> {
    let plan = planned("00000000000000aa", &["width=64,128,4096"], &trials(2))?;
    let text = lines(&plan, |index| run(&plan, index, &small_times(index)))?;
    Ok((plan, text))
}

fn small_times(index: u64) -> [f64; 2] {
    [(10 * index) as f64 * 1e-6, (10 * index + 3) as f64 * 1e-6]
}

#[test]
fn figures_are_those_of_the_runs() -> Outcome {
    let (plan, text) = small()?;
    let found = of_text(&text)??;
    let [exploration] = found.explorations.as_slice() else { return Err("one exploration expected".into()) };
    assert_eq!((exploration.measured_runs, exploration.failed_runs, exploration.missing_runs), (6, 0, 0));
    assert!(exploration.is_finished() && !found.last_line_cut);
    assert_eq!((&exploration.plan, &exploration.environment), (&plan.plan, &measured()?.environment));
    for (place, point) in exploration.points.iter().enumerate() {
        let of_point = (1..=6_u64).filter(|index| plan.plan.runs[*index as usize - 1].point == place);
        let mut seconds: Vec<f64> = of_point.flat_map(small_times).collect();
        seconds.sort_by(f64::total_cmp);
        let times = point.warm_forward.as_ref().ok_or("no times")?;
        assert_eq!((times.count, times.min_seconds, times.max_seconds), (4, seconds[0], seconds[3]));
        assert!((times.median_seconds - (seconds[1] + seconds[2]) / 2.0).abs() < 1e-18);
        assert_eq!(times.observations.iter().map(|seen| seen.trial).collect::<BTreeSet<_>>(), [1, 2].into());
        let simulated = point.simulated.ok_or("no simulation")?;
        let equal = |bytes| Some(Extremes { min: bytes, max: bytes });
        assert_eq!(point.peak_allocated_bytes, equal(simulated.peak_allocated_bytes));
        assert_eq!(point.peak_reserved_bytes, equal(simulated.peak_reserved_bytes));
        assert_eq!((&point.device_forward, &point.simulation_note), (&None, &None));
    }
    // As measured on an H200: docs/mesures/h200-golden.json.
    assert_eq!(exploration.points[0].peak_allocated_bytes.map(|peak| peak.max), Some(34_649_088));
    let read: Report = serde_json::from_str(&found.to_string())?;
    assert_eq!(read, found);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Medians by integers of any size: twice the median is the sum of both in the middle.
    #[test]
    fn medians_are_those_of_exact_arithmetic(ticks in prop::collection::vec(0_u64..1 << 40, 2..9)) {
        let exact = |ticks: Vec<u64>| -> Outcome {
            let repeats = format!("repeats={}", ticks.len());
            let plan = planned("00000000000000aa", &[&repeats], &trials(1))?;
            // Powers of two: a float holds each of them, and their sums.
            let seconds: Vec<f64> = ticks.iter().map(|tick| *tick as f64 / f64::from(1 << 20)).collect();
            let found = of_text(&lines(&plan, |index| run(&plan, index, &seconds))?)??;
            let times = found.explorations[0].points[0].warm_forward.as_ref().ok_or("no times")?;
            let mut sorted: Vec<BigUint> = ticks.into_iter().map(BigUint::from).collect();
            sorted.sort_unstable();
            let twice = &sorted[(sorted.len() - 1) / 2] + &sorted[sorted.len() / 2];
            assert_eq!(BigUint::from((times.median_seconds * f64::from(1 << 21)) as u64), twice);
            Ok(())
        };
        exact(ticks).map_err(|error| TestCaseError::fail(error.to_string()))?;
    }
}

#[test]
fn the_devices_times_are_medians_of_each_trial() -> Outcome {
    let options = PlanOptions { trials: 3, device_passes: Some(3), ..PlanOptions::default() };
    let plan = planned("00000000000000aa", &["width=64,128"], &options)?;
    let text = lines(&plan, |index| {
        let tick = index as f64;
        Ok(with_device_time(run(&plan, index, &[1.0, 2.0])?, [tick + 0.75, tick, tick + 0.5], [tick, 0.0, tick / 2.0]))
    })?;
    let found = of_text(&text)??;
    for (place, point) in found.explorations[0].points.iter().enumerate() {
        let indices = (1..=6_u64).filter(|index| plan.plan.runs[*index as usize - 1].point == place);
        let indices: Vec<f64> = indices.map(|index| index as f64).collect();
        let forward = point.device_forward.as_ref().ok_or("no times")?;
        assert_eq!(forward.observations.iter().map(|seen| seen.seconds - 0.5).collect::<Vec<_>>(), indices);
        let replay = point.device_graph_replay.as_ref().ok_or("no times")?;
        assert_eq!((replay.count, replay.median_seconds), (3, indices[1] / 2.0));
    }
    let shown = show(&Ok(found));
    assert!(shown.html().contains("GPU au repos (µs)") && shown.html().contains("GPU, graphe, médiane"));
    // A median that is not that of its observations is no measurement.
    let contradiction = text.replacen("\"median_device_seconds\":", "\"median_device_seconds\":1", 1);
    assert!(refusal(&contradiction)?.contains("la ligne 2 contient une mesure incohérente"));
    Ok(())
}

#[test]
fn trials_that_differ_are_shown_apart_and_beside_the_simulation() -> Outcome {
    let (plan, _) = small()?;
    let text = lines(&plan, |index| {
        let mut run = run(&plan, index, &[1e-5, 2e-5])?;
        let is_second = run.trial == 2 && run.configuration.width == 128;
        let rows = run.measurement.iter_mut().flat_map(|measurement| &mut measurement.phases);
        rows.filter(|_| is_second).for_each(|row| row.peak_reserved_bytes += 2_097_152);
        Ok(run)
    })?;
    let found = of_text(&text)??;
    let peak = found.explorations[0].points[1].peak_reserved_bytes.ok_or("no peak")?;
    assert_eq!(peak.max - peak.min, 2_097_152);
    let table = found.table();
    assert_eq!(table.matches("identique").count(), 2, "{table}");
    assert!(table.contains("alloué 0 (réservé +2\u{202f}097\u{202f}152)"), "{table}");
    assert!(table.contains("(35\u{202f}651\u{202f}584 à 37\u{202f}748\u{202f}736)"), "{table}");
    // One trial below the simulation, the other equal to it: no less a difference.
    let below = lines(&plan, |index| {
        let mut run = run(&plan, index, &[1e-5, 2e-5])?;
        let is_second = run.trial == 2 && run.configuration.width == 128;
        let rows = run.measurement.iter_mut().flat_map(|measurement| &mut measurement.phases);
        for row in rows.filter(|_| is_second) {
            for bytes in [&mut row.baseline_reserved_bytes, &mut row.end_reserved_bytes, &mut row.peak_reserved_bytes] {
                *bytes = bytes.saturating_sub(512);
            }
        }
        Ok(run)
    })?;
    let table = of_text(&below)??.table();
    assert!(table.contains("alloué 0 (réservé −512)"), "{table}");
    Ok(())
}

#[test]
fn what_cannot_be_simulated_says_why() -> Outcome {
    let (mut plan, text) = small()?;
    let settings = plan.environment.runtime_settings.as_mut().ok_or("no settings")?;
    settings.expandable_segments = true;
    let text = text.replace("\"expandable_segments\":false", "\"expandable_segments\":true");
    let found = of_text(&text)??;
    let point = &found.explorations[0].points[0];
    assert_eq!((point.simulated, found.explorations[0].points.len()), (None, 3));
    let table = found.table();
    assert!(
        table.contains("3 points sans simulation. La simulation") && table.contains("expandable_segments=true"),
        "{table}"
    );
    assert!(table.contains("Compteurs et durées ne se comparent qu'à ceux d'une mesure aux mêmes réglages."));
    assert!(!found.page().contains("simulé,") && !table.contains("identique "), "{table}");
    Ok(())
}

#[test]
fn an_unfinished_exploration_says_so() -> Outcome {
    let (_, text) = small()?;
    let first: String = text.split_inclusive('\n').take(4).collect();
    let found = of_text(&first)??;
    let exploration = &found.explorations[0];
    assert_eq!((exploration.measured_runs, exploration.missing_runs, exploration.is_finished()), (3, 3, false));
    let (table, page) = (found.table(), found.page());
    for words in ["Exploration inachevée : 3 mesures manquent", "Les points d'une exploration inachevée"] {
        assert!(table.contains(words) && page.contains(&words.replace('\'', "&#39;")), "{words}: {table}");
    }
    assert!(!of_text(&text)??.table().contains("inachevée"));

    // A writer that was interrupted: wherever it stopped, what is complete counts.
    let whole = first.len();
    for cut in [whole + 1, whole + 1000, text.split_inclusive('\n').take(5).map(str::len).sum::<usize>() - 1] {
        let cut = of_text(&text[..cut])??;
        assert!(cut.last_line_cut && cut.explorations == found.explorations);
        assert!(cut.table().contains("Sa dernière ligne est coupée"), "{}", cut.table());
    }
    let zeros = of_text(&(first + &"\0".repeat(100)))??;
    assert!(zeros.last_line_cut && zeros.explorations == found.explorations);
    Ok(())
}

#[test]
fn failures_have_their_reasons_and_no_figures() -> Outcome {
    let (plan, _) = small()?;
    let all = of_text(&lines(&plan, |index| failed(&plan, index, &format!("raison {index} {HOSTILE}")))?)??;
    let exploration = &all.explorations[0];
    assert_eq!((exploration.measured_runs, exploration.failed_runs, exploration.missing_runs), (0, 6, 0));
    assert!(exploration.points.iter().all(|point| point.warm_forward.is_none() && point.failed_runs == 2));
    let (table, page) = (all.table(), all.page());
    assert!((1..=6).all(|index| table.contains(&format!("raison {index} "))), "{table}");
    assert!(table.contains("0/2 (2 échecs)") && table.contains("n'échouerait pas forcément"), "{table}");
    assert!(!page.contains("<svg"), "nothing to draw");
    assert_page(&page);
    // The plan alone.
    let none = of_text(&line(&plan)?)??;
    assert_eq!(none.explorations[0].missing_runs, 6);
    assert!(
        none.table().contains("6 mesures prévues : 0 faite, 0 en échec. Exploration inachevée : 6 mesures manquent")
    );
    Ok(())
}

#[test]
fn merged_machines_stay_apart() -> Outcome {
    let (plan, text) = small()?;
    let mut other = planned("00000000000000bb", &["width=64,128,4096"], &trials(2))?;
    other.environment.selected_device_name = Some("NVIDIA L4".to_owned());
    let other_text = lines(&other, |index| {
        let mut run = run(&plan, index, &[1.0, 3.0])?;
        run.exploration_id.clone_from(&other.exploration_id);
        run.measurement.iter_mut().for_each(|measurement| measurement.environment = other.environment.clone());
        Ok(run)
    })?;
    // Whatever the order, as long as each plan precedes its runs.
    let mut mixed: Vec<&str> = text.lines().zip(other_text.lines()).flat_map(|(one, other)| [one, other]).collect();
    mixed[2..].reverse();
    let found = of_text(&(mixed.join("\n") + "\n"))??;
    let alone = [of_text(&text)??, of_text(&other_text)??];
    for (merged, alone) in found.explorations.iter().zip(&alone) {
        assert_eq!(merged.exploration_id, alone.explorations[0].exploration_id);
        for (merged, alone) in merged.points.iter().zip(&alone.explorations[0].points) {
            let figures = |point: &PointReport| {
                point
                    .warm_forward
                    .as_ref()
                    .map(|times| (times.count, times.min_seconds, times.median_seconds, times.max_seconds))
            };
            assert_eq!((figures(merged), merged.peak_reserved_bytes), (figures(alone), alone.peak_reserved_bytes));
        }
    }
    let table = found.table();
    assert!(table.starts_with("2 explorations mesurées, chacune à part"), "{table}");
    assert!(table.contains("NVIDIA L4, exploration 00000000000000bb") && table.contains("une seule carte"), "{table}");
    assert_eq!(found.page().matches("<svg").count(), 4);
    Ok(())
}

fn refusal(text: &str) -> Outcome<String> {
    match of_text(text)? {
        Ok(found) => Err(format!("accepted: {found}").into()),
        Err(error) => {
            assert_eq!(error.exit_code(), 2);
            Ok(error.to_string())
        }
    }
}

#[test]
fn what_is_no_exploration_is_refused_with_its_line() -> Outcome {
    let (plan, text) = small()?;
    let lines: Vec<&str> = text.lines().collect();
    let joined = |lines: &[&str]| lines.join("\n") + "\n";
    let elsewhere =
        serde_json::to_string(&RunRecord { exploration_id: "other".to_owned(), ..run(&plan, 1, &[1.0, 2.0])? })?;
    let mut other_environment = run(&plan, 1, &[1.0, 2.0])?;
    other_environment.measurement.iter_mut().for_each(|found| found.environment.driver_version = None);
    let other_environment = serde_json::to_string(&other_environment)?;
    let other_trial = lines[1].replace("\"trial\":1", "\"trial\":2");
    let cases = [
        (String::new(), "aucun plan n'y figure"),
        (lines[0].to_owned(), "aucun plan n'y figure"),
        ("\n".to_owned() + &text, "la ligne 1 n'est pas une ligne d'exploration"),
        (measured()?.to_string(), "la ligne 1 n'est pas une ligne d'exploration"),
        (serde_json::to_string(&measured()?)? + "\n", "la ligne 1 n'est pas une ligne d'exploration"),
        (fs::read_to_string("tarifs-forfaits.csv")?, "la ligne 1 n'est pas une ligne d'exploration"),
        (joined(&lines[1..]), "la ligne 1 n'est d'aucun des plans qui la précèdent"),
        (joined(&[lines[0], &elsewhere]), "la ligne 2 n'est d'aucun des plans qui la précèdent"),
        (joined(&[lines[0], lines[1], "{}", lines[2]]), "la ligne 3 n'est pas une ligne d'exploration"),
        (joined(&[lines[0], lines[1], lines[1]]), "la ligne 3 répète une mesure"),
        (joined(&[lines[0], lines[1], lines[0]]), "la ligne 3 répète un plan"),
        (joined(&[lines[0], &other_trial]), "la ligne 2 n'est pas du plan"),
        (joined(&[lines[0], &other_environment]), "la ligne 2 n'est pas du plan"),
        (
            joined(&[lines[0], &lines[1].replace("\"elapsed_seconds\":0", "\"elapsed_seconds\":-0")]),
            "la ligne 2 contient une mesure incohérente",
        ),
        (joined(&[&lines[0].replace("\"trials\":2", "\"trials\":3")]), "la ligne 1 contient un plan incohérent"),
        (
            joined(&[lines[0], &lines[1][..lines[1].len() / 2], lines[2]]),
            "la ligne 2 n'est pas une ligne d'exploration",
        ),
    ];
    for (content, words) in cases {
        let said = refusal(&content)?;
        assert!(said.starts_with("Le fichier « ") && said.contains(words), "{words}: {said}");
    }
    let folder = tempfile::tempdir()?;
    assert!(matches!(report(folder.path().join("absent")), Err(LabError::Unreadable { .. })));
    assert!(report(folder.path()).is_err_and(|error| error.to_string().contains("n'est pas un fichier ordinaire")));
    Ok(())
}

#[test]
fn of_many_machines_the_page_shows_some_and_the_table_all() -> Outcome {
    let plan = planned("00000000000000aa", &["width=64"], &trials(1))?;
    let mut text = String::new();
    for number in 0..300 {
        let id = format!("{number:016x}");
        text += &line(&PlanRecord { exploration_id: id.clone(), ..plan.clone() })?;
        text += &line(&RunRecord { exploration_id: id, ..run(&plan, 1, &[1e-5, 2e-5])? })?;
    }
    let found = of_text(&text)??;
    let (page, table) = (found.page(), found.table());
    assert_eq!((table.matches("identique\n").count(), page.matches("<svg").count()), (300, 400));
    assert!(page.contains("100 explorations ne sont pas montrées ici") && !table.contains("ne sont pas montrées"));
    assert!(page.len() < 10_000_000, "{} bytes", page.len());
    Ok(())
}

#[test]
fn a_product_has_a_line_for_each_combination_and_a_table_of_all() -> Outcome {
    let options = PlanOptions { product: true, ..PlanOptions::default() };
    let plan = planned("00000000000000aa", &["width=64,128", "batch=1,2,4,8", "dtype=float32,float16"], &options)?;
    let found = of_text(&lines(&plan, |index| run(&plan, index, &[1e-5, 2e-5]))?)??;
    let (page, table) = (found.page(), found.table());
    assert_eq!(page.matches("<svg").count(), 2);
    assert!(page.contains("Les graphiques montrent 6 combinaisons sur 8 ; le tableau les a toutes."), "{page}");
    for combination in ["batch 1, dtype float32", "batch 4, dtype float16"] {
        assert_eq!(page.matches(combination).count(), 2, "{combination}");
    }
    assert!(!page.contains("batch 8, dtype float32"));
    assert_eq!(table.matches("identique").count() - usize::from(table.contains("« Identique »")), 15, "{table}");
    assert!(table.contains("rien ne dit laquelle fait l'écart"));
    Ok(())
}

/// Measured on an H200, and kept as it is.
#[test]
fn the_kept_exploration_is_finished_and_as_simulated() -> Outcome {
    let found = report("docs/mesures/h200-exploration.jsonl")?;
    let [exploration] = found.explorations.as_slice() else { return Err("one exploration expected".into()) };
    assert!(exploration.is_finished() && exploration.failed_runs == 0 && exploration.points.len() > 10);
    assert_eq!(found.table().matches("  identique\n").count(), exploration.plan.series().concat().len());
    assert!(exploration.points.iter().all(|point| point.device_graph_replay.is_some()));
    assert_page(&found.page());
    Ok(())
}

/// Circles, without those of the counters.
fn dots(page: &str) -> usize {
    let count = |text: &str| page.matches(text).count();
    count("<circle ") - count(" r=\"4\"") - count(" r=\"8\"")
}

#[test]
fn every_observation_is_a_dot_until_there_are_too_many() -> Outcome {
    let of = |repeats: u64| -> Outcome<String> {
        let plan = planned("00000000000000aa", &[&format!("repeats={repeats}")], &trials(2))?;
        let seconds: Vec<f64> = (0..repeats).map(|number| 1e-5 + number as f64 * 1e-9).collect();
        Ok(of_text(&lines(&plan, |index| run(&plan, index, &seconds))?)??.page())
    };
    let few = of(100)?;
    // One more in the legend.
    assert_eq!((dots(&few), few.contains("chaque passage")), (201, true));
    let many = of(5_000)?;
    assert_eq!(dots(&many), 3_001);
    assert!(many.contains("3\u{202f}000 passages sur 10\u{202f}000") && many.contains("du plus court au plus long"));
    Ok(())
}

#[test]
fn absurd_figures_are_drawn_or_left_out_and_break_nothing() -> Outcome {
    let plan = planned(
        "00000000000000aa",
        &["width=1,1000000000", "seed=0,9223372036854775807", "dtype=float16"],
        &trials(1),
    )?;
    let times = [[0.0, 0.0], [f64::MAX, f64::MAX], [f64::MIN_POSITIVE, f64::MAX], [0.0, f64::MAX], [5e-324, 5e-324]];
    for (times, counter) in times.into_iter().flat_map(|times| [0, 1, u64::MAX].map(|counter| (times, counter))) {
        let text = lines(&plan, |index| {
            let mut small = run(&planned("00000000000000aa", &["width=64,65,66,67,68"], &trials(1))?, 1, &times)?;
            let planned = plan.plan.runs[index as usize - 1];
            (small.run_index, small.configuration) = (index, plan.plan.points[planned.point].clone());
            let measurement = small.measurement.as_mut().ok_or("no measurement")?;
            measurement.configuration.chosen = small.configuration.clone();
            let (width, dtype) = (small.configuration.width, small.configuration.dtype);
            let count = 2 * width * (width + 1);
            measurement.synthetic_model.parameter_count = count;
            measurement.synthetic_model.parameter_bytes = count * if dtype == Dtype::Float32 { 4 } else { 2 };
            for row in measurement.phases.iter_mut().filter(|_| counter > 0) {
                (row.baseline_allocated_bytes, row.end_allocated_bytes, row.peak_allocated_bytes) = (0, 1, counter);
                (row.baseline_reserved_bytes, row.end_reserved_bytes, row.peak_reserved_bytes) = (0, 1, counter);
            }
            Ok(small)
        })?;
        let found = of_text(&text)??;
        let page = found.page();
        assert_eq!(page.matches("<svg").count(), 6);
        assert!(!page.contains("NaN") && !page.contains(">inf") && !page.contains("inf "), "{times:?} {counter}");
        assert_page(&page);
    }
    Ok(())
}

#[test]
fn a_long_table_is_cut_in_a_notebook_and_whole_in_the_command() -> Outcome {
    let widths: Vec<String> = (1..=150).map(|width| width.to_string()).collect();
    let plan = planned("00000000000000aa", &[&format!("width={}", widths.join(","))], &trials(1))?;
    let found = of_text(&lines(&plan, |index| run(&plan, index, &[1e-5, 2e-5]))?)??;
    let rows = |text: &str| text.matches("identique\n").count();
    let shown = show(&Ok(found.clone()));
    assert_eq!((rows(&found.table()), rows(shown.text())), (150, 60));
    assert!(shown.text().contains("90 autres lignes ne sont pas montrées ici ; le JSON les contient."));
    assert!(shown.text().trim_end().ends_with('}') || shown.text().contains("octets de JSON"));
    Ok(())
}

/// Nothing runs, nothing is loaded, whatever the file says.
fn assert_page(page: &str) {
    let (head, body) = page.split_once("</head>\n").unwrap_or_default();
    assert_tags(body);
    let style = head.split_once("<style>").and_then(|(_, rest)| rest.split_once("</style>")).map(|(style, _)| style);
    assert!(style.is_some_and(|style| !style.contains(['<', '\\']) && !style.contains("url(")), "{head}");
    // Of these words, escaped text holds some; as a name or an order they must not be there.
    for order in ["@import", "<script", "<link", "<iframe", "<base", "http-equiv=\"refresh"] {
        assert!(!page.contains(order), "{order}");
    }
    assert!(head.contains("default-src 'none'; style-src 'unsafe-inline'"));
    assert!(page.starts_with("<!DOCTYPE html>\n<html lang=\"fr\">\n<head>\n<meta charset=\"utf-8\">"));
    assert!(!page.contains('\u{1b}') && !page.contains('\u{202e}') && !page.contains("EVCXR_"));
}

#[test]
fn a_page_runs_nothing_and_loads_nothing() -> Outcome {
    let (plan, text) = small()?;
    assert_page(&of_text(&text)??.page());
    // Every text of the file is hostile that may hold anything.
    let mut hostile = plan.clone();
    let environment = &mut hostile.environment;
    for text in [
        &mut environment.selected_device_name,
        &mut environment.driver_version,
        &mut environment.torch_version,
        &mut environment.selected_device_compute_capability,
        &mut environment.reason,
    ] {
        *text = Some(HOSTILE.to_owned());
    }
    environment.driver_note = HOSTILE.to_owned();
    environment.requested_device = HOSTILE.to_owned();
    let settings = environment.runtime_settings.as_mut().ok_or("no settings")?;
    settings.set_outside = vec![HOSTILE.to_owned()];
    let lines = lines(&hostile, |index| match index {
        1 => failed(&hostile, index, HOSTILE),
        _ => {
            let mut run = run(&plan, index, &[1e-5, 2e-5])?;
            run.measurement.iter_mut().for_each(|found| found.environment = hostile.environment.clone());
            Ok(run)
        }
    })?;
    let folder = tempfile::tempdir()?;
    let found = report(file(folder.path(), &HOSTILE.replace('/', "-"), &lines)?)?;
    let page = found.page();
    assert_page(&page);
    assert!(page.matches("&lt;script&gt;").count() > 8 && page.matches("<svg").count() == 2);
    for text in [found.table(), found.to_string(), show(&Ok(found.clone())).text().to_owned()] {
        assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}') && !text.contains("EVCXR_"), "{text}");
    }
    let shown = show(&Ok(found));
    assert_tags(shown.html());
    Ok(())
}

/// The checker of this file finds what it is there for.
#[test]
fn the_checker_finds_planted_faults() -> Outcome {
    let (_, text) = small()?;
    let page = of_text(&text)??.page();
    let planted = [
        "<script>x</script>",
        "<img src=\"x\">",
        "<a href=\"x\">",
        "<p onclick=\"x\">",
        "<link rel=\"stylesheet\">",
        "<iframe>",
        "<meta http-equiv=\"refresh\">",
        "<p style=\"background:url(x)\">",
        "\u{1b}[31m",
    ];
    let caught = |page: String| std::panic::catch_unwind(move || assert_page(&page)).is_err();
    std::panic::set_hook(Box::new(|_| ()));
    let in_body: Vec<bool> =
        planted.iter().map(|fault| caught(page.replace("</body>", &format!("{fault}</body>")))).collect();
    let in_style = ["@import 'x';", "p{background:url(x)}"]
        .map(|fault| caught(page.replace("</style>", &format!("{fault}</style>"))));
    let policy = caught(page.replace("default-src 'none'", "default-src *"));
    let clean = caught(page);
    drop(std::panic::take_hook());
    assert_eq!((in_body, in_style, policy, clean), (vec![true; planted.len()], [true; 2], true, false));
    Ok(())
}

/// The command, with a file of this text beside its page.
struct Desk {
    folder: tempfile::TempDir,
    file: PathBuf,
}

impl Desk {
    fn new(text: &str) -> Outcome<Self> {
        let folder = tempfile::tempdir()?;
        let file = file(folder.path(), "exploration.jsonl", text)?;
        Ok(Self { folder, file })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn report(&self, options: &[&Path]) -> std::io::Result<Output> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mesure-memoire"));
        command.args(["explore", "report"]).arg(&self.file).args(options).output()
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_command_prints_the_table_and_writes_the_page() -> Outcome {
    let desk = Desk::new(&small()?.1)?;
    let output = desk.report(&[])?;
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let found = report(&desk.file)?;
    assert_eq!(String::from_utf8(output.stdout.clone())?, format!("{}\n", found.table().trim_end()));
    assert!(said(&output).contains("Page enregistrée dans le nouveau fichier"), "{}", said(&output));
    assert_eq!(fs::read_to_string(desk.at("exploration.html"))?, found.page());

    // Neither read again nor overwritten.
    let again = desk.report(&[])?;
    assert_eq!((again.status.code(), again.stdout.len()), (Some(2), 0));
    assert!(said(&again).contains("existe déjà"), "{}", said(&again));
    let elsewhere = desk.at("page.html");
    assert_eq!(desk.report(&[Path::new("--output"), &elsewhere])?.status.code(), Some(0));
    assert_eq!(fs::read_to_string(&elsewhere)?, found.page());
    Ok(())
}

#[test]
fn a_refused_file_leaves_no_page() -> Outcome {
    for text in ["", "bonjour\n"] {
        let desk = Desk::new(text)?;
        let output = desk.report(&[])?;
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{}", said(&output));
        assert!(!desk.at("exploration.html").exists());
    }
    let desk = Desk::new("")?;
    let missing = desk.report(&[Path::new("--output"), &desk.at("absent/page.html")])?;
    assert_eq!(missing.status.code(), Some(2));
    assert!(said(&missing).contains("ne peut pas être écrit"), "{}", said(&missing));
    Ok(())
}

/// What else the commands read is no exploration, and the other way round.
#[test]
fn other_files_are_told_apart() -> Outcome {
    let (_, text) = small()?;
    let desk = Desk::new(&text)?;
    assert!(matches!(iteragpu_lab::results::read_measurement(&desk.file), Err(LabError::NotAMeasurement { .. })));
    assert!(PriceList::open(&desk.file).is_err() && iteragpu_lab::summarize(&desk.file).is_err());
    fn is_shown<T: Present>(_: &T) {}
    is_shown(&report(&desk.file)?);
    Ok(())
}
