//! What a notebook shows: the figures, in both forms, and nothing that runs.

mod common;

use std::fs;
use std::path::Path;

use common::inert::assert_tags;
use iteragpu_lab::simulation::{compare_with_simulation, simulation_of};
use iteragpu_lab::{
    AllocatorProfile, Comparison, Estimate, LabError, MeasureConfig, Measurement, MeasurementComparison, PriceList,
    Shown, Simulation, accepted_units, append, compare_measurement_outcomes, compare_measurements, compare_outcome,
    environment_report, estimate_weights, save_new, show, simulate, summarize,
};
use serde_json::Value;

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Text that would run, break out or take over if it were not neutralised.
const HOSTILE: &str = "<script>alert(1)</script><img src=x onerror=alert(2)>\" onload='x' \u{1b}[31m\u{202e}EVCXR_BEGIN_CONTENT text/html";

/// A real measurement of an H200, as it is kept in the documents.
fn measured() -> Result<Measurement, Box<dyn std::error::Error>> {
    let text = fs::read_to_string("docs/mesures/h200-golden.json")?;
    let mut kept: Value = serde_json::from_str(&text)?;
    Ok(serde_json::from_value(kept["measurements"][0].take())?)
}

#[test]
fn an_estimate_shows_exact_figures_and_its_json() {
    let estimate = estimate_weights(7_000_000_000, 16, "4");
    let shown = show(&estimate);
    for figure in
        ["7\u{202f}000\u{202f}000\u{202f}000", "14\u{202f}000\u{202f}000\u{202f}000", "17,03851604461669921875"]
    {
        assert!(shown.html().contains(figure) && shown.text().contains(figure), "{figure}");
    }
    assert!(estimate.is_ok_and(|estimate| shown.text().ends_with(&estimate.to_string())));
    assert_is_inert(&shown);
}

#[test]
fn a_measurement_shows_every_counter_and_two_charts() -> Outcome {
    let measurement = measured()?;
    let json = measurement.to_string();
    let counters: Vec<u64> =
        measurement.phases.iter().flat_map(|row| [row.peak_allocated_bytes, row.end_reserved_bytes]).collect();
    let shown = show(&Ok(measurement));
    assert!(shown.html().contains("Mesuré sur NVIDIA H200"));
    assert_eq!(shown.html().matches("<svg").count(), 2);
    let digits = |text: &str| text.replace('\u{202f}', "");
    for counter in counters {
        assert!(digits(shown.html()).contains(&format!(">{counter}<")), "{counter}");
    }
    assert!(shown.text().ends_with(&json));
    assert_is_inert(&shown);
    Ok(())
}

#[test]
fn times_beyond_what_a_float_multiplies_are_still_figures() -> Outcome {
    let mut measurement = measured()?;
    let row = measurement.phases.last().cloned().ok_or("no phase")?;
    measurement.phases.push(row);
    measurement.phases.iter_mut().for_each(|row| row.elapsed_seconds = f64::MAX);
    let shown = show(&Ok(measurement));
    assert!(!shown.text().contains("inf") && shown.text().contains("179\u{202f}769\u{202f}313"), "{}", shown.text());
    assert_eq!(shown.html().matches("<svg").count(), 1, "times without end have no chart");
    Ok(())
}

#[test]
fn many_repetitions_stay_readable() -> Outcome {
    let mut measurement = measured()?;
    let last = measurement.phases.last().cloned().ok_or("no phase")?;
    for run_index in 3..=20_000 {
        measurement.phases.push(iteragpu_lab::PhaseRow { run_index, ..last.clone() });
    }
    let shown = show(&Ok(measurement));
    assert!(shown.html().contains("warm_forward\u{a0}1\u{a0}à\u{a0}20\u{202f}000"));
    assert!(shown.html().len() < 200_000, "{} bytes", shown.html().len());
    assert!(shown.html().contains("un point sur 20") && shown.text().contains("octets de JSON"));
    Ok(())
}

