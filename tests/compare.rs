//! Two measurements side by side: what differs, what may be ranked, and properties that hold for any two.

use std::fs;

use iteragpu_lab::compare::{MeasurementComparison, Spread, TimesOfPhase, Verdict};
use iteragpu_lab::{Dtype, LabError, Measurement, compare_measurement_outcomes, compare_measurements};
use proptest::prelude::*;
use serde_json::{Value, json};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;
type Change = fn(&mut Measurement);

/// Batch 2, context 128, width 1024, five repetitions on an H200, float32 then float16.
fn measured() -> Outcome<[Measurement; 2]> {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/mesures/h200-golden.json"))?;
    let mut kept: Value = serde_json::from_str(&text)?;
    let mut measurement = |place: usize| serde_json::from_value(kept["measurements"][place].take());
    Ok([measurement(1)?, measurement(2)?])
}

/// The float32 one as another trial would give it: later, and with these times of its warm passes.
fn another(milliseconds: &[f64]) -> Outcome<Measurement> {
    let [mut measurement, _] = measured()?;
    measurement.measured_at_utc = "2026-12-01T00:00:00.000000+00:00".to_owned();
    set_warm_times(&mut measurement, milliseconds)?;
    Ok(measurement)
}

fn set_warm_times(measurement: &mut Measurement, milliseconds: &[f64]) -> Outcome {
    let warm = measurement.phases.pop().ok_or("no phase")?;
    measurement.phases.truncate(4);
    for (run_index, milliseconds) in (1..).zip(milliseconds) {
        let elapsed_seconds = milliseconds / 1000.0;
        measurement.phases.push(iteragpu_lab::PhaseRow { run_index, elapsed_seconds, ..warm.clone() });
    }
    measurement.configuration.chosen.repeats = milliseconds.len() as u64;
    Ok(())
}

fn keys(comparison: &MeasurementComparison) -> Vec<(&str, bool)> {
    let differences = comparison.environment_differences.iter();
    differences.map(|found| (found.difference.key.as_str(), found.forbids_ranking)).collect()
}

fn times<'a>(comparison: &'a MeasurementComparison, phase: &str) -> Outcome<&'a TimesOfPhase> {
    Ok(comparison.times.iter().find(|times| times.phase == phase).ok_or("no such phase")?)
}

#[test]
fn one_dimension_that_differs_is_named_with_what_it_changes() -> Outcome {
    let [float32, float16] = measured()?;
    let comparison = compare_measurements(&float32, &float16)?;
    assert_eq!((keys(&comparison), comparison.environment_unknown.len()), (vec![], 0));
    let written = serde_json::to_value(&comparison)?;
    let expected = json!([{ "key": "dtype", "first": "float32", "second": "float16" }]);
    assert_eq!(written["configuration_differences"], expected);
    assert!(comparison.attribution.contains("qui change le calcul : dtype."), "{}", comparison.attribution);

    // Two weight matrices of 1024 x 1024 and two biases of 1024 take half as many bytes.
    let row = &comparison.counters.rows[0];
    assert_eq!((row.phase.as_str(), row.end_allocated_difference_bytes), ("model_load", -2 * (1024 + 1) * 1024 * 2));
    assert!(!comparison.counters.identical);
    assert_eq!((comparison.counters.rows.len(), comparison.counters.rows_only_in_second), (9, 0));

    // The middle ones of the five times in the file.
    let warm = times(&comparison, "warm_forward")?;
    assert_eq!((warm.first.count, warm.first.elapsed_seconds.median), (5, 0.000_071_702));
    assert_eq!(warm.second.elapsed_seconds.median, 0.000_036_668);
    assert_eq!(warm.ratio_of_medians, Some(0.000_036_668 / 0.000_071_702));
    assert_eq!(comparison.ranking.verdict, Some(Verdict::SecondFaster));
    assert_eq!(
        (&written["ranking"]["verdict"], &written["ranking"]["comparable_if"]),
        (&json!("second_faster"), &Value::Null)
    );
    Ok(())
}

