//! Parameters x bits -> exact bytes and exact GiB. Arithmetic only: nothing here looks at a GPU.

use std::fmt;

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use crate::arguments::parse_decimal;
use crate::error::LabError;
use crate::json;

/// Bytes that the weights of a model take, by arithmetic alone. `Display` prints it as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Estimate {
    /// Always `arithmetic_only`: neither simulated nor measured.
    pub kind: String,
    /// Number of parameters.
    pub parameters: u64,
    /// Storage width of one parameter, in bits.
    pub bits_per_parameter: u32,
    /// Bytes of all weights: all bits together, rounded up once to whole bytes.
    pub theoretical_weight_bytes: u128,
    /// The same in GiB (2^30 bytes), exact to the last digit.
    pub theoretical_weight_gib: String,
    /// The reserve that the caller assumed, in GiB, as written.
    pub assumed_reserve_gib: String,
    /// Exact sum of the two, in GiB.
    pub weights_plus_assumed_reserve_gib: String,
    /// What this does and does not cover, in French.
    pub scope: String,
}

const SCOPE: &str = "Stockage des poids seul, calculé puis arrondi une fois à l'octet supérieur ; aucun pic n'a été mesuré. \
     Non compris : métadonnées de quantification, activations, cache KV, gradients, états de l'optimiseur, bibliothèques. \
     La réserve est une hypothèse de la personne qui calcule ; elle ne garantit pas qu'un modèle tienne sur un GPU.";

/// Computes the bytes of `parameters` weights of `bits` bits each, and adds a reserve in GiB.
///
/// `bits` is 4, 8, 16 or 32. `reserve_gib` is a finite decimal of at least 0 and at most 28
/// digits, kept as written. 1 GiB is 2^30 bytes.
///
/// # Errors
/// [`LabError::InvalidArgument`] names the argument, the value found and what is accepted.
///
/// # Examples
/// ```
/// let estimate = iteragpu_lab::estimate_weights(7_000_000_000, 16, "4")?;
/// assert_eq!(estimate.theoretical_weight_bytes, 14_000_000_000);
/// assert_eq!(estimate.theoretical_weight_gib, "13.03851604461669921875");
/// assert_eq!(estimate.weights_plus_assumed_reserve_gib, "17.03851604461669921875");
/// # Ok::<(), iteragpu_lab::LabError>(())
/// ```
pub fn estimate_weights(parameters: u64, bits: u32, reserve_gib: &str) -> Result<Estimate, LabError> {
    if parameters == 0 {
        return Err(LabError::invalid("parameters", "0", format!("un entier de 1 à {}", u64::MAX)));
    }
    if ![4, 8, 16, 32].contains(&bits) {
        return Err(LabError::invalid("bits", &bits.to_string(), "4, 8, 16 ou 32"));
    }
    let reserve = parse_decimal("reserve_gib", reserve_gib)?;
    let bytes = (u128::from(parameters) * u128::from(bits)).div_ceil(8);
    let weights = Gib::from_bytes(bytes);
    Ok(Estimate {
        kind: "arithmetic_only".to_owned(),
        parameters,
        bits_per_parameter: bits,
        theoretical_weight_bytes: bytes,
        theoretical_weight_gib: weights.to_string(),
        assumed_reserve_gib: reserve.to_string(),
        weights_plus_assumed_reserve_gib: weights.plus(reserve).to_string(),
        scope: SCOPE.to_owned(),
    })
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", json::Pretty(self))
    }
}

/// Exact GiB as a decimal with point. A byte is 2^-30 GiB, so 30 fractional digits hold every
/// count of bytes exactly; `rust_decimal` (28 digits) would have to round.
#[derive(Clone, Copy)]
struct Gib {
    whole: u128,
    /// Fraction in units of 10^-30, below [`Gib::UNIT`].
    fraction: u128,
    /// Fractional digits to show.
    scale: u32,
}

impl Gib {
    const DIGITS: u32 = 30;
    const UNIT: u128 = 10u128.pow(Self::DIGITS);

    fn from_bytes(bytes: u128) -> Self {
        // 2^30 x 5^30 = 10^30: multiplying the remainder by 5^30 turns 2^-30 into 10^-30.
        let fraction = (bytes & ((1 << 30) - 1)) * 5u128.pow(30);
        let trailing_zeros =
            (0..Self::DIGITS).take_while(|zeros| fraction.is_multiple_of(10u128.pow(zeros + 1))).count();
        Self { whole: bytes >> 30, fraction, scale: Self::DIGITS - trailing_zeros as u32 }
    }

    /// The exact sum, with as many fractional digits as the longer of the two.
    fn plus(self, reserve: Decimal) -> Self {
        let unit = 10u128.pow(reserve.scale());
        let mantissa = reserve.mantissa().unsigned_abs();
        let fraction = self.fraction + mantissa % unit * 10u128.pow(Self::DIGITS - reserve.scale());
        Self {
            whole: self.whole + mantissa / unit + fraction / Self::UNIT,
            fraction: fraction % Self::UNIT,
            scale: self.scale.max(reserve.scale()),
        }
    }
}

impl fmt::Display for Gib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.scale == 0 {
            return write!(f, "{}", self.whole);
        }
        let shown = self.fraction / 10u128.pow(Self::DIGITS - self.scale);
        write!(f, "{}.{shown:0width$}", self.whole, width = self.scale as usize)
    }
}
