//! Text that people enter, turned into checked values. Nothing is guessed: an unusual spelling is
//! refused with the accepted form beside it.

use rust_decimal::Decimal;

use crate::error::LabError;
use crate::measure::MAX_DEVICE_PASSES;

/// A whole number from 1 to 18446744073709551615, written with digits only.
///
/// # Errors
/// [`LabError::InvalidArgument`] naming `name`, for anything else.
pub fn parse_count(name: &str, text: &str) -> Result<u64, LabError> {
    digits(text)
        .and_then(|digits| digits.parse().ok())
        .filter(|count| *count > 0)
        .ok_or_else(|| LabError::invalid(name, text, format!("un entier de 1 à {}, en chiffres seulement", u64::MAX)))
}

/// The memory of a GPU in bytes: no GPU has less than 1 MiB, but people count in GiB.
///
/// # Errors
/// [`LabError::InvalidArgument`] naming `name`, for anything else.
pub fn parse_memory(name: &str, text: &str) -> Result<u64, LabError> {
    const EXPECTED: &str =
        "un nombre d'octets d'au moins 1048576, en chiffres seulement, par exemple 25769803776 pour 24 Gio";
    let bytes = parse_count(name, text).ok().filter(|bytes| *bytes >= 1 << 20);
    bytes.ok_or_else(|| LabError::invalid(name, text, EXPECTED))
}

/// A seed: a whole number from 0 to 2^63 - 1.
///
/// # Errors
/// [`LabError::InvalidArgument`] naming `name`, for anything else.
pub fn parse_seed(name: &str, text: &str) -> Result<u64, LabError> {
    let seed = digits(text).and_then(|digits| digits.parse().ok());
    seed.filter(|seed| *seed <= MAX_SEED)
        .ok_or_else(|| LabError::invalid(name, text, format!("un entier de 0 à {MAX_SEED}, en chiffres seulement")))
}

/// Largest accepted seed, 2^63 - 1.
pub const MAX_SEED: u64 = (1 << 63) - 1;

/// A number of passes for the device's own time, from 1 to [`MAX_DEVICE_PASSES`].
///
/// # Errors
/// [`LabError::InvalidArgument`] naming `name`, for anything else.
pub fn parse_device_passes(name: &str, text: &str) -> Result<u64, LabError> {
    let passes = digits(text).and_then(|digits| digits.parse().ok());
    passes
        .filter(|passes| (1..=MAX_DEVICE_PASSES).contains(passes))
        .ok_or_else(|| LabError::invalid(name, text, format!("un entier de 1 à {MAX_DEVICE_PASSES}")))
}

/// A storage width in bits: 4, 8, 16 or 32.
///
/// # Errors
/// [`LabError::InvalidArgument`] naming `name`, for anything else.
pub fn parse_bits(name: &str, text: &str) -> Result<u32, LabError> {
    match text {
        "4" => Ok(4),
        "8" => Ok(8),
        "16" => Ok(16),
        "32" => Ok(32),
        _ => Err(LabError::invalid(name, text, "4, 8, 16 ou 32")),
    }
}