/// Why a verdict is about two trials only: two kept ones of the same configuration, on the same model
/// of GPU, are farther apart than the passes of each.
#[test]
fn two_kept_trials_of_one_configuration_differ_more_than_their_passes() -> Outcome {
    let kept = |file: &str| -> Outcome<Measurement> {
        let text = fs::read_to_string(format!("{}/docs/mesures/{file}", env!("CARGO_MANIFEST_DIR")))?;
        Ok(serde_json::from_value(serde_json::from_str::<Value>(&text)?["measurements"][8].take())?)
    };
    let comparison = compare_measurements(&kept("h200-golden.json")?, &kept("h200-x2-golden-cuda1.json")?)?;
    assert!(comparison.configuration_differences.is_empty() && comparison.counters.identical);
    let warm = times(&comparison, "warm_forward")?;
    assert!(warm.largest_ratio.is_some_and(|ratio| ratio < 0.67), "{warm:?}");
    let is_narrow = |seconds: Spread<f64>| seconds.max / seconds.min < 1.05;
    assert!(is_narrow(warm.first.elapsed_seconds) && is_narrow(warm.second.elapsed_seconds), "{warm:?}");
    // The settings of the second one were not recorded then.
    assert_eq!(
        (comparison.ranking.verdict, comparison.environment_unknown),
        (None, vec!["runtime_settings".to_owned()])
    );
    Ok(())
}

#[test]
fn ratios_are_those_of_medians_and_of_the_farthest_passes() -> Outcome {
    let first = another(&[4.0, 1.0, 3.0, 2.0])?;
    let [mut second, _] = measured()?;
    set_warm_times(&mut second, &[6.0, 5.0])?;
    second.phases[0].elapsed_seconds = 0.0;
    let comparison = compare_measurements(&first, &second)?;
    let warm = times(&comparison, "warm_forward")?;
    let near = |found: Option<f64>, expected: f64| found.is_some_and(|found| (found - expected).abs() < 1e-12);
    // 5.5 / 2.5, 5 / 4 and 6 / 1.
    assert!(
        near(warm.ratio_of_medians, 2.2) && near(warm.smallest_ratio, 1.25) && near(warm.largest_ratio, 6.0),
        "{warm:?}"
    );
    assert_eq!(comparison.ranking.verdict, Some(Verdict::FirstFaster));
    assert_eq!(times(&comparison, "model_load")?.ratio_of_medians, Some(0.0));

    let (counters, phases) = (&comparison.counters, comparison.times.len());
    assert_eq!((counters.identical, counters.rows.len(), phases), (true, 6, 5));
    assert_eq!((counters.rows_only_in_first, counters.rows_only_in_second), (2, 0));
    // The number of passes is shown, and changes nothing else.
    assert_eq!(serde_json::to_value(&comparison.configuration_differences)?[0]["key"], "repeats");
    assert!(comparison.attribution.starts_with("Même configuration"), "{}", comparison.attribution);
    Ok(())
}

#[test]
fn a_ratio_that_does_not_exist_is_null_with_its_reason() -> Outcome {
    let [first, _] = measured()?;
    let cases = [
        ([0.0, 0.0, 0.0], [1.0, 2.0, 3.0], [false, false, false]),
        ([0.0, 1.0, 2.0], [1.0, 2.0, 3.0], [true, true, false]),
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [false, false, false]),
        ([1e-300, 1e-300, 1.0], [1e300, 1e300, 1e300], [false, true, false]),
        ([1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [true, true, true]),
    ];
    for (one, other, exists) in cases {
        let mut first = first.clone();
        set_warm_times(&mut first, &one)?;
        let comparison = compare_measurements(&first, &another(&other)?)?;
        let warm = times(&comparison, "warm_forward")?;
        let found = [warm.ratio_of_medians, warm.smallest_ratio, warm.largest_ratio].map(|ratio| ratio.is_some());
        assert_eq!((found, warm.ratio_note.is_none()), (exists, exists == [true; 3]), "{warm:?}");
        assert_eq!(serde_json::from_str::<MeasurementComparison>(&comparison.to_string())?, comparison);
    }
    Ok(())
}

