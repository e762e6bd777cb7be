//! Computes `tarifs-forfaits.csv` from public hourly prices: hourly price x 24 x days, multiplied
//! exactly, rounded once to the cent, half up, without discount.

use std::fs;
use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use iteragpu_lab::pricing;
use iteragpu_lab::temporary::Temporary;
use rust_decimal::prelude::ToPrimitive;
use rust_decimal::{Decimal, RoundingStrategy};
use serde::Deserialize;

use crate::workspace;

#[derive(Args)]
pub struct TariffsArgs {
    /// N'écrit rien, échoue si le fichier diffère de ce qui serait écrit
    #[arg(long)]
    check: bool,
}

const TERMS_IN_DAYS: [u32; 3] = [3, 7, 30];

/// The day on which the list was computed. The hourly prices are those of the catalogue's commit,
/// which the source column names.
const COMPUTED_ON: &str = "2026-11-30";

#[derive(Deserialize)]
struct HourlyPrice {
    gpu_key: String,
    gpu_name: String,
    gpus_per_instance: u64,
    hourly_price_usd_per_instance: Decimal,
    provider: String,
    instance_type: String,
    source_path: String,
    source_commit: String,
}

pub fn run(arguments: &TariffsArgs) -> anyhow::Result<ExitCode> {
    let hourly = workspace::root().join("docs/tarifs/prix-horaires.csv");
    let hourly = fs::read_to_string(hourly).context("docs/tarifs/prix-horaires.csv")?;
    let computed = price_list(&hourly)?;
    let file = workspace::root().join("tarifs-forfaits.csv");
    if !arguments.check {
        let mut list = Temporary::beside(&file)?;
        list.write_all(computed.as_bytes())?;
        list.replace(&file)?;
    } else if fs::read_to_string(&file).context("tarifs-forfaits.csv")? != computed {
        bail!("tarifs-forfaits.csv diffère de ce que donnent les prix horaires ; « cargo xtask tariffs » le recalcule");
    }
    Ok(ExitCode::SUCCESS)
}

fn price_list(hourly: &str) -> anyhow::Result<String> {
    let mut list = csv::Writer::from_writer(Vec::new());
    list.write_record(pricing::COLUMNS)?;
    for price in csv::Reader::from_reader(hourly.as_bytes()).deserialize() {
        let price: HourlyPrice = price?;
        for days in TERMS_IN_DAYS {
            let cents = lot_price_cents(price.hourly_price_usd_per_instance, days)?;
            let source = format!(
                "{} {}: {} USD/h x 24 x {days} (skypilot-catalog {} {})",
                price.provider,
                price.instance_type,
                price.hourly_price_usd_per_instance,
                price.source_path,
                &price.source_commit[..12]
            );
            list.write_record([
                &price.gpu_key,
                &price.gpu_name,
                &price.gpus_per_instance.to_string(),
                &days.to_string(),
                &cents.to_string(),
                "USD",
                COMPUTED_ON,
                &source,
            ])?;
        }
    }
    Ok(String::from_utf8(list.into_inner()?)?)
}

fn lot_price_cents(hourly_price: Decimal, days: u32) -> anyhow::Result<u64> {
    let exact = hourly_price.checked_mul(Decimal::from(24 * 100)).and_then(|cents| cents.checked_mul(days.into()));
    let cents = exact.map(|cents| cents.round_dp_with_strategy(0, RoundingStrategy::MidpointAwayFromZero));
    cents.and_then(|cents| cents.to_u64()).context("prix horaire hors limites")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_list_is_the_computed_one() -> anyhow::Result<()> {
        run(&TariffsArgs { check: true }).map(drop)
    }

    #[test]
    fn a_planted_price_is_seen() -> anyhow::Result<()> {
        let hourly = fs::read_to_string(workspace::root().join("docs/tarifs/prix-horaires.csv"))?;
        let shipped = fs::read_to_string(workspace::root().join("tarifs-forfaits.csv"))?;
        assert_eq!(price_list(&hourly)?, shipped);
        assert_ne!(price_list(&hourly.replace("13.58", "13.59"))?, shipped);
        Ok(())
    }

    #[test]
    fn multiplied_exactly_then_rounded_once() -> anyhow::Result<()> {
        // Rounding the day's price first would give 10080 or 9930.
        assert_eq!(lot_price_cents(Decimal::new(1381, 4), 30)?, 9943);
        assert_eq!(lot_price_cents(Decimal::new(1358, 2), 7)?, 228_144);
        // A half cent goes up: 0.00625 x 24 x 3 = 0.45, and 0.000625 x 24 x 3 = 0.045.
        assert_eq!(lot_price_cents(Decimal::new(625, 6), 3)?, 5);
        Ok(())
    }
}
