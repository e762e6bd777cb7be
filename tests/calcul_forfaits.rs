//! The price command as a person runs it, and prices against exact arithmetic by other means.
#![cfg(unix)]

mod common;

use std::fs;
use std::process::{Command, Output};

use iteragpu_lab::results::COLUMNS;
use iteragpu_lab::{LabError, Offer, PriceList};
use num_bigint::BigUint;
use proptest::prelude::*;
use serde_json::Value;

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn run(arguments: &[&str]) -> std::io::Result<Output> {
    // From another folder: the shipped list is compiled in.
    Command::new(env!("CARGO_BIN_EXE_calcul-forfaits")).args(arguments).current_dir("/").output()
}

fn json(arguments: &[&str]) -> Result<Value, Box<dyn std::error::Error>> {
    let output = run(arguments)?;
    assert_eq!(
        (output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()),
        (Some(0), ""),
        "{arguments:?}"
    );
    Ok(serde_json::from_slice(&output.stdout)?)
}

#[test]
fn two_lots_of_two_gpus_are_four_gpus_at_twice_the_lot_price() -> Outcome {
    let quote = json(&["--gpu", "b200", "--days", "7", "--lots", "2"])?;
    // 13.58 USD an hour x 24 x 7, by hand: 2281.44 USD.
    assert_eq!(quote["lot_price_cents"], 228_144);
    assert_eq!(quote["total_price_cents"], 456_288);
    assert_eq!((&quote["gpus_per_lot"], &quote["total_gpus"]), (&2.into(), &4.into()));
    assert_eq!(quote["price_per_gpu_cents"], "114072");
    for key in ["accepted_results", "cost_per_accepted_result_cents", "cost_per_accepted_result_is_rounded"] {
        assert_eq!(quote[key], Value::Null, "{key}");
    }
    for key in ["currency", "snapshot_date", "source", "scope"] {
        assert!(quote[key].as_str().is_some_and(|text| !text.is_empty()), "{key}");
    }
    Ok(())
}

#[test]
fn the_unit_cost_is_the_whole_price_over_the_accepted_results() -> Outcome {
    let base = ["--gpu", "b200", "--days", "7", "--lots", "2", "--accepted-results"];
    let exact = json(&[&base[..], &["1000"]].concat())?;
    assert_eq!(exact["cost_per_accepted_result_cents"], "456.288");
    assert_eq!(exact["cost_per_accepted_result_is_rounded"], false);
    let rounded = json(&[&base[..], &["7"]].concat())?;
    assert_eq!(rounded["cost_per_accepted_result_cents"], "65184");
    let rounded_third = json(&[&base[..], &["11"]].concat())?;
    // 456288 / 11, computed with Python's decimal at 28 digits, half even.
    assert_eq!(rounded_third["cost_per_accepted_result_cents"], "41480.72727272727272727272727");
    assert_eq!(rounded_third["cost_per_accepted_result_is_rounded"], true);
    Ok(())
}

#[test]
fn units_of_a_results_file_take_the_place_of_a_number() -> Outcome {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("r.csv");
    let row = format!("{}lettre,A,1400,1313,1.0,,\n", ",".repeat(29));
    // Twice the same set: a repetition adds no units.
    fs::write(&file, format!("{}\n{row}{row}", COLUMNS.join(",")))?;
    let quote = PriceList::shipped()?.quote_results("b200", 7, 2, &file)?;
    assert_eq!((quote.total_price_cents, quote.accepted_results), (456_288, Some(1313)));
    // 456288 / 1313, computed with Python's decimal at 28 digits.
    assert_eq!(quote.cost_per_accepted_result_cents.as_deref(), Some("347.5156130997715156130997715"));
    Ok(())
}