#[test]
fn ranges_that_touch_or_overlap_are_not_distinguished() -> Outcome {
    let cases: [(&[f64], &[f64], Option<Verdict>); 7] = [
        (&[1.0, 2.0], &[2.5, 3.0], Some(Verdict::FirstFaster)),
        (&[2.5, 3.0], &[1.0, 2.0], Some(Verdict::SecondFaster)),
        (&[1.0, 2.0], &[2.0, 3.0], Some(Verdict::NotDistinguished)),
        (&[2.0, 3.0], &[1.0, 2.0], Some(Verdict::NotDistinguished)),
        (&[1.0, 9.0], &[2.0, 3.0], Some(Verdict::NotDistinguished)),
        (&[1.0], &[2.0, 3.0], None),
        (&[1.0, 2.0], &[3.0], None),
    ];
    let [mut first, _] = measured()?;
    for (one, other, verdict) in cases {
        set_warm_times(&mut first, one)?;
        let ranking = compare_measurements(&first, &another(other)?)?.ranking;
        assert_eq!(
            (ranking.verdict, ranking.comparable_if.is_none()),
            (verdict, verdict.is_some()),
            "{one:?} {other:?}"
        );
        assert_eq!(ranking.reason.contains("qu'un passage"), verdict.is_none(), "{}", ranking.reason);
        assert_eq!(ranking.reason.contains("vaut pour ces deux essais"), verdict.is_some(), "{}", ranking.reason);
    }
    Ok(())
}

/// Each of these would be a false ranking: the second is far faster, and measured under other conditions.
#[test]
fn environments_that_differ_are_never_ranked() -> Outcome {
    let cases: [(&str, &str, Change); 12] = [
        ("platform", "système", |m| m.environment.platform = "Darwin".to_owned()),
        ("lab_version", "IteraGPU Lab", |m| m.environment.lab_version = "0.0.9".to_owned()),
        ("tch_version", "IteraGPU Lab", |m| m.environment.tch_version = Some("0.26.0".to_owned())),
        ("torch_version", "PyTorch", |m| m.environment.torch_version = Some("2.13.0".to_owned())),
        ("cuda_build_version", "PyTorch", |m| m.environment.cuda_build_version = Some("12.8".to_owned())),
        ("hip_build_version", "PyTorch", |m| m.environment.hip_build_version = Some("6.3".to_owned())),
        ("driver_version", "le même pilote", |m| m.environment.driver_version = Some("570.1".to_owned())),
        ("selected_device_name", "modèle de GPU", |m| {
            m.environment.selected_device_name = Some("NVIDIA L4".to_owned())
        }),
        ("selected_device_total_bytes", "modèle de GPU", |m| {
            m.environment.selected_device_total_bytes = Some(1 << 30)
        }),
        ("selected_device_compute_capability", "modèle de GPU", |m| {
            m.environment.selected_device_compute_capability = Some("8.9".to_owned());
        }),
        ("selected_device_bfloat16", "modèle de GPU", |m| {
            m.environment.selected_device_bfloat16 = Some(iteragpu_lab::protocol::Bfloat16Support::Emulated);
        }),
        ("runtime_settings.expandable_segments", "réglages de PyTorch", |m| {
            m.environment.runtime_settings.get_or_insert_default().expandable_segments = true;
        }),
    ];
    let [first, _] = measured()?;
    for (key, wanted, change) in cases {
        let mut second = another(&[0.001, 0.001])?;
        assert_eq!(compare_measurements(&first, &second)?.ranking.verdict, Some(Verdict::SecondFaster));
        change(&mut second);
        for (one, other) in [(&first, &second), (&second, &first)] {
            let comparison = compare_measurements(one, other)?;
            assert_eq!((keys(&comparison), comparison.environment_unknown.len()), (vec![(key, true)], 0));
            let ranking = &comparison.ranking;
            assert_eq!((ranking.verdict, &ranking.reason), (None, &format!("Les environnements diffèrent : {key}.")));
            let way = ranking.comparable_if.as_deref().unwrap_or_default();
            assert!(
                way.starts_with("Pour classer ces durées, il faut ") && way.contains(wanted) && way.ends_with('.'),
                "{key}: {way}"
            );
            assert!(comparison.attribution.contains("ne peut pas être attribué"), "{}", comparison.attribution);
        }
    }
    Ok(())
}

