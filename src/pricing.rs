//! `tarifs-forfaits.csv` -> the price of a fixed term. Cents are integers; a price is multiplied
//! whole, and only a division may be rounded, once, by a stated rule.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use chrono::NaiveDate;
use serde::{Deserialize, Serialize};

use crate::display::Present;
use crate::error::LabError;
use crate::json;
use crate::results::accepted_units;
use crate::table::{Row, Table};

/// The shipped price list, compiled in, so that the command works from any folder.
const SHIPPED: &str = include_str!("../tarifs-forfaits.csv");

/// Columns of a price list, in the order in which it is written.
pub const COLUMNS: &[&str] =
    &["gpu", "gpu_name", "gpus_per_lot", "days", "lot_price_cents", "currency", "snapshot_date", "source"];

/// One offer: a lot of one or more GPUs of one model, for a fixed term.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Short name of the GPU model, such as `b200`.
    pub gpu: String,
    /// Its full name.
    pub gpu_name: String,
    /// GPUs in one lot.
    pub gpus_per_lot: u64,
    /// Length of the term in days.
    pub days: u64,
    /// Price of one lot for the whole term, in cents.
    pub lot_price_cents: u64,
    /// Currency of the price, such as `USD`.
    pub currency: String,
    /// Date of the price list, `YYYY-MM-DD`.
    pub snapshot_date: String,
    /// Where the price comes from.
    pub source: String,
}

impl Offer {
    /// Price of one GPU for one day, in cents.
    pub fn gpu_day(&self) -> Quotient {
        Quotient::of(self.lot_price_cents, u128::from(self.gpus_per_lot) * u128::from(self.days))
    }
}

#[derive(Serialize)]
struct OfferWithGpuDay<'a> {
    #[serde(flatten)]
    offer: &'a Offer,
    price_per_gpu_day_cents: String,
    price_per_gpu_day_is_rounded: bool,
}

/// A checked price list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriceList {
    offers: Vec<Offer>,
}

impl PriceList {
    /// The list that this project ships.
    ///
    /// # Errors
    /// As [`PriceList::read`]; a test keeps the shipped list readable.
    pub fn shipped() -> Result<Self, LabError> {
        Self::read("tarifs-forfaits.csv", SHIPPED.as_bytes())
    }

    /// The list in a file, read in place of the shipped one.
    ///
    /// # Errors
    /// [`LabError::Unreadable`], or as [`PriceList::read`].
    pub fn open(path: &Path) -> Result<Self, LabError> {
        let name = path.to_string_lossy();
        let file = File::open(path).map_err(|error| LabError::unreadable(&name, error))?;
        Self::read(&name, file)
    }

    /// Reads a list: UTF-8 or Latin-1, separated by commas or semicolons, columns in any order.
    /// `name` is the file's name, for messages.
    ///
    /// # Errors
    /// [`LabError::InTable`] naming line and column of the first thing that is not accepted.
    pub fn read(name: &str, input: impl Read) -> Result<Self, LabError> {
        let mut table = Table::open(name, input, COLUMNS)?;
        let mut list = Self { offers: Vec::new() };
        let mut lines = HashMap::new();
        while let Some(row) = table.next_row()? {
            let offer = offer(&row)?;
            if let Some(line) = lines.insert((offer.gpu.clone(), offer.days), row.line()) {
                return Err(
                    row.refused(DAYS, &format!("une seule ligne par modèle et durée ; la ligne {line} les a déjà"))
                );
            }
            if list.offers.first().is_some_and(|first| first.currency != offer.currency) {
                return Err(row.refused(CURRENCY, "la même monnaie à chaque ligne"));
            }
            list.offers.push(offer);
        }
        if list.offers.is_empty() {
            return Err(LabError::in_table(name, 2, COLUMNS[0], "", "au moins une ligne de tarif".to_owned()));
        }
        Ok(list)
    }

    /// All offers, in the order of the file.
    pub fn offers(&self) -> &[Offer] {
        &self.offers
    }

    /// All offers, the cheapest per GPU and day first.
    pub fn by_price(&self) -> Vec<&Offer> {
        let mut offers: Vec<&Offer> = self.offers.iter().collect();
        offers.sort_by(|a, b| compare_gpu_days(a, b).then_with(|| (&a.gpu, a.days).cmp(&(&b.gpu, b.days))));
        offers
    }

    /// Names of the models whose price per GPU and day is the lowest.
    pub fn cheapest_models(&self) -> Vec<&str> {
        let offers = self.by_price();
        let first = offers.first().copied();
        let cheapest = |offer: &&&Offer| first.is_some_and(|first| compare_gpu_days(first, offer).is_eq());
        let mut models: Vec<&str> = offers.iter().take_while(cheapest).map(|offer| offer.gpu.as_str()).collect();
        models.dedup();
        models
    }