#[test]
fn refusals_name_the_option_and_what_exists() -> Outcome {
    let valid = ["--gpu", "b200", "--days", "7", "--lots", "2", "--accepted-results", "5"];
    let with = |option: &str, value: &'static str| {
        let mut arguments = valid.to_vec();
        let position = arguments.iter().position(|argument| *argument == option).unwrap_or(0);
        arguments[position + 1] = value;
        arguments
    };
    let cases = [
        ("--accepted-results", "0", "de 1 à"),
        ("--accepted-results", "-1", "de 1 à"),
        ("--accepted-results", "2.5", "en chiffres"),
        ("--accepted-results", "", "en chiffres"),
        ("--lots", "0", "de 1 à"),
        ("--lots", "18446744073709551615", "64 bits"),
        ("--days", "5", "3, 7, 30 jours"),
        ("--days", "7.5", "en chiffres"),
        ("--gpu", "b20", "le plus proche : b200"),
        ("--gpu", "B200", "en minuscules : b200"),
        ("--gpu", "a100", "les plus proches : a100-80gb"),
        ("--gpu", "a100-80xx", "le plus proche : a100-80gb"),
        ("--gpu", "tpu-v9", "v100.\n"),
        ("--gpu", "", "rtx-4090"),
    ];
    for (option, value, expected) in cases {
        let output = run(&with(option, value))?;
        let said = String::from_utf8(output.stderr)?;
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{option} {value}");
        assert!(said.starts_with(&format!("{option} : « {value} » refusé")) && said.contains(expected), "{said}");
    }
    for arguments in [
        &[] as &[&str],
        &["--gpu", "b200"],
        &["--json"],
        &["--liste", "--gpu", "b200"],
        &["--tarifs", "/nonexistent", "--liste"],
    ] {
        let output = run(arguments)?;
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{arguments:?}");
    }
    Ok(())
}

#[test]
fn the_list_is_sorted_aligned_and_complete() -> Outcome {
    let table = String::from_utf8(run(&["--liste"])?.stdout)?;
    let rows: Vec<&str> = table.lines().skip(3).take_while(|line| !line.is_empty()).collect();
    assert_eq!(rows.len(), 45);
    let first_width = rows[0].chars().count();
    assert!(rows.iter().all(|row| row.chars().count() == first_width), "{table}");
    assert!(rows[0].starts_with("v100 ") && rows[44].starts_with("b300 "), "{table}");

    let offers = json(&["--liste", "--json"])?;
    let offers = offers.as_array().ok_or("no array")?;
    assert_eq!(offers.len(), 45);
    let models: std::collections::BTreeSet<&str> = offers.iter().filter_map(|offer| offer["gpu"].as_str()).collect();
    assert_eq!(models.len(), 15);
    Ok(())
}

#[test]
fn another_price_list_replaces_the_shipped_one() -> Outcome {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("mes-tarifs.csv");
    let excel = "gpu;gpu_name;gpus_per_lot;days;lot_price_cents;currency;snapshot_date;source\r\n\
                 carte;Carte d'\u{e9}t\u{e9};2;10;1\u{a0}234\u{a0}567;EUR;2026-01-31;devis\r\n\r\n";
    let latin_1: Vec<u8> = excel.chars().map(|c| c as u32 as u8).collect();
    let marked = format!("\u{feff}{excel}");
    let narrow = excel.replace('\u{a0}', "\u{202f}");
    for bytes in [excel.as_bytes(), &latin_1, marked.as_bytes(), narrow.as_bytes(), excel.trim_end().as_bytes()] {
        fs::write(&file, bytes)?;
        let path = file.to_string_lossy().into_owned();
        let quote = json(&["--tarifs", &path, "--gpu", "carte", "--days", "10"])?;
        assert_eq!((&quote["lot_price_cents"], &quote["gpu_name"]), (&1_234_567.into(), &"Carte d'été".into()));
        assert_eq!(quote["currency"], "EUR");
    }
    Ok(())
}

const HEADER: &str = "gpu,gpu_name,gpus_per_lot,days,lot_price_cents,currency,snapshot_date,source";

