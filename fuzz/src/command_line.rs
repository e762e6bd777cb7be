//! Command lines of any bytes: refused in words, or understood as an independent reading says.
//!
//! The first byte chooses the command; the arguments follow, separated by line ends. Nothing that
//! would touch a file or start a worker is run.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use iteragpu_lab::cli::refusal;
use iteragpu_lab::simulation::Simulation;
use iteragpu_lab::{Dtype, Estimate, LabError, MeasureConfig, PriceList, arguments};
use num_bigint::BigUint;

use crate::exact::{is_digits, parts, ten};
use crate::inert::{assert_refused, assert_shows, assert_text};

// The very definitions of the commands.
#[allow(dead_code, reason = "a part of them runs what they have read")]
#[path = "../../src/bin/calcul-forfaits.rs"]
mod calcul_forfaits;
#[allow(dead_code, reason = "a part of them runs what they have read")]
#[path = "../../src/bin/mesure-memoire.rs"]
mod mesure_memoire;

use mesure_memoire::{ConfigurationOptions, EstimateOptions, SimulateOptions, Task};

pub fn check(data: &[u8]) {
    let Some((choice, line)) = data.split_first() else { return };
    let words = line.split(|byte| *byte == b'\n').map(|word| OsString::from_vec(word.to_vec()));
    let words = [OsString::from("commande")].into_iter().chain(words);
    if choice & 1 == 0 {
        match mesure_memoire::parse(words) {
            Ok(line) => check_task(&line.task),
            Err(error) => check_refusal(&error),
        }
    } else {
        match calcul_forfaits::parse(words) {
            Ok(options) => check_quote(&options),
            Err(error) => check_refusal(&error),
        }
    }
}

fn check_refusal(error: &clap::Error) {
    if error.use_stderr() {
        let text = refusal(error);
        let (first, last) = (text.lines().next().unwrap_or_default(), text.lines().next_back().unwrap_or_default());
        assert!(!first.trim().is_empty() && last == "L'option --help affiche l'aide.", "{text}");
    } else {
        assert_text(&error.render().to_string());
    }
}

fn check_task(task: &Task) {
    match task {
        Task::Estimate(options) => check_estimate(options),
        Task::Environment(options) => {
            let parsed = arguments::parse_device("device", &options.device).ok();
            assert_eq!(parsed, device(&options.device), "{}", options.device);
        }
        Task::Measure(options) => check_configuration(&options.configuration),
        Task::Simulate(options) => check_simulation(options),
        // Files of any name: not to be touched here.
        Task::Explore(_) | Task::Results(_) | Task::Compare(_) => (),
    }
}

/// A count as a person reads it: digits, not zero, below 2^64.
fn count(text: &str) -> Option<u64> {
    number(text).filter(|count| *count > 0)
}

fn number(text: &str) -> Option<u64> {
    is_digits(text).then(|| text.parse::<BigUint>().unwrap()).and_then(|number| u64::try_from(number).ok())
}

fn device(text: &str) -> Option<u32> {
    let index = u32::try_from(number(text.strip_prefix("cuda:")?)?).ok()?;
    // One spelling for each.
    (format!("cuda:{index}") == text).then_some(index)
}

/// A decimal that is kept as written: at most 28 digits, leading zeros apart.
fn is_reserve(text: &str) -> bool {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let significant = text.trim_start_matches('0').chars().filter(char::is_ascii_digit).count();
    is_digits(whole) && is_digits(fraction) && (whole == "0" || !whole.starts_with('0')) && significant <= 28
}

fn check_estimate(options: &EstimateOptions) {
    let outcome = mesure_memoire::estimate(options);
    let parameters = count(&options.parameters);
    let bits = ["4", "8", "16", "32"].contains(&options.bits.as_str()).then(|| number(&options.bits).unwrap());
    let accepted = parameters.zip(bits).filter(|_| is_reserve(&options.reserve_gib));
    let Some((parameters, bits)) = accepted else {
        assert!(matches!(outcome, Err(LabError::InvalidArgument { .. })), "{outcome:?}");
        return assert_refused(&outcome);
    };
    assert_shows(&outcome);
    let estimate = outcome.unwrap();
    assert_exact(&estimate, parameters, bits, &options.reserve_gib);
    assert_eq!(serde_json::from_str::<Estimate>(&estimate.to_string()).unwrap(), estimate);
}