    /// All offers as JSON, each with the price of one GPU for one day.
    pub fn to_json(&self) -> String {
        let offers = self.offers.iter().map(|offer| {
            let per_day = offer.gpu_day();
            OfferWithGpuDay {
                offer,
                price_per_gpu_day_cents: per_day.text,
                price_per_gpu_day_is_rounded: per_day.is_rounded,
            }
        });
        json::Pretty(&offers.collect::<Vec<_>>()).to_string()
    }

    /// The offer of one model and one term.
    ///
    /// # Errors
    /// [`LabError::InvalidArgument`] for a model or a term that the list does not have, with the
    /// nearest names and what exists.
    pub fn offer(&self, gpu: &str, days: u64) -> Result<&Offer, LabError> {
        let of_model: Vec<&Offer> = self.offers.iter().filter(|offer| offer.gpu == gpu).collect();
        if of_model.is_empty() {
            return Err(LabError::invalid("gpu", gpu, self.known_models(gpu)));
        }
        of_model.iter().find(|offer| offer.days == days).copied().ok_or_else(|| {
            let terms: Vec<String> = of_model.iter().map(|offer| offer.days.to_string()).collect();
            LabError::invalid(
                "days",
                &days.to_string(),
                format!("une durée de la liste pour {gpu} : {} jours", terms.join(", ")),
            )
        })
    }

    fn known_models(&self, asked: &str) -> String {
        let mut models: Vec<&str> = self.offers.iter().map(|offer| offer.gpu.as_str()).collect();
        models.sort_unstable();
        models.dedup();
        let asked = asked.to_lowercase();
        let distance = |model: &str| match !asked.is_empty() && model.contains(&asked) {
            true => 0,
            false => strsim::damerau_levenshtein(&asked, model),
        };
        let mut near: Vec<(usize, &str)> = models.iter().map(|model| (distance(model), *model)).collect();
        // A short name has few letters to be wrong in.
        near.retain(|(distance, _)| *distance <= (asked.chars().count() / 3).clamp(1, 2));
        near.sort_unstable();
        let near: Vec<&str> = near.into_iter().take(3).map(|(_, model)| model).collect();
        let hint = match near[..] {
            _ if models.contains(&asked.as_str()) => format!(" (en minuscules : {asked})"),
            [] => String::new(),
            [only] => format!(" (le plus proche : {only})"),
            _ => format!(" (les plus proches : {})", near.join(", ")),
        };
        format!("un modèle de la liste : {}{hint}", models.join(", "))
    }

    /// Prices `lots` lots of one offer, and the cost of one of `accepted_results` when given.
    ///
    /// # Errors
    /// As [`PriceList::offer`]; also for zero lots, zero accepted results, and totals that do not
    /// fit in 64 bits.
    ///
    /// # Examples
    /// ```
    /// use iteragpu_lab::PriceList;
    ///
    /// let quote = PriceList::shipped()?.quote("b200", 7, 2, Some(1000))?;
    /// // A B200 lot holds two GPUs: two lots are four GPUs and twice the lot's price.
    /// assert_eq!(quote.total_gpus, 4);
    /// assert_eq!(quote.total_price_cents, 2 * quote.lot_price_cents);
    /// # Ok::<(), iteragpu_lab::LabError>(())
    /// ```
    pub fn quote(&self, gpu: &str, days: u64, lots: u64, accepted_results: Option<u64>) -> Result<Quote, LabError> {
        let offer = self.offer(gpu, days)?;
        let too_many = || {
            LabError::invalid(
                "lots",
                &lots.to_string(),
                "un nombre entier de lots, à partir de 1, dont le prix en centimes tienne sur 64 bits",
            )
        };
        if lots == 0 {
            return Err(too_many());
        }
        if accepted_results == Some(0) {
            return Err(LabError::invalid(
                "accepted_results",
                "0",
                "un nombre entier de résultats acceptés, à partir de 1",
            ));
        }
        let total_price_cents = offer.lot_price_cents.checked_mul(lots).ok_or_else(too_many)?;
        let total_gpus = offer.gpus_per_lot.checked_mul(lots).ok_or_else(too_many)?;
        let per_gpu = Quotient::of(offer.lot_price_cents, u128::from(offer.gpus_per_lot));
        let per_result = accepted_results.map(|accepted| Quotient::of(total_price_cents, u128::from(accepted)));
        Ok(Quote {
            kind: "arithmetic_only".to_owned(),
            gpu: offer.gpu.clone(),
            gpu_name: offer.gpu_name.clone(),
            days,
            lots,
            gpus_per_lot: offer.gpus_per_lot,
            total_gpus,
            lot_price_cents: offer.lot_price_cents,
            total_price_cents,
            price_per_gpu_cents: per_gpu.text,
            price_per_gpu_is_rounded: per_gpu.is_rounded,
            accepted_results,
            cost_per_accepted_result_is_rounded: per_result.as_ref().map(|cost| cost.is_rounded),
            cost_per_accepted_result_cents: per_result.map(|cost| cost.text),
            currency: offer.currency.clone(),
            snapshot_date: offer.snapshot_date.clone(),
            source: offer.source.clone(),
            scope: SCOPE.to_owned(),
        })
    }