#[test]
fn prices_quotes_units_and_summaries_have_a_view() -> Outcome {
    let quote = show(&PriceList::shipped().and_then(|prices| prices.quote("b200", 7, 2, Some(11))));
    for figure in ["4\u{202f}562,88", "≈ 414,81", "41\u{202f}480,72727272727272727272727 centimes, arrondis"] {
        assert!(quote.html().contains(figure), "{figure}");
    }
    let prices = show(&PriceList::shipped());
    assert_eq!(prices.html().matches("<tr>").count(), 1 + 45);
    assert!(prices.text().starts_with("Tarifs, liste du "));
    assert!(prices.html().contains("prix du lot (USD)"));
    let folder = tempfile::tempdir()?;
    let results = folder.path().join("r.csv");
    let added = show(&append(&measured()?, &results));
    assert!(added.text().contains("6 lignes ajoutées"));
    let summary = show(&summarize(&results));
    assert!(summary.html().contains("34\u{202f}649\u{202f}088") && summary.html().contains("NVIDIA H200"));
    let nobody = show(&accepted_units(&results));
    assert!(nobody.html().contains("Aucune unité n&#39;a été comptée."));
    let saved = show(&save_new(&measured().map_err(|_| LabError::WorkerMissing), folder.path().join("new.json")));
    assert!(saved.text().contains("nouveau fichier"));
    for shown in [quote, prices, added, summary, nobody, saved, show(&environment_report("cuda:0"))] {
        assert_is_inert(&shown);
    }
    Ok(())
}

/// Whether a G stands alone, or for the decimal Go: it may be read as either of two sizes.
fn has_a_bare_g(text: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric()).any(|word| ["g", "go", "gb"].contains(&&*word.to_lowercase()))
}

#[test]
fn sizes_are_in_bytes_and_gio_and_never_in_a_bare_g() -> Outcome {
    let measurement = measured()?;
    let environment = show(&Ok(measurement.environment.clone()));
    let views = [show(&estimate_weights(70_000_000_000, 16, "4")), show(&Ok(measurement)), environment];
    for shown in &views {
        assert!(!has_a_bare_g(shown.text()) && !has_a_bare_g(shown.html()), "{}", shown.text());
    }
    assert!(views[0].text().contains("140\u{202f}000\u{202f}000\u{202f}000"));
    assert!(views[0].text().contains("130,3851604461669921875") && views[0].text().contains("Gio"));
    assert!(["130 G", "130 Go", "1 GB,", "(130 gb)"].iter().all(|planted| has_a_bare_g(planted)));
    Ok(())
}

#[test]
fn an_error_is_a_box_that_says_what_happened_what_was_not_done_and_what_to_do() {
    let refused: Result<Estimate, LabError> = estimate_weights(1, 5, "0");
    let shown = show(&refused);
    for part in ["Rien n&#39;a été calculé ni mesuré.", "bits : « 5 » refusé.", "Que faire : écrire 4, 8, 16 ou 32."]
    {
        assert!(shown.html().contains(part), "{part}: {}", shown.html());
    }
    let text = "Rien n'a été calculé ni mesuré. bits : « 5 » refusé. Que faire : écrire 4, 8, 16 ou 32.";
    assert_eq!(shown.text(), text);
}

#[test]
fn a_measurement_under_other_settings_carries_a_warning() -> Outcome {
    const WARNING: &str = "Compteurs et durées ne se comparent qu'à ceux d'une mesure aux mêmes réglages.";
    let mut measurement = measured()?;
    assert!(!show(&Ok(measurement.clone())).text().contains(WARNING));
    let settings = measurement.environment.runtime_settings.as_mut().ok_or("no settings")?;
    settings.expandable_segments = true;
    let environment = show(&Ok(measurement.environment.clone()));
    for text in [show(&Ok(measurement)).text(), environment.text()] {
        assert!(text.contains("expandable_segments=true") && text.contains(WARNING), "{text}");
    }
    Ok(())
}