#[test]
fn what_would_make_two_comparable_is_said_once() -> Outcome {
    let ([first, _], mut second) = (measured()?, another(&[1.0, 1.0])?);
    second.environment.selected_device_name = Some("NVIDIA L4".to_owned());
    second.environment.selected_device_total_bytes = Some(1 << 34);
    second.environment.driver_version = None;
    let ranking = compare_measurements(&first, &second)?.ranking;
    let expected = "Pour classer ces durées, il faut le même modèle de GPU, le même pilote. Les deux mesures doivent donner : driver_version.";
    assert_eq!(ranking.comparable_if.as_deref(), Some(expected));
    Ok(())
}

#[test]
fn what_is_unknown_is_not_equal() -> Outcome {
    let cases: [(&str, Change); 7] = [
        ("driver_version", |m| m.environment.driver_version = None),
        ("selected_device_name", |m| m.environment.selected_device_name = None),
        ("torch_version", |m| m.environment.torch_version = None),
        ("selected_device_total_bytes", |m| m.environment.selected_device_total_bytes = None),
        ("runtime_settings", |m| m.environment.runtime_settings = None),
        ("runtime_settings.cublas_workspace_bytes", |m| {
            m.environment.runtime_settings.get_or_insert_default().cublas_workspace_bytes = None;
        }),
        ("cuda_build_version, hip_build_version", |m| m.environment.cuda_build_version = None),
    ];
    for (key, change) in cases {
        let ([mut first, _], mut second) = (measured()?, another(&[0.001, 0.001])?);
        change(&mut second);
        // Unknown in one, then in both.
        for _ in 0..2 {
            let comparison = compare_measurements(&first, &second)?;
            assert_eq!(comparison.environment_unknown.join(", "), key);
            let ranking = comparison.ranking;
            let reason = format!("Inconnu dans l'une au moins des mesures, donc pas tenu pour égal : {key}.");
            assert_eq!((ranking.verdict, &ranking.reason), (None, &reason));
            let way = ranking.comparable_if.unwrap_or_default();
            assert!(way.ends_with(&format!("Les deux mesures doivent donner : {key}.")), "{way}");
            change(&mut first);
        }
    }
    Ok(())
}

/// A build for ROCm has no CUDA version, and a block that may always be split has no limit.
#[test]
fn a_value_that_is_absent_by_nature_forbids_nothing() -> Outcome {
    let ([mut first, _], mut second) = (measured()?, another(&[0.001, 0.001])?);
    for measurement in [&mut first, &mut second] {
        measurement.environment.cuda_build_version = None;
        measurement.environment.hip_build_version = Some("6.3".to_owned());
    }
    assert_eq!(compare_measurements(&first, &second)?.ranking.verdict, Some(Verdict::SecondFaster));
    Ok(())
}

#[test]
fn variables_of_which_only_the_names_are_known_forbid_a_ranking() -> Outcome {
    let ([mut first, _], mut second) = (measured()?, another(&[0.001, 0.001])?);
    let set = |m: &mut Measurement| {
        m.environment.runtime_settings.get_or_insert_default().set_outside = vec!["CUDA_LAUNCH_BLOCKING".to_owned()];
    };
    set(&mut second);
    for (one, other) in [(&first, &second), (&second, &first)] {
        let comparison = compare_measurements(one, other)?;
        assert_eq!(keys(&comparison), [("runtime_settings.set_outside", true)]);
        assert_eq!((comparison.environment_unknown.len(), comparison.ranking.verdict), (0, None));
    }
    set(&mut first);
    let comparison = compare_measurements(&first, &second)?;
    assert_eq!(comparison.environment_unknown, ["runtime_settings.set_outside"]);
    let way = comparison.ranking.comparable_if.unwrap_or_default();
    assert!(comparison.ranking.verdict.is_none() && way.ends_with("(set_outside)."), "{way}");
    Ok(())
}

