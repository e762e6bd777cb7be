//! A price list of any bytes: refused with its line, or priced exactly.

use iteragpu_lab::pricing::COLUMNS;
use iteragpu_lab::{LabError, Offer, PriceList, Quote};
use num_bigint::BigUint;
use serde_json::Value;

use crate::exact::assert_quotient;
use crate::inert::{assert_refused, assert_shows};

/// Offers that are priced; more add time and no other arithmetic.
const PRICED: usize = 3;

pub fn check(data: &[u8]) {
    let outcome = PriceList::read("tarifs.csv", data);
    let list = match &outcome {
        Ok(list) => list,
        Err(error) => {
            assert!(matches!(error, LabError::InTable { line: 1.., .. }), "{error:?}");
            return assert_refused(&outcome);
        }
    };
    assert_offers(list);
    assert_order(list);
    assert_json(list);
    assert_eq!(PriceList::read("again.csv", written(list).as_slice()).unwrap(), *list);
    assert_shows(&outcome);
    for offer in list.offers().iter().take(PRICED) {
        for lots in [1, 2, 3, data.len() as u64, u64::MAX / offer.lot_price_cents, u64::MAX] {
            assert_priced(list, offer, lots, None);
            assert_priced(list, offer, lots, Some(lots | 1));
        }
        assert_unpriced(list, offer);
    }
}

fn gpu_days(offer: &Offer) -> BigUint {
    BigUint::from(offer.gpus_per_lot) * offer.days
}

fn assert_offers(list: &PriceList) {
    let offers = list.offers();
    assert!(!offers.is_empty());
    for (position, offer) in offers.iter().enumerate() {
        assert!(offer.gpus_per_lot > 0 && offer.days > 0 && offer.lot_price_cents > 0, "{offer:?}");
        // Wrong, but not about any offer of the corpus.
        assert!(cfg!(not(feature = "planted")) || offer.source.is_ascii(), "planted: {offer:?}");
        for text in [&offer.gpu, &offer.gpu_name, &offer.source, &offer.currency] {
            assert!(!text.is_empty() && text.trim() == text, "{offer:?}");
        }
        assert_eq!(offer.currency, offers[0].currency);
        let same = |other: &Offer| (&other.gpu, other.days) == (&offer.gpu, offer.days);
        assert!(!offers[..position].iter().any(same), "twice: {offer:?}");
    }
}

/// The cheapest per GPU and day first, by exact products.
fn assert_order(list: &PriceList) {
    let sorted = list.by_price();
    assert_eq!(sorted.len(), list.offers().len());
    for pair in sorted.windows(2) {
        let (one, other) = (gpu_days(pair[1]) * pair[0].lot_price_cents, gpu_days(pair[0]) * pair[1].lot_price_cents);
        assert!(one <= other, "not in order: {pair:?}");
        assert!(one < other || (&pair[0].gpu, pair[0].days) < (&pair[1].gpu, pair[1].days), "{pair:?}");
    }
    let lowest = sorted[0];
    let is_lowest =
        |offer: &&&Offer| gpu_days(lowest) * offer.lot_price_cents == gpu_days(offer) * lowest.lot_price_cents;
    let mut models: Vec<&str> = sorted.iter().filter(is_lowest).map(|offer| offer.gpu.as_str()).collect();
    models.dedup();
    assert_eq!(list.cheapest_models(), models);
}

fn assert_json(list: &PriceList) {
    let json = list.to_json();
    let entries: Vec<Value> = serde_json::from_str(&json).unwrap();
    let offers: Vec<Offer> = serde_json::from_str(&json).unwrap();
    assert_eq!(offers, list.offers());
    for (offer, entry) in offers.iter().zip(&entries) {
        let text = entry["price_per_gpu_day_cents"].as_str().unwrap();
        let is_rounded = entry["price_per_gpu_day_is_rounded"].as_bool().unwrap();
        assert_quotient(text, is_rounded, offer.lot_price_cents, &gpu_days(offer));
    }
}

/// The list as a plain file.
fn written(list: &PriceList) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(COLUMNS).unwrap();
    for offer in list.offers() {
        let [gpus, days, cents] = [offer.gpus_per_lot, offer.days, offer.lot_price_cents].map(|n| n.to_string());
        let texts = [&offer.gpu, &offer.gpu_name, &gpus, &days, &cents, &offer.currency, &offer.snapshot_date];
        writer.write_record(texts.into_iter().chain([&offer.source])).unwrap();
    }
    writer.into_inner().unwrap()
}

fn assert_priced(list: &PriceList, offer: &Offer, lots: u64, accepted: Option<u64>) {
    let outcome = list.quote(&offer.gpu, offer.days, lots, accepted);
    let total = u128::from(offer.lot_price_cents) * u128::from(lots);
    let gpus = u128::from(offer.gpus_per_lot) * u128::from(lots);
    let fits = lots > 0 && total.max(gpus) <= u128::from(u64::MAX);
    assert_eq!(outcome.is_ok(), fits, "{lots} lots of {offer:?}: {outcome:?}");
    let Ok(quote) = &outcome else {
        assert!(matches!(&outcome, Err(LabError::InvalidArgument { name, .. }) if name == "lots"));
        return assert_refused(&outcome);
    };
    assert_eq!((u128::from(quote.total_price_cents), u128::from(quote.total_gpus)), (total, gpus));
    let per_gpu = BigUint::from(offer.gpus_per_lot);
    assert_quotient(&quote.price_per_gpu_cents, quote.price_per_gpu_is_rounded, offer.lot_price_cents, &per_gpu);
    match (accepted, &quote.cost_per_accepted_result_cents, quote.cost_per_accepted_result_is_rounded) {
        (None, None, None) => (),
        (Some(accepted), Some(text), Some(is_rounded)) => {
            assert_quotient(text, is_rounded, quote.total_price_cents, &BigUint::from(accepted));
        }
        other => panic!("{other:?}"),
    }
    if lots == 1 {
        assert_eq!(serde_json::from_str::<Quote>(&quote.to_string()).unwrap(), *quote);
        assert_shows(&outcome);
    }
}

/// What the list does not have is refused, in words that name what it has.
fn assert_unpriced(list: &PriceList, offer: &Offer) {
    let unknown = format!("{}?", offer.gpu);
    if list.offers().iter().all(|other| other.gpu != unknown) {
        assert_refused(&list.quote(&unknown, offer.days, 1, None));
    }
    if list.offers().iter().all(|other| (&other.gpu, other.days) != (&offer.gpu, u64::MAX)) {
        assert_refused(&list.quote(&offer.gpu, u64::MAX, 1, None));
    }
    assert_refused(&list.quote(&offer.gpu, offer.days, 1, Some(0)));
}