#[test]
fn broken_price_lists_are_refused_with_their_line() {
    let bad = [
        ("a,A,1,3,100,USD,2026-01-31,s\na,A,1,3,200,USD,2026-01-31,s", "ligne 3, colonne days", "la ligne 2"),
        ("a,A,1,3,100,USD,2026-01-31,s\nb,B,1,3,200,EUR,2026-01-31,s", "ligne 3, colonne currency", "même monnaie"),
        ("a,A,0,3,100,USD,2026-01-31,s", "ligne 2, colonne gpus_per_lot", "positif"),
        ("a,A,1,-3,100,USD,2026-01-31,s", "ligne 2, colonne days", "positif"),
        ("a,A,1,0,100,USD,2026-01-31,s", "ligne 2, colonne days", "positif"),
        (",A,1,3,100,USD,2026-01-31,s", "ligne 2, colonne gpu :", "non vide"),
        ("a,,1,3,100,USD,2026-01-31,s", "ligne 2, colonne gpu_name", "non vide"),
        ("a,A,1,3,19.99,USD,2026-01-31,s", "ligne 2, colonne lot_price_cents", "sans décimales"),
        ("a,A,1,3,\"1\u{202f}049,99\",USD,2026-01-31,s", "ligne 2, colonne lot_price_cents", "sans décimales"),
        ("a,A,1,3,1\u{202f}049,99,USD,2026-01-31,s", "« 9 colonnes »", "8 colonnes séparées par « , »"),
        ("a;A;1;3;100;USD;2026-01-31;s", "« 1 colonnes »", "8 colonnes séparées par « , »"),
        ("a,A,1,3,1e3,USD,2026-01-31,s", "ligne 2, colonne lot_price_cents", "« 1e3 »"),
        ("a,A,1,3,-1,USD,2026-01-31,s", "ligne 2, colonne lot_price_cents", "« -1 »"),
        ("a,A,1,3,+5,USD,2026-01-31,s", "ligne 2, colonne lot_price_cents", "« +5 »"),
        ("a,A,1,3,.5,USD,2026-01-31,s", "ligne 2, colonne lot_price_cents", "« .5 »"),
        ("a,A,1,3,5.,USD,2026-01-31,s", "ligne 2, colonne lot_price_cents", "« 5. »"),
        ("a,A,1,3,0,USD,2026-01-31,s", "ligne 2, colonne lot_price_cents", "positif"),
        ("a,A,1,3,18446744073709551616,USD,2026-01-31,s", "ligne 2, colonne lot_price_cents", "18446744073709551615"),
        ("a,A,1,3,100,usd,2026-01-31,s", "ligne 2, colonne currency", "USD"),
        ("a,A,1,3,100,USDT,2026-01-31,s", "ligne 2, colonne currency", "trois capitales"),
        ("a,A,1,3,100,US$,2026-01-31,s", "ligne 2, colonne currency", "trois capitales"),
        ("a,A,1,3,100,USD,2026-1-31,s", "ligne 2, colonne snapshot_date", "AAAA-MM-JJ"),
        ("a,A,1,3,100,USD,31/01/2026,s", "ligne 2, colonne snapshot_date", "AAAA-MM-JJ"),
        ("a,A,1,3,100,USD,2026-02-30,s", "ligne 2, colonne snapshot_date", "AAAA-MM-JJ"),
        ("a,A,1,3,100,USD,2026-01-31,", "ligne 2, colonne source", "non vide"),
        (",,,,,,,", "ligne 2", ""),
        ("", "ligne 2", "au moins une ligne"),
    ];
    for (rows, place, expected) in bad {
        let read = PriceList::read("t.csv", format!("{HEADER}\n{rows}\n").as_bytes());
        let message = read.map(|_| ()).map_err(|error| error.to_string());
        assert!(
            message.as_ref().is_err_and(|text| text.contains(place) && text.contains(expected)),
            "{rows}: {message:?}"
        );
    }
}

#[test]
fn a_list_without_an_end_is_refused_before_it_fills_the_memory() -> Outcome {
    let mut command = common::in_little_memory(env!("CARGO_BIN_EXE_calcul-forfaits"));
    let refused = command.args(["--liste", "--tarifs", "/dev/zero"]).output()?;
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("/dev/zero, ligne 1, colonne toutes"), "{said}");
    Ok(())
}

fn list_with(cents: u64, gpus: u64) -> Result<PriceList, LabError> {
    PriceList::read("t.csv", format!("{HEADER}\ng,G,{gpus},1,{cents},USD,2026-01-31,s\n").as_bytes())
}

#[test]
fn a_gpu_day_is_the_lot_price_over_gpus_and_days() -> Outcome {
    let rows = "g,G,2,10,1234567,USD,2026-01-31,s\nh,H,3,7,100,USD,2026-01-31,s\n";
    let list = PriceList::read("t.csv", format!("{HEADER}\n{rows}").as_bytes())?;
    let shown: Value = serde_json::from_str(&list.to_json())?;
    // 1234567 / 20 and 100 / 21, computed with Python's decimal at 28 digits.
    let expected = [("61728.35", false), ("4.761904761904761904761904762", true)];
    assert_eq!(list.offers().len(), expected.len());
    for (place, (text, is_rounded)) in expected.into_iter().enumerate() {
        let per_day = list.offers()[place].gpu_day();
        assert_eq!((per_day.text.as_str(), per_day.is_rounded), (text, is_rounded));
        assert_eq!(shown[place]["price_per_gpu_day_cents"], text);
        assert_eq!(shown[place]["price_per_gpu_day_is_rounded"], is_rounded);
    }
    Ok(())
}

