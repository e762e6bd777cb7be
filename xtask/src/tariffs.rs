//! Computes `tarifs-forfaits.csv` from public hourly prices: hourly price x 24 x days, multiplied
//! exactly, rounded once to the cent, half up, without discount.

use std::fs;
use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use iteragpu_lab::arguments::parse_decimal;
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
    /// As written: a number would be read through a float.
    hourly_price_usd_per_instance: String,
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
        let hourly_price = parse_decimal("hourly_price_usd_per_instance", &price.hourly_price_usd_per_instance)?;
        for days in TERMS_IN_DAYS {
            let cents = lot_price_cents(hourly_price, days)?;
            let source = format!(
                "{} {}: {} USD/h x 24 x {days} (skypilot-catalog {} {})",
                price.provider,
                price.instance_type,
                hourly_price,
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
    /// The list computed from hourly prices as they are written in the file.
    fn list_of(hourly_prices: &[String]) -> anyhow::Result<pricing::PriceList> {
        let mut hourly = String::from(
            "gpu_key,gpu_name,gpus_per_instance,hourly_price_usd_per_instance,provider,instance_type,source_path,source_commit\n",
        );
        for (place, price) in hourly_prices.iter().enumerate() {
            hourly += &format!("g{place},G,1,{price},p,i,s,0123456789abcdef\n");
        }
        Ok(pricing::PriceList::read("t.csv", price_list(&hourly)?.as_bytes())?)
    }

    #[test]
    fn every_price_from_one_cent_to_a_hundred_units_is_exact() -> anyhow::Result<()> {
        let written: Vec<String> = (1..=10_000).map(|cents| format!("{}.{:02}", cents / 100, cents % 100)).collect();
        let computed: Vec<u64> = list_of(&written)?.offers().iter().map(|offer| offer.lot_price_cents).collect();
        let expected = (1..=10_000u64).flat_map(|cents| TERMS_IN_DAYS.map(|days| cents * 24 * u64::from(days)));
        assert_eq!(computed, expected.collect::<Vec<_>>());
        Ok(())
    }

    #[test]
    fn an_hourly_price_is_the_written_one() -> anyhow::Result<()> {
        // Through a float, the last zero of one and the last digit of another would be lost.
        for text in ["13.50", "0.1381", "1.00000000000000000001"] {
            let source = list_of(&[text.to_owned()])?.offers()[0].source.clone();
            assert!(source.contains(&format!(": {text} USD/h")), "{source}");
        }
        for bad in ["1e3", "-1", "+5", ".5", "5.", "", "NaN", "\"1,5\"", "\"1 049,99\"", "0"] {
            assert!(list_of(&[bad.to_owned()]).is_err(), "{bad}");
        }
        Ok(())
    }
}