#[test]
fn a_simulation_says_that_nothing_was_measured() -> Outcome {
    let measurement = measured()?;
    let config = measurement.configuration.chosen.clone();
    let simulated = simulate(&config, &AllocatorProfile::hopper());
    let text = show(&simulated).text().to_owned();
    assert!(text.starts_with("Simulé, rien n'a été mesuré"), "{text}");
    // Of the measurement: peak of allocated, and the workspaces of both libraries.
    for figure in ["34\u{202f}649\u{202f}088", "34\u{202f}603\u{202f}008", "vérifiés sur un H200"] {
        assert!(text.contains(figure), "{figure}: {text}");
    }
    assert!(show(&simulated).html().contains("<svg "));
    let small = show(&simulated.map(|found| found.beside_memory(35_651_583)));
    assert!(small.text().contains("La réserve simulée la dépasse de 1 octets."), "{}", small.text());
    let unknown = show(&simulate(&config, &AllocatorProfile::unknown()));
    assert!(unknown.text().contains("GPU inconnu : supposés"));

    let equal = show(&compare_outcome(&Ok(measurement.clone())));
    assert!(equal.text().contains("les six compteurs des 6 lignes sont égaux, à l'octet près"), "{}", equal.text());
    let mut other = measurement;
    other.phases[2].peak_reserved_bytes += 512;
    other.phases[3].end_reserved_bytes -= 2048;
    let differing = show(&compare_outcome(&Ok(other)));
    assert!(differing.text().starts_with("Lignes où mesure et simulation diffèrent : 2 sur 6"), "{}", differing.text());
    assert!([">+512<", ">−2\u{202f}048<", ">0<"].iter().all(|figure| differing.html().contains(figure)));
    assert_eq!(differing.html().matches("<tr>").count(), 1 + 2);
    let mut shorter = measured()?;
    shorter.phases.pop();
    assert!(show(&compare_outcome(&Ok(shorter))).text().contains("pas le même nombre de lignes"));
    let nothing = show(&compare_outcome(&Err(LabError::WorkerMissing)));
    assert!(nothing.text().starts_with("Rien n'a été comparé. Aucune mesure : "), "{}", nothing.text());
    for shown in [small, unknown, equal, differing, nothing] {
        assert_is_inert(&shown);
    }
    Ok(())
}

#[test]
fn two_measurements_show_what_differs_then_counters_and_times() -> Outcome {
    let first = measured()?;
    let mut second = first.clone();
    second.measured_at_utc = "2026-12-01T00:00:00.000000+00:00".to_owned();
    let shown = |first: &Measurement, second: &Measurement| show(&compare_measurements(first, second));
    let equal = shown(&first, &second);
    assert!(
        equal.text().starts_with("Deux mesures : leurs passages à chaud ne se distinguent pas"),
        "{}",
        equal.text()
    );
    assert!(equal.text().contains("Environnements et configurations égaux."));
    assert!(equal.text().contains("Les six compteurs des 6 lignes communes sont égaux, à l'octet près."));
    assert!(equal.html().contains(">1,000<br>"), "{}", equal.html());

    second.phases[2].peak_reserved_bytes += 512;
    second.phases[4..].iter_mut().for_each(|row| row.elapsed_seconds *= 10.0);
    second.configuration.chosen.seed = 1_000_000;
    let slower = shown(&first, &second);
    assert!(slower.text().starts_with("Deux mesures : passages à chaud plus courts dans la première"));
    assert!(
        [">+512<", ">1\u{202f}729<", ">1\u{202f}000\u{202f}000<", ">10,000<br>"]
            .iter()
            .all(|figure| slower.html().contains(figure))
    );
    assert!(shown(&second, &first).text().starts_with("Deux mesures : passages à chaud plus courts dans la seconde"));

    second.environment.driver_version = None;
    second.phases.pop();
    second.phases[0].elapsed_seconds = 0.0;
    let unranked = shown(&second, &first);
    let text = unranked.text();
    assert!(text.starts_with("Deux mesures, sans classement de leurs durées"), "{text}");
    assert!(text.contains(
        "Pour classer ces durées, il faut le même pilote. Les deux mesures doivent donner : driver_version."
    ));
    assert!(text.contains("Lignes que seule la seconde mesure contient, non comparées : 1."));
    assert!(!text.contains("Lignes que seule la première"));
    assert!(text.contains("environnement, empêche de classer") && text.contains("non donné"), "{text}");
    assert!(text.contains("aucun\n"), "{text}");
    // Environment, configuration, counters, times, ranking.
    let order =
        ["driver_version", "seed", "−512", "Seconde / première", "Pour classer ces durées"].map(|part| text.find(part));
    assert!(order.iter().all(Option::is_some) && order.is_sorted(), "{order:?}");
    let nothing = show(&compare_measurement_outcomes(&Ok(first), &Err(LabError::WorkerMissing)));
    assert!(nothing.text().starts_with("Rien n'a été comparé. La seconde mesure manque. "), "{}", nothing.text());
    for shown in [equal, slower, unranked, nothing] {
        assert_is_inert(&shown);
    }
    Ok(())
}