/// A finite decimal of at least 0 and at most 28 digits, with a point; trailing zeros are kept.
///
/// # Errors
/// [`LabError::InvalidArgument`] naming `name`, for anything else. A decimal comma is answered
/// with the advice to use a point.
pub fn parse_decimal(name: &str, text: &str) -> Result<Decimal, LabError> {
    const EXPECTED: &str = "un nombre décimal fini, positif ou nul, d'au plus 28 chiffres, par exemple 4 ou 4.5";
    let refused = || {
        let hint = if text.contains(',') { " (le séparateur décimal est le point, pas la virgule)" } else { "" };
        LabError::invalid(name, text, format!("{EXPECTED}{hint}"))
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    // Zeros before other digits would not stay as written.
    let padded = whole.len() > 1 && whole.starts_with('0');
    if padded || digits(whole).is_none() || digits(fraction).is_none() {
        return Err(refused());
    }
    let written = text.trim_start_matches('0').bytes().filter(u8::is_ascii_digit).count();
    if written > 28 {
        return Err(refused());
    }
    Decimal::from_str_exact(text).map_err(|_| refused())
}

/// Index of the one chosen GPU: `cuda:0`, `cuda:1`, …
///
/// # Errors
/// [`LabError::InvalidArgument`] naming `name`, for any other spelling.
pub fn parse_device(name: &str, text: &str) -> Result<u32, LabError> {
    let index = text.strip_prefix("cuda:").and_then(digits);
    let index = index.filter(|digits| *digits == "0" || !digits.starts_with('0'));
    index.and_then(|digits| digits.parse().ok()).ok_or_else(|| {
        LabError::invalid(name, text, "un seul GPU, écrit cuda:0, cuda:1, etc. ; le CPU n'est pas mesuré")
    })
}

/// `text` when it is one or more ASCII digits and nothing else.
fn digits(text: &str) -> Option<&str> {
    is_digits(text).then_some(text)
}

pub(crate) fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts() {
        assert_eq!(parse_count("n", "1").ok(), Some(1));
        assert_eq!(parse_count("n", "18446744073709551615").ok(), Some(u64::MAX));
        for bad in ["", "0", "-1", "+1", "1.0", "1e3", "2_5", " 1", "١", "18446744073709551616", "NaN"] {
            let message = parse_count("n", bad).map_err(|error| error.to_string());
            assert!(message.is_err_and(|text| text.contains(bad.trim()) && text.starts_with("n :")), "{bad:?}");
        }
    }

    #[test]
    fn seeds() {
        assert_eq!(parse_seed("seed", "0").ok(), Some(0));
        assert_eq!(parse_seed("seed", "9223372036854775807").ok(), Some(MAX_SEED));
        for bad in ["", "-1", "9223372036854775808"] {
            assert!(parse_seed("seed", bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn decimals_keep_their_zeros() {
        for good in ["0", "4", "4.00", "0.10", "9999999999999999999999999999", "0.9999999999999999999999999999"] {
            assert_eq!(parse_decimal("r", good).map(|value| value.to_string()).ok().as_deref(), Some(good));
        }
        for bad in [
            "",
            "-1",
            "-0",
            "+1",
            ".5",
            "5.",
            "1e3",
            "NaN",
            "inf",
            "Infinity",
            "2_5",
            "4,5",
            "1.2.3",
            " 4",
            "0x10",
            "10000000000000000000000000000",
            "0.00000000000000000000000000001",
            "007.50",
            "00",
        ] {
            assert!(parse_decimal("r", bad).is_err(), "{bad:?}");
        }
        let comma = parse_decimal("r", "4,5").map_err(|error| error.to_string());
        assert!(comma.is_err_and(|text| text.contains("point")));
    }

    #[test]
    fn devices() {
        assert_eq!(parse_device("device", "cuda:0").ok(), Some(0));
        assert_eq!(parse_device("device", "cuda:12").ok(), Some(12));
        for bad in [
            "",
            "cuda",
            "cuda:",
            "cuda:-1",
            "cuda:+1",
            "CUDA:0",
            "cuda:0 cuda:1",
            "cuda:00",
            "cuda:01",
            "cuda:0\n",
            "cuda:99999999999999999999",
            "cpu",
            "cuda:0,1",
            "cuda:٠",
        ] {
            let message = parse_device("device", bad).map_err(|error| error.to_string());
            assert!(message.is_err_and(|text| text.contains("cuda:0, cuda:1")), "{bad:?}");
        }
    }

    #[test]
    fn bit_widths() {
        assert_eq!(
            [4, 8, 16, 32].map(|bits: u32| parse_bits("b", &bits.to_string()).ok()),
            [Some(4), Some(8), Some(16), Some(32)]
        );
        for bad in ["", "0", "5", "64", "-8", "016", "16.0"] {
            assert!(parse_bits("b", bad).is_err(), "{bad:?}");
        }
    }
}
