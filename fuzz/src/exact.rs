//! Decimals as text against integers of any size.

use num_bigint::BigUint;

/// A plain decimal as mantissa and number of fractional digits.
pub fn parts(decimal: &str) -> (BigUint, u32) {
    let (whole, fraction) = decimal.split_once('.').unwrap_or((decimal, ""));
    let digits = format!("{whole}{fraction}");
    assert!(!whole.is_empty() && is_digits(&digits) && !decimal.ends_with('.'), "no plain decimal: {decimal}");
    (digits.parse().unwrap(), fraction.len() as u32)
}

pub fn ten(power: u32) -> BigUint {
    BigUint::from(10u32).pow(power)
}

pub fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A quotient is exact, or the nearest of 28 significant digits and said to be rounded.
pub fn assert_quotient(text: &str, is_rounded: bool, numerator: u64, denominator: &BigUint) {
    let (mantissa, scale) = parts(text);
    let (found, wanted) = (&mantissa * denominator, BigUint::from(numerator) * ten(scale));
    assert_eq!(found != wanted, is_rounded, "{numerator} / {denominator} = {text}, rounded: {is_rounded}");
    if !is_rounded {
        return;
    }
    assert!(mantissa >= ten(27) && mantissa <= ten(28), "{text} has another number of digits than 28");
    let error = if found > wanted { &found - &wanted } else { &wanted - &found } * 2u32;
    let to_even = !mantissa.bit(0);
    assert!(error < *denominator || (error == *denominator && to_even), "{numerator} / {denominator} is not {text}");
}