#[test]
fn a_measurement_with_its_simulation_says_so() -> Outcome {
    let mut measurement = measured()?;
    let without = show(&Ok(measurement.clone()));
    measurement.simulation = Some(simulation_of(&measurement)?);
    let shown = show(&Ok(measurement.clone()));
    let note = "Sa simulation est dans le JSON, sous la clé simulation : elle n'a pas été mesurée.";
    assert!(shown.text().contains(note) && !without.text().contains(note));
    assert!(shown.text().ends_with(&measurement.to_string()));
    assert_eq!(shown.html().matches("<svg").count(), 2);
    assert_is_inert(&shown);
    Ok(())
}

/// `value` with every text replaced, except the few that have a fixed set of values.
fn hostile(value: &mut Value) {
    match value {
        Value::String(text) if !["hopper", "float32", "native", "not_distinguished"].contains(&text.as_str()) => {
            *text = HOSTILE.to_owned()
        }
        Value::Array(values) => values.iter_mut().for_each(hostile),
        Value::Object(values) => {
            values.iter_mut().filter(|(key, _)| *key != "evidence").for_each(|(_, value)| hostile(value))
        }
        _ => {}
    }
}

/// `value` with every number replaced by the largest.
fn absurd(value: &mut Value) {
    match value {
        Value::Number(number) => *number = u64::MAX.into(),
        Value::Array(values) => values.iter_mut().for_each(absurd),
        Value::Object(values) => values.values_mut().for_each(absurd),
        _ => {}
    }
}

/// A measurement as a hostile file holds it: every text, and one that is longer than a screen.
fn foreign() -> Result<Measurement, Box<dyn std::error::Error>> {
    let mut foreign = serde_json::to_value(measured()?)?;
    hostile(&mut foreign["environment"]);
    hostile(&mut foreign["phases"]);
    let mut foreign: Measurement = serde_json::from_value(foreign)?;
    foreign.measured_at_utc = HOSTILE.to_owned();
    foreign.synthetic_model.definition = HOSTILE.to_owned();
    let settings = foreign.environment.runtime_settings.get_or_insert_default();
    settings.set_outside = vec![HOSTILE.repeat(1_000)];
    Ok(foreign)
}

#[test]
fn a_long_value_is_shortened_in_the_table_and_whole_in_the_json() -> Outcome {
    let comparison = compare_measurements(&measured()?, &foreign()?)?;
    let (json, shown) = (comparison.to_string(), show(&Ok(comparison)));
    let tables = shown.text().strip_suffix(&json).ok_or("no JSON")?;
    assert!(tables.matches("onload='x'").count() < 20, "{tables}");
    assert!(tables.contains("runtime_settings.set_outside") && tables.contains('…'), "{tables}");
    assert_is_inert(&shown);
    Ok(())
}