#[test]
fn another_card_of_the_same_model_is_shown_and_ranked() -> Outcome {
    let ([first, _], mut second) = (measured()?, another(&[0.001, 0.001])?);
    second.environment.requested_device = "cuda:1".to_owned();
    second.configuration.chosen.device = "cuda:1".to_owned();
    second.environment.selected_device_pci_bus_id = None;
    second.environment.visible_device_count = Some(2);
    second.environment.driver_note = "Autre note.".to_owned();
    let comparison = compare_measurements(&first, &second)?;
    let shown = ["requested_device", "selected_device_pci_bus_id", "visible_device_count"];
    assert_eq!(keys(&comparison), shown.map(|key| (key, false)));
    assert_eq!((comparison.environment_unknown.len(), comparison.configuration_differences.len()), (0, 1));
    assert_eq!(comparison.ranking.verdict, Some(Verdict::SecondFaster));
    Ok(())
}

#[test]
fn several_dimensions_that_differ_share_the_blame() -> Outcome {
    let ([first, _], mut second) = (measured()?, another(&[1.0, 1.0])?);
    second.configuration.chosen.width = 2048;
    second.configuration.chosen.dtype = Dtype::Bfloat16;
    second.synthetic_model.definition = "Linear".to_owned();
    let comparison = compare_measurements(&first, &second)?;
    let names: Vec<&str> = comparison.configuration_differences.iter().map(|found| found.key.as_str()).collect();
    assert_eq!(names, ["dtype", "repeats", "synthetic_model.definition", "width"]);
    let said = &comparison.attribution;
    assert!(
        said.starts_with("Plusieurs différences de configuration : dtype, synthetic_model.definition, width. "),
        "{said}"
    );
    Ok(())
}

#[test]
fn a_measurement_is_not_compared_with_itself() -> Outcome {
    let [measurement, _] = measured()?;
    let mut with_simulation = measurement.clone();
    with_simulation.simulation = Some(iteragpu_lab::simulation::simulation_of(&measurement)?);
    let refused = compare_measurements(&measurement, &with_simulation).map(|_| ()).map_err(|error| error.to_string());
    assert_eq!(refused, Err("C'est deux fois la même mesure. Rien n'a été comparé.".to_owned()));
    let changes: [Change; 3] = [
        |m| m.environment.driver_version = Some("570".to_owned()),
        |m| m.configuration.chosen.seed = 0,
        |m| m.measured_at_utc = "2026-12-01T00:00:00.000000+00:00".to_owned(),
    ];
    for change in changes {
        let mut other = measurement.clone();
        change(&mut other);
        assert!(compare_measurements(&measurement, &other).is_ok());
    }
    let mut one_byte_more = measurement.clone();
    one_byte_more.phases[2].peak_reserved_bytes += 1;
    let differences = compare_measurements(&measurement, &one_byte_more)?.counters;
    let found: Vec<_> = differences.rows.iter().map(|row| row.differences()).filter(|found| *found != [0; 6]).collect();
    assert_eq!((differences.identical, found), (false, vec![[0, 0, 0, 0, 0, 1]]));
    Ok(())
}

#[test]
fn outcomes_without_a_measurement_say_which_is_missing() -> Outcome {
    let [measurement, other] = measured()?;
    let (first, second) = (Ok(measurement), Ok(other));
    assert!(compare_measurement_outcomes(&first, &second).is_ok());
    let missing = || Err(LabError::WorkerMissing);
    for (one, other, which) in [(&missing(), &second, "première"), (&first, &missing(), "seconde")] {
        let refused = compare_measurement_outcomes(one, other).map(|_| ()).map_err(|error| error.to_string());
        let said = refused.err().ok_or("compared")?;
        assert!(said.starts_with(&format!("La {which} mesure manque. Aucune mesure : ")), "{said}");
        assert!(said.ends_with("Rien n'a été comparé."), "{said}");
    }
    Ok(())
}