/// The commands refuse some of this before the library does.
#[test]
fn numbers_that_make_no_quote_are_refused_by_the_library_too() -> Outcome {
    let list = list_with(1, 1 << 63)?;
    assert_eq!(list.quote("g", 1, 1, Some(1))?.total_gpus, 1 << 63);
    let cases = [(0, None, "lots"), (2, None, "lots"), (u64::MAX, None, "lots"), (1, Some(0), "accepted_results")];
    for (lots, accepted, expected) in cases {
        let refused = list.quote("g", 1, lots, accepted);
        assert!(matches!(&refused, Err(LabError::InvalidArgument { name, .. }) if name == expected), "{refused:?}");
    }
    Ok(())
}

/// Compares a shown decimal with numerator / denominator: equal, or within half a unit of its last
/// digit and of 28 significant digits.
fn is_quotient(text: &str, is_rounded: bool, numerator: u64, denominator: u64) -> bool {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mantissa: BigUint = format!("{whole}{fraction}").parse().unwrap_or_default();
    let scale = BigUint::from(10u32).pow(fraction.len() as u32);
    let (shown, exact) = (mantissa.clone() * denominator, BigUint::from(numerator) * scale);
    if !is_rounded {
        return shown == exact;
    }
    let apart = if shown > exact { shown - &exact } else { exact - shown };
    let digits = mantissa.to_string().len();
    apart.clone() * 2u32 <= BigUint::from(denominator) && apart > BigUint::from(0u32) && (28..=29).contains(&digits)
}

/// Ends and middle of the 64 bits, so that products of three reach every size and come close to each other.
fn any_size() -> impl Strategy<Value = u64> {
    let around_32_bits = u64::from(u32::MAX) - 2..=u64::from(u32::MAX) + 2;
    prop_oneof![1..=4u64, around_32_bits, Just(1u64 << 63), u64::MAX - 2..=u64::MAX, 1..=u64::MAX]
}

proptest! {
    #[test]
    fn offers_stand_in_the_order_of_exact_products(offers in prop::collection::vec([any_size(), any_size(), any_size()], 1..12)) {
        let rows: String = (0..).zip(&offers).map(|(number, [cents, gpus, days])| {
            format!("g{number},G,{gpus},{days},{cents},USD,2026-01-31,s\n")
        }).collect();
        let list = PriceList::read("t.csv", format!("{HEADER}\n{rows}").as_bytes());
        let list = list.map_err(|error| TestCaseError::fail(error.to_string()))?;
        let sorted = list.by_price();
        // a / b <= c / d as a x d <= c x b.
        let product = |price: &Offer, term: &Offer| {
            BigUint::from(price.lot_price_cents) * term.gpus_per_lot * term.days
        };
        for pair in sorted.windows(2) {
            prop_assert!(product(pair[0], pair[1]) <= product(pair[1], pair[0]), "{pair:?}");
        }
        prop_assert_eq!(sorted.len(), offers.len());
        let is_cheapest = |offer: &&&Offer| product(sorted[0], offer) == product(offer, sorted[0]);
        let cheapest: Vec<&str> = sorted.iter().filter(is_cheapest).map(|offer| offer.gpu.as_str()).collect();
        prop_assert_eq!(list.cheapest_models(), cheapest);
    }

    #[test]
    fn totals_never_wrap_and_quotients_are_right(
        cents in 1u64..=u64::MAX, gpus in 1u64..=1000, lots in 1u64..=1_000_000, accepted in 1u64..=u64::MAX
    ) {
        let list = list_with(cents, gpus).map_err(|error| TestCaseError::fail(error.to_string()))?;
        match list.quote("g", 1, lots, Some(accepted)) {
            Ok(quote) => {
                prop_assert_eq!(u128::from(quote.total_price_cents), u128::from(cents) * u128::from(lots));
                let cost = quote.cost_per_accepted_result_cents.unwrap_or_default();
                let rounded = quote.cost_per_accepted_result_is_rounded == Some(true);
                prop_assert!(is_quotient(&cost, rounded, quote.total_price_cents, accepted), "{}", cost);
                prop_assert!(is_quotient(&quote.price_per_gpu_cents, quote.price_per_gpu_is_rounded, cents, gpus));
            }
            Err(_) => prop_assert!(u128::from(cents) * u128::from(lots) > u128::from(u64::MAX)),
        }
    }

    #[test]
    fn no_file_makes_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = PriceList::read("t.csv", bytes.as_slice());
        let _ = PriceList::read("t.csv", [HEADER.as_bytes(), b"\n", &bytes].concat().as_slice());
    }
}