#[test]
fn simulations_and_comparisons_read_from_json_cannot_run_or_break_anything() -> Outcome {
    let simulation = simulate(&MeasureConfig::default(), &AllocatorProfile::hopper())?.beside_memory(1);
    let comparison = compare_with_simulation(&measured()?)?;
    for change in [hostile, absurd] {
        let (mut simulated, mut compared) = (serde_json::to_value(&simulation)?, serde_json::to_value(&comparison)?);
        change(&mut simulated);
        change(&mut compared);
        let mut simulated: Simulation = serde_json::from_value(simulated)?;
        assert_is_inert(&show(&Ok(simulated.clone())));
        assert_is_inert(&show(&Ok(serde_json::from_value::<Comparison>(compared)?)));
        for points in [1, 0] {
            simulated.timeline.truncate(points);
            let shown = show(&Ok(simulated.clone()));
            assert_eq!(shown.html().matches("<svg").count(), points);
            assert_is_inert(&shown);
        }
    }
    let between = compare_measurements(&measured()?, &foreign()?)?;
    assert_is_inert(&show(&Ok(between.clone())));
    for change in [hostile, absurd] {
        let mut between = serde_json::to_value(&between)?;
        change(&mut between);
        assert_is_inert(&show(&Ok(serde_json::from_value::<MeasurementComparison>(between)?)));
    }
    let mut farthest = comparison;
    farthest.rows[0].end_reserved_difference_bytes = i128::MIN;
    assert_is_inert(&show(&Ok(farthest)));
    Ok(())
}

#[test]
fn text_from_files_and_drivers_cannot_run() -> Outcome {
    let mut measurement = measured()?;
    measurement.environment.selected_device_name = Some(HOSTILE.to_owned());
    measurement.environment.driver_version = Some(HOSTILE.to_owned());
    measurement.environment.reason = Some(HOSTILE.to_owned());
    measurement.phases[0].phase = HOSTILE.to_owned();
    let settings = measurement.environment.runtime_settings.get_or_insert_default();
    settings.allocator_backend = HOSTILE.to_owned();
    settings.set_outside = vec![HOSTILE.to_owned()];
    assert_is_inert(&show(&Ok(measurement.environment.clone())));
    assert_is_inert(&show(&Ok(measurement)));

    // A CSV file with control characters is refused before anything is shown.
    let quoted = HOSTILE.replace('"', "\"\"").replace(['\u{1b}', '\u{202e}'], "");
    let list = format!(
        "gpu,gpu_name,gpus_per_lot,days,lot_price_cents,currency,snapshot_date,source\nx,\"{quoted}\",1,1,100,EUR,2026-11-30,\"{quoted}\"\n"
    );
    let prices = PriceList::read(HOSTILE, list.as_bytes());
    assert!(prices.is_ok());
    assert_is_inert(&show(&prices));
    assert_is_inert(&show(&prices.and_then(|prices| prices.quote("x", 1, 1, None))));
    assert_is_inert(&show(&PriceList::read(HOSTILE, "nothing".as_bytes())));
    assert_is_inert(&show(&PriceList::open(Path::new(HOSTILE))));
    assert_is_inert(&show(&environment_report(HOSTILE)));
    Ok(())
}

/// No element or attribute of ours runs or loads anything, and nothing speaks to a terminal or to the kernel.
fn assert_is_inert(shown: &Shown) {
    assert_tags(shown.html());
    for form in [shown.html(), shown.text()] {
        assert!(!form.contains("EVCXR_") && !form.contains('\u{1b}') && !form.contains('\u{202e}'), "{form}");
        assert!(!form.contains("url("), "{form}");
    }
}

/// The checker of this file finds what it is there for.
#[test]
fn the_checker_finds_planted_faults() {
    let caught = |html: &str| {
        let html = html.to_owned();
        std::panic::catch_unwind(move || assert_tags(&html)).is_err()
    };
    std::panic::set_hook(Box::new(|_| ()));
    let found = ["<script>", "<img src=\"x\">", "<td onclick=\"x\">", "<a href=\"x\">"].map(caught);
    let clean = caught("<td style=\"a\">&lt;script&gt;</td>");
    drop(std::panic::take_hook());
    assert_eq!((found, clean), ([true; 4], false));
}
