//! Numbers as a French reader expects them: thin spaces between thousands, a decimal comma.

/// U+202F, the narrow space that does not break.
const THIN: char = '\u{202f}';

/// `34644992` becomes `34 644 992`.
pub fn integer(number: impl Into<u128>) -> String {
    grouped(&number.into().to_string())
}

/// A number and what it counts.
#[cfg(feature = "explore")]
pub fn counted(number: u64, one: &str, several: &str) -> String {
    format!("{} {}", integer(number), if number < 2 { one } else { several })
}

/// A difference with its sign; `−` is U+2212, as long as `+`.
pub fn signed(number: i128) -> String {
    let sign = match number {
        0 => "",
        1.. => "+",
        _ => "−",
    };
    sign.to_owned() + &integer(number.unsigned_abs())
}

/// A plain decimal with a point, every digit kept.
pub fn decimal(text: &str) -> String {
    match text.split_once('.') {
        Some((whole, fraction)) => format!("{},{fraction}", grouped(whole)),
        None => grouped(text),
    }
}

/// Bytes in GiB, rounded half up to six decimals, which is said where it is shown.
pub fn rounded_gib(bytes: impl Into<u128>) -> String {
    const DECIMALS: u128 = 1_000_000;
    let bytes = bytes.into();
    let (whole, rest) = (bytes >> 30, bytes & ((1 << 30) - 1));
    let millionths = (rest * DECIMALS + (1 << 29)) >> 30;
    let (whole, millionths) = (whole + millionths / DECIMALS, millionths % DECIMALS);
    if bytes > 0 && whole == 0 && millionths == 0 {
        return "< 0,000001".to_owned();
    }
    format!("{},{millionths:06}", integer(whole))
}

/// Seconds as milliseconds, to the nearest microsecond.
pub fn milliseconds(seconds: f64) -> String {
    let milliseconds = seconds * 1000.0;
    // Beyond what a float holds, the digits of the seconds are moved instead.
    let text = if milliseconds.is_finite() { format!("{milliseconds:.3}") } else { format!("{seconds:.0}000.000") };
    decimal(&text)
}

/// Seconds as microseconds, to the nearest hundredth: finer than the clock of a device.
pub fn microseconds(seconds: f64) -> String {
    let microseconds = seconds * 1e6;
    let text = if microseconds.is_finite() { format!("{microseconds:.2}") } else { format!("{seconds:.0}000000.00") };
    decimal(&text)
}

/// A quotient of times to the nearest thousandth, and never a false zero.
pub fn ratio(quotient: f64) -> String {
    if quotient > 0.0 && quotient < 0.0005 {
        return "< 0,001".to_owned();
    }
    decimal(&format!("{quotient:.3}"))
}

pub fn grouped(digits: &str) -> String {
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(THIN);
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped_with_narrow_spaces() {
        assert_eq!(
            [0_u64, 999, 1000, 34_644_992].map(integer),
            ["0", "999", "1\u{202f}000", "34\u{202f}644\u{202f}992"]
        );
        assert_eq!(decimal("1234.50000"), "1\u{202f}234,50000");
        assert_eq!(decimal("456"), "456");
        assert_eq!([0, 512, -2048].map(signed), ["0", "+512", "−2\u{202f}048"]);
        assert_eq!(signed(i128::MIN), format!("−{}", integer(1_u128 << 127)));
    }

    #[test]
    fn gib_are_rounded_once_and_never_to_a_false_zero() {
        // By Python's fractions: 34644992 / 2**30 = 0.032265663…, 37888 / 2**30 = 0.0000352859…
        assert_eq!(rounded_gib(34_644_992_u64), "0,032266");
        assert_eq!(rounded_gib(37_888_u64), "0,000035");
        assert_eq!(rounded_gib(512_u64), "< 0,000001");
        assert_eq!(rounded_gib(0_u64), "0,000000");
        assert_eq!(rounded_gib((1_u64 << 30) - 1), "1,000000");
        assert_eq!(rounded_gib(u128::from(u64::MAX)), "17\u{202f}179\u{202f}869\u{202f}184,000000");
    }

    #[test]
    fn short_times_are_microseconds() {
        assert_eq!([0.000_006_912, 0.0, 0.043_2].map(microseconds), ["6,91", "0,00", "43\u{202f}200,00"]);
        assert!(microseconds(f64::MAX).ends_with("000,00"));
    }

    #[test]
    fn ratios_are_rounded_to_no_false_zero() {
        let cases = [0.0, 0.000_499, 0.000_5, 0.999_6, 1.0, 12_345.678_9];
        assert_eq!(cases.map(ratio), ["0,000", "< 0,001", "0,001", "1,000", "1,000", "12\u{202f}345,679"]);
    }

    #[test]
    fn times_are_milliseconds() {
        assert_eq!(
            [0.074_707_378, 0.000_029_1, 0.0, 61.5].map(milliseconds),
            ["74,707", "0,029", "0,000", "61\u{202f}500,000"]
        );
        assert!(
            milliseconds(f64::MAX).starts_with("179\u{202f}769\u{202f}313")
                && milliseconds(f64::MAX).ends_with("\u{202f}000,000")
        );
    }
}