/// Bytes, GiB and their sum against integers of any size.
fn assert_exact(estimate: &Estimate, parameters: u64, bits: u64, reserve: &str) {
    let bytes = (BigUint::from(parameters) * bits + 7u32) / 8u32;
    assert_eq!(BigUint::from(estimate.theoretical_weight_bytes), bytes);
    assert_eq!(estimate.assumed_reserve_gib, reserve);
    let (weights, a) = parts(&estimate.theoretical_weight_gib);
    assert_eq!(&weights << 30u32, &bytes * ten(a), "{estimate}");
    let (reserve, b) = parts(reserve);
    let (total, c) = parts(&estimate.weights_plus_assumed_reserve_gib);
    assert_eq!(c, a.max(b), "{estimate}");
    assert_eq!(weights * ten(c - a) + reserve * ten(c - b), total, "{estimate}");
}

fn check_configuration(options: &ConfigurationOptions) {
    let outcome = mesure_memoire::configuration(options).and_then(|config| config.check().map(|index| (index, config)));
    let expected = expected_configuration(options);
    match outcome {
        Ok((index, config)) => {
            assert_eq!(Some(index), device(&options.device));
            assert_eq!(Some(config), expected);
        }
        Err(error) => {
            assert!(matches!(error, LabError::InvalidArgument { .. }), "{error:?}");
            assert!(expected.is_none(), "refused: {expected:?}: {error}");
            assert_refused::<Estimate>(&Err(error));
        }
    }
}

/// Counters that never contradict each other, or a refusal of something that was entered.
fn check_simulation(options: &SimulateOptions) {
    check_configuration(&options.configuration);
    // A million rows take their time.
    if count(&options.configuration.repeats).is_some_and(|repeats| (1_000..=1_000_000).contains(&repeats)) {
        return;
    }
    let outcome = mesure_memoire::simulated(options);
    assert_shows(&outcome);
    match outcome {
        Err(error) => assert!(matches!(error, LabError::InvalidArgument { .. }), "{error:?}"),
        Ok(simulation) => {
            for row in &simulation.phases {
                assert!(row.peak_allocated_bytes <= row.peak_reserved_bytes, "{row:?}");
                assert!(
                    row.end_allocated_bytes.max(row.baseline_allocated_bytes) <= row.peak_allocated_bytes,
                    "{row:?}"
                );
                assert!(row.end_reserved_bytes.max(row.baseline_reserved_bytes) <= row.peak_reserved_bytes, "{row:?}");
            }
            assert_eq!(serde_json::from_str::<Simulation>(&simulation.to_string()).unwrap(), simulation);
        }
    }
}

fn expected_configuration(options: &ConfigurationOptions) -> Option<MeasureConfig> {
    let dtype = ["float32", "float16", "bfloat16"].iter().position(|name| *name == options.dtype)?;
    device(&options.device)?;
    let config = MeasureConfig {
        device: options.device.clone(),
        batch: count(&options.batch)?,
        context: count(&options.context)?,
        width: count(&options.width)?,
        dtype: [Dtype::Float32, Dtype::Float16, Dtype::Bfloat16][dtype],
        warmup: count(&options.warmup)?,
        repeats: count(&options.repeats)?,
        seed: number(&options.seed).filter(|seed| *seed < 1 << 63)?,
    };
    // libtorch counts bytes in signed 64 bits.
    let weights = BigUint::from(8u32) * config.width * (BigUint::from(config.width) + 1u32);
    let inputs = BigUint::from(4u32) * config.batch * config.context * config.width;
    (weights.bits() <= 63 && inputs.bits() <= 63).then_some(config)
}

fn check_quote(options: &calcul_forfaits::Options) {
    if options.results.is_some() || options.tarifs.is_some() || options.liste {
        return;
    }
    let list = PriceList::shipped().unwrap();
    let outcome = calcul_forfaits::quote(options, &list);
    let expected = expected_total(options, &list);
    assert_eq!(outcome.as_ref().ok().map(|quote| quote.total_price_cents), expected, "{outcome:?}");
    match &outcome {
        Ok(quote) => {
            let accepted = options.accepted_results.as_deref().and_then(count);
            assert_eq!(quote.accepted_results, accepted);
            assert_shows(&outcome);
        }
        Err(error) => {
            assert!(matches!(error, LabError::InvalidArgument { .. }), "{error:?}");
            assert_refused(&outcome);
        }
    }
}

/// Whole price; none where something is refused.
fn expected_total(options: &calcul_forfaits::Options, list: &PriceList) -> Option<u64> {
    let (days, lots) = (count(options.days.as_deref()?)?, count(&options.lots)?);
    if options.accepted_results.as_deref().is_some_and(|text| count(text).is_none()) {
        return None;
    }
    let is_asked = |offer: &&iteragpu_lab::Offer| Some(&offer.gpu) == options.gpu.as_ref() && offer.days == days;
    let offer = list.offers().iter().find(is_asked)?;
    u64::try_from(u128::from(offer.gpus_per_lot) * u128::from(lots)).ok()?;
    u64::try_from(u128::from(offer.lot_price_cents) * u128::from(lots)).ok()
}