    /// Prices `lots` lots of one offer, and the cost of one distinct accepted unit of a results file.
    ///
    /// # Errors
    /// As [`PriceList::quote`] and [`accepted_units`].
    pub fn quote_results(&self, gpu: &str, days: u64, lots: u64, results: &Path) -> Result<Quote, LabError> {
        self.quote(gpu, days, lots, Some(accepted_units(results)?.accepted_units))
    }
}

const SCOPE: &str = "Prix du forfait entier, selon la liste de tarifs indiquée, à sa date. \
     Ni disponibilité, ni réservation, ni conversion de monnaie, ni prorata horaire : le forfait est dû en entier. \
     Le coût unitaire divise le prix entier par le nombre de résultats distincts réellement acceptés ; \
     répéter un même essai n'en ajoute pas. Avant d'acheter, relisez l'offre telle qu'elle est affichée.";

const GPU: usize = 0;
const GPU_NAME: usize = 1;
const GPUS_PER_LOT: usize = 2;
const DAYS: usize = 3;
const LOT_PRICE_CENTS: usize = 4;
const CURRENCY: usize = 5;
const SNAPSHOT_DATE: usize = 6;
const SOURCE: usize = 7;

fn offer(row: &Row<'_>) -> Result<Offer, LabError> {
    let snapshot_date = row.filled(SNAPSHOT_DATE)?;
    if snapshot_date.len() != 10 || NaiveDate::parse_from_str(&snapshot_date, "%Y-%m-%d").is_err() {
        return Err(row.refused(SNAPSHOT_DATE, "une date écrite AAAA-MM-JJ"));
    }
    let currency = row.filled(CURRENCY)?;
    if currency.len() != 3 || !currency.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return Err(row.refused(CURRENCY, "un code de monnaie en trois capitales, comme USD ou EUR"));
    }
    Ok(Offer {
        gpu: row.filled(GPU)?,
        gpu_name: row.filled(GPU_NAME)?,
        gpus_per_lot: row.positive(GPUS_PER_LOT)?,
        days: row.positive(DAYS)?,
        lot_price_cents: row.positive(LOT_PRICE_CENTS)?,
        currency,
        snapshot_date,
        source: row.filled(SOURCE)?,
    })
}

/// The price of lots for a fixed term. `Display` prints it as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quote {
    /// Always `arithmetic_only`: neither simulated nor measured.
    pub kind: String,
    /// Short name of the GPU model.
    pub gpu: String,
    /// Its full name.
    pub gpu_name: String,
    /// Length of the term in days.
    pub days: u64,
    /// Number of lots.
    pub lots: u64,
    /// GPUs in one lot.
    pub gpus_per_lot: u64,
    /// GPUs in all lots.
    pub total_gpus: u64,
    /// Price of one lot for the whole term, in cents.
    pub lot_price_cents: u64,
    /// Price of all lots for the whole term, in cents.
    pub total_price_cents: u64,
    /// Lot price divided by its GPUs, for information: a single GPU of a lot is not sold.
    pub price_per_gpu_cents: String,
    /// Whether that division had to be rounded.
    pub price_per_gpu_is_rounded: bool,
    /// Accepted results, when given.
    pub accepted_results: Option<u64>,
    /// Whole price divided by the accepted results, in cents; `null` without them.
    pub cost_per_accepted_result_cents: Option<String>,
    /// Whether that division had to be rounded; `null` without it.
    pub cost_per_accepted_result_is_rounded: Option<bool>,
    /// Currency of all prices.
    pub currency: String,
    /// Date of the price list.
    pub snapshot_date: String,
    /// Where the price comes from.
    pub source: String,
    /// What this does and does not cover, in French.
    pub scope: String,
}

impl fmt::Display for Quote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", json::Pretty(self))
    }
}

/// The quotient of two integers as a decimal: exact when it ends within 28 significant digits,
/// else rounded half to even at the 28th.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quotient {
    /// Plain decimal with a point.
    pub text: String,
    /// Whether it had to be rounded.
    pub is_rounded: bool,
}

/// As many as `rust_decimal` holds without loss.
const SIGNIFICANT_DIGITS: usize = 28;