/// Put together by a program, a measurement may hold rows in any order, or none.
#[test]
fn rows_that_do_not_stand_side_by_side_are_not_compared() -> Outcome {
    let ([first, _], mut second) = (measured()?, another(&[1.0, 1.0])?);
    second.phases.swap(1, 2);
    let counters = compare_measurements(&first, &second)?.counters;
    assert_eq!((counters.rows.len(), counters.rows_only_in_first, counters.rows_only_in_second), (1, 8, 5));
    second.phases.clear();
    let comparison = compare_measurements(&first, &second)?;
    assert_eq!((comparison.counters.identical, comparison.times.len()), (false, 0));
    assert_eq!(comparison.ranking.verdict, None);
    Ok(())
}

fn mirrored(verdict: Option<Verdict>) -> Option<Verdict> {
    verdict.map(|verdict| match verdict {
        Verdict::FirstFaster => Verdict::SecondFaster,
        Verdict::SecondFaster => Verdict::FirstFaster,
        Verdict::NotDistinguished => Verdict::NotDistinguished,
    })
}

fn inverse_of(ratio: Option<f64>, of: Option<f64>) -> bool {
    matches!((ratio, of), (Some(ratio), Some(of)) if (ratio * of - 1.0).abs() < 1e-12)
}

proptest! {
    #[test]
    fn the_other_way_round_everything_is_mirrored(
        one in prop::collection::vec(1e-6f64..1e6, 1..9),
        other in prop::collection::vec(1e-6f64..1e6, 1..9),
        shift in 0u64..1 << 40,
        driver in prop::sample::select(vec![Some("580.159.04"), Some("570"), None]),
        width in 1023u64..1026,
    ) {
        let failed = |error: Box<dyn std::error::Error>| TestCaseError::fail(error.to_string());
        let refused = |error: LabError| TestCaseError::fail(error.to_string());
        let [mut first, _] = measured().map_err(failed)?;
        set_warm_times(&mut first, &one).map_err(failed)?;
        let mut second = another(&other).map_err(failed)?;
        second.phases.iter_mut().for_each(|row| row.peak_reserved_bytes += shift);
        second.environment.driver_version = driver.map(str::to_owned);
        second.configuration.chosen.width = width;

        let forth = compare_measurements(&first, &second).map_err(refused)?;
        let back = compare_measurements(&second, &first).map_err(refused)?;
        prop_assert_eq!(forth.ranking.verdict, mirrored(back.ranking.verdict));
        prop_assert_eq!(forth.ranking.verdict.is_some(), driver == Some("580.159.04") && one.len() > 1 && other.len() > 1);
        prop_assert_eq!(&forth.attribution, &back.attribution);
        prop_assert_eq!(&forth.environment_unknown, &back.environment_unknown);
        prop_assert_eq!(keys(&forth), keys(&back));
        prop_assert_eq!(forth.counters.rows.len(), 4 + one.len().min(other.len()));
        prop_assert_eq!(forth.counters.rows_only_in_first, back.counters.rows_only_in_second);
        prop_assert_eq!(forth.counters.identical, shift == 0);
        for (row, mirror) in forth.counters.rows.iter().zip(&back.counters.rows) {
            prop_assert_eq!(row.differences(), mirror.differences().map(|difference| -difference));
            prop_assert_eq!(row.differences()[5], i128::from(shift));
        }
        for (times, mirror) in forth.times.iter().zip(&back.times) {
            prop_assert_eq!((times.first, times.second), (mirror.second, mirror.first));
            prop_assert!(inverse_of(times.ratio_of_medians, mirror.ratio_of_medians), "{:?}", times);
            prop_assert!(inverse_of(times.smallest_ratio, mirror.largest_ratio), "{:?}", times);
            prop_assert!(times.smallest_ratio <= times.ratio_of_medians && times.ratio_of_medians <= times.largest_ratio);
        }
    }
}

/// The checker of the property finds what it is there for.
#[test]
fn the_checker_finds_planted_faults() {
    let wrong = [(Some(2.0), Some(2.0)), (Some(2.0), None), (None, None), (Some(0.0), Some(1.0))];
    assert!(wrong.iter().all(|(ratio, of)| !inverse_of(*ratio, *of)) && inverse_of(Some(2.0), Some(0.5)));
    assert_eq!(mirrored(Some(Verdict::FirstFaster)), Some(Verdict::SecondFaster));
}
