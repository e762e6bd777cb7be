//! The estimate against arbitrary-precision arithmetic, and its properties.

use iteragpu_lab::{Estimate, LabError, estimate_weights};
use num_bigint::BigUint;
use proptest::prelude::*;

/// A plain decimal as mantissa and number of fractional digits.
fn parts(decimal: &str) -> (BigUint, u32) {
    let (whole, fraction) = decimal.split_once('.').unwrap_or((decimal, ""));
    assert!(!whole.is_empty() && format!("{whole}{fraction}").bytes().all(|byte| byte.is_ascii_digit()), "{decimal}");
    (format!("{whole}{fraction}").parse().unwrap_or_default(), fraction.len() as u32)
}

fn ten(power: u32) -> BigUint {
    BigUint::from(10u32).pow(power)
}

/// Whether `decimal` GiB are exactly `bytes`.
fn is_exactly(decimal: &str, bytes: &BigUint) -> bool {
    let (mantissa, scale) = parts(decimal);
    mantissa << 30u32 == bytes * ten(scale)
}

fn estimate(parameters: u64, bits: u32, reserve: &str) -> Result<Estimate, TestCaseError> {
    estimate_weights(parameters, bits, reserve).map_err(|error| TestCaseError::fail(error.to_string()))
}

fn bits() -> impl Strategy<Value = u32> {
    prop::sample::select(vec![4u32, 8, 16, 32])
}

/// Small counts, counts around powers of two, and everything up to 2^64 - 1.
fn parameters() -> impl Strategy<Value = u64> {
    let near_power = (0u32..64, -2i64..=2).prop_map(|(power, step)| (1u64 << power).saturating_add_signed(step).max(1));
    prop_oneof![1u64..=100, near_power, 1u64..=u64::MAX, Just(u64::MAX)]
}

fn reserve() -> impl Strategy<Value = String> {
    prop_oneof!["(0|[1-9][0-9]{0,27})", "[1-9][0-9]{0,9}\\.[0-9]{1,18}", "0\\.[0-9]{1,28}"]
}

proptest! {
    #[test]
    fn bytes_and_gib_are_exact(parameters in parameters(), bits in bits()) {
        let estimate = estimate(parameters, bits, "0")?;
        let all_bits = BigUint::from(parameters) * bits;
        let bytes = (all_bits + 7u32) / 8u32;
        prop_assert_eq!(estimate.theoretical_weight_bytes.to_string(), bytes.to_string());
        prop_assert!(is_exactly(&estimate.theoretical_weight_gib, &bytes), "{}", estimate.theoretical_weight_gib);
        let gib = &estimate.theoretical_weight_gib;
        prop_assert!(!gib.contains('.') || !gib.ends_with('0'), "{} has a trailing zero", gib);
    }

    #[test]
    fn the_total_is_the_exact_sum_and_the_reserve_stays_as_written(
        parameters in parameters(), bits in bits(), reserve in reserve()
    ) {
        let estimate = estimate(parameters, bits, &reserve)?;
        prop_assert_eq!(&estimate.assumed_reserve_gib, &reserve);
        let [(weights, a), (assumed, b), (total, c)] =
            [&estimate.theoretical_weight_gib, &reserve, &estimate.weights_plus_assumed_reserve_gib].map(|text| parts(text));
        prop_assert_eq!(c, a.max(b));
        prop_assert_eq!(weights * ten(c - a) + assumed * ten(c - b), total);
    }

    #[test]
    fn more_parameters_never_take_less(first in parameters(), second in parameters(), bits in bits()) {
        let (few, many) = (first.min(second), first.max(second));
        let (few, many) = (estimate(few, bits, "0")?, estimate(many, bits, "0")?);
        prop_assert!(few.theoretical_weight_bytes <= many.theoretical_weight_bytes);
    }

    #[test]
    fn whole_bytes_add_up(first in 1u64..=u64::MAX / 4, second in 1u64..=u64::MAX / 4, bits in bits()) {
        // An even number of parameters fills whole bytes at every width.
        let (first, second) = (first * 2, second * 2);
        let bytes = |count| estimate(count, bits, "0").map(|estimate| estimate.theoretical_weight_bytes);
        prop_assert_eq!(bytes(first)? + bytes(second)?, bytes(first + second)?);
    }

    #[test]
    fn no_text_makes_the_reserve_panic(text in ".*") {
        let _ = estimate_weights(1, 4, &text);
    }
}

#[test]
fn no_parameters_are_refused() {
    let refused = estimate_weights(0, 8, "0");
    assert!(matches!(refused, Err(LabError::InvalidArgument { name, .. }) if name == "parameters"));
}

#[test]
fn other_widths_are_refused() {
    for bits in (0..=1024).chain([u32::MAX]) {
        let refused =
            matches!(estimate_weights(1, bits, "0"), Err(LabError::InvalidArgument { name, .. }) if name == "bits");
        assert_eq!(refused, ![4, 8, 16, 32].contains(&bits), "{bits}");
    }
}

/// Values computed with Python's `decimal` at a precision of 80 digits.
#[test]
fn known_values() -> Result<(), LabError> {
    let cases = [
        (1, 4, "0", "1", "0.000000000931322574615478515625", "0.000000000931322574615478515625"),
        (2, 4, "0", "1", "0.000000000931322574615478515625", "0.000000000931322574615478515625"),
        (3, 4, "0", "2", "0.00000000186264514923095703125", "0.00000000186264514923095703125"),
        (7_000_000_000, 16, "4", "14000000000", "13.03851604461669921875", "17.03851604461669921875"),
        (70_000_000_000, 16, "4.00", "140000000000", "130.3851604461669921875", "134.3851604461669921875"),
        (1 << 30, 8, "4.00", "1073741824", "1", "5.00"),
        (
            u64::MAX,
            32,
            "0.5",
            "73786976294838206460",
            "68719476735.9999999962747097015380859375",
            "68719476736.4999999962747097015380859375",
        ),
    ];
    for (parameters, bits, reserve, bytes, gib, total) in cases {
        let estimate = estimate_weights(parameters, bits, reserve)?;
        assert_eq!(estimate.theoretical_weight_bytes.to_string(), bytes);
        assert_eq!(estimate.theoretical_weight_gib, gib);
        assert_eq!(estimate.weights_plus_assumed_reserve_gib, total);
    }
    Ok(())
}