impl Quotient {
    /// Divides; `denominator` is not zero.
    fn of(numerator: u64, denominator: u128) -> Self {
        let denominator = denominator.max(1);
        let mut mantissa = u128::from(numerator) / denominator;
        let mut remainder = u128::from(numerator) % denominator;
        let mut scale = 0;
        while remainder != 0 && digits(mantissa) < SIGNIFICANT_DIGITS {
            let (digit, rest) = tenfold(remainder, denominator);
            mantissa = mantissa * 10 + digit;
            remainder = rest;
            scale += 1;
        }
        let half = remainder.cmp(&(denominator - remainder));
        if half.is_gt() || (half.is_eq() && mantissa % 2 == 1) {
            mantissa += 1;
        }
        Self { text: plain(mantissa, scale), is_rounded: remainder != 0 }
    }
}

/// Quotient and remainder of ten times `remainder`, a product that need not fit in 128 bits.
fn tenfold(remainder: u128, denominator: u128) -> (u128, u128) {
    let missing = denominator - remainder;
    (0..10).fold((0, 0), |(digit, sum), _| match sum.checked_sub(missing) {
        Some(rest) => (digit + 1, rest),
        None => (digit, sum + remainder),
    })
}

fn digits(number: u128) -> usize {
    number.checked_ilog10().map_or(0, |log| log as usize + 1)
}

fn plain(mantissa: u128, scale: usize) -> String {
    let padded = format!("{mantissa:0width$}", width = scale + 1);
    let (whole, fraction) = padded.split_at(padded.len() - scale);
    if fraction.is_empty() { whole.to_owned() } else { format!("{whole}.{fraction}") }
}

/// A price list as a table: one line an offer, the cheapest per GPU and day first.
impl fmt::Display for PriceList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.view().text().trim_end())
    }
}

/// Compares the prices of one GPU for one day, exactly: by products, not by quotients.
fn compare_gpu_days(a: &Offer, b: &Offer) -> std::cmp::Ordering {
    // A product of 192 bits, its upper 128 and its lower 64 bits.
    let whole = |offer: &Offer, other: &Offer| {
        let price = u128::from(offer.lot_price_cents);
        let gpu_days = u128::from(other.gpus_per_lot) * u128::from(other.days);
        let low = (gpu_days & u128::from(u64::MAX)) * price;
        ((gpu_days >> 64) * price + (low >> 64), low as u64)
    };
    whole(a, b).cmp(&whole(b, a))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_are_exact_or_rounded_half_to_even_at_28_digits() {
        let cases = [
            (10, 4, "2.5", false),
            (0, 7, "0", false),
            (6, 3, "2", false),
            (1, 3, "0.3333333333333333333333333333", true),
            (2, 3, "0.6666666666666666666666666667", true),
            (200, 3, "66.66666666666666666666666667", true),
            (1, 1 << 20, "0.00000095367431640625", false),
            (u64::MAX, 1, "18446744073709551615", false),
            (1, 1 << 30, "0.000000000931322574615478515625", false),
            // The 29th digit is a 5 and the last: to even, down and up (by Python's decimal).
            (1, 1 << 41, "0.0000000000004547473508864641189575195312", true),
            (3, 1 << 40, "0.000000000002728484105318784713745117188", true),
        ];
        for (numerator, denominator, text, is_rounded) in cases {
            assert_eq!(Quotient::of(numerator, denominator), Quotient { text: text.to_owned(), is_rounded });
        }
    }

    #[test]
    fn divisors_of_128_bits_are_no_other_case() {
        // By Python's decimal at 28 digits.
        let largest = Quotient::of(u64::MAX, u128::from(u64::MAX) * u128::from(u64::MAX));
        assert_eq!(largest.text, "0.00000000000000000005421010862427522170331137592");
        assert!(largest.is_rounded);
        assert_eq!(Quotient::of(1, 1 << 127).text.len(), 68);
        assert_eq!(tenfold(7, 8), (8, 6));
        assert_eq!(tenfold(u128::MAX - 1, u128::MAX), (9, u128::MAX - 10));
    }

    #[test]
    fn enormous_terms_are_sorted_exactly() -> Result<(), LabError> {
        let header = COLUMNS.join(",");
        let rows = (1..=40u64).map(|step| {
            let (days, cents) = (u64::MAX - step * step, step.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            format!("g{step},n,{},{days},{cents},USD,2026-11-30,s\n", if step % 3 == 0 { 1 } else { u64::MAX - step })
        });
        let list = PriceList::read("t.csv", format!("{header}\n{}", rows.collect::<String>()).as_bytes())?;
        let sorted = list.by_price();
        let per_day: Vec<f64> = sorted
            .iter()
            .map(|offer| offer.lot_price_cents as f64 / offer.gpus_per_lot as f64 / offer.days as f64)
            .collect();
        assert!(per_day.is_sorted_by(|one, other| *one <= other * (1.0 + 1e-12)), "{per_day:?}");
        assert_eq!(list.to_json().matches("price_per_gpu_day_cents").count(), 40);
        Ok(())
    }
}
