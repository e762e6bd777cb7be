//! What a person sees of price lists and results files.

use super::Present;
use super::figures::{decimal, grouped, integer};
use super::grid::{Cell, Grid, numbers, words};
use super::view::View;
use super::views::{MAX_ROWS, bytes, key_values, label, time, truncation};
use crate::pricing::{Offer, PriceList, Quote};
use crate::results::{AcceptedUnits, Appended, PhaseSummary, Summary};

impl Present for Quote {
    fn view(&self) -> View {
        let currency = self.currency.as_str();
        let grid = key_values()
            .row([label("GPU", "gpu_name"), self.gpu_name.as_str().into(), "".into()])
            .row([label("Durée", "days"), self.days.to_string().into(), "jours".into()])
            .row([
                label("Lots", "lots"),
                integer(self.lots).into(),
                format!("lots de {} GPU", self.gpus_per_lot).into(),
            ])
            .row([label("GPU en tout", "total_gpus"), integer(self.total_gpus).into(), "GPU".into()])
            .row([
                label("Prix d'un lot", "lot_price_cents"),
                money(&self.lot_price_cents.to_string()).into(),
                currency.into(),
            ])
            .row([
                label("Prix du forfait entier", "total_price_cents"),
                money(&self.total_price_cents.to_string()).into(),
                currency.into(),
            ])
            .row([
                label("Soit, par GPU du lot", "price_per_gpu_cents"),
                quotient(&self.price_per_gpu_cents, self.price_per_gpu_is_rounded),
                currency.into(),
            ])
            .row([
                label("Unités acceptées", "accepted_results"),
                self.accepted_results.map_or("non donné".into(), |accepted| integer(accepted).into()),
                "".into(),
            ])
            .row([
                label("Coût par unité acceptée", "cost_per_accepted_result_cents"),
                self.cost_per_accepted_result_cents.as_ref().map_or("non calculé".into(), |cost| {
                    quotient(cost, self.cost_per_accepted_result_is_rounded == Some(true))
                }),
                currency.into(),
            ]);
        let title = match self.accepted_results {
            Some(_) => "Prix d'un forfait et coût par unité acceptée : un calcul, d'après la liste de tarifs",
            None => "Prix d'un forfait : un calcul, d'après la liste de tarifs",
        };
        View::new(title)
            .grid(grid)
            .note(format!("Le tableau est en {currency}, le JSON en centimes (clés en …_cents)."))
            .note(format!("Liste du {}. Source : {}.", self.snapshot_date, self.source))
            .json(self)
    }
}

impl Present for PriceList {
    fn view(&self) -> View {
        let first = self.offers().first();
        let (currency, date) = first.map_or(("", ""), |offer| (&offer.currency, &offer.snapshot_date));
        let mut grid = Grid::new(&[
            words("modèle"),
            words("nom"),
            numbers("GPU par lot"),
            numbers("jours"),
            numbers(&format!("prix du lot ({currency})")),
            numbers(&format!("par GPU et par jour ({currency})")),
        ]);
        for offer in self.by_price() {
            grid.push(price_row(offer));
        }
        View::new(format!("Tarifs, liste du {date}")).grid(grid).note(format!(
            "Le moins cher par GPU et par jour : {}. La liste est triée selon ce prix, qui ne dit rien des performances ; \
             ≈ : arrondi au centime. Le prix du lot est celui du lot entier, pour toute la durée.",
            self.cheapest_models().join(", ")
        ))
    }
}

fn price_row(offer: &Offer) -> [Cell; 6] {
    [
        offer.gpu.as_str().into(),
        offer.gpu_name.as_str().into(),
        integer(offer.gpus_per_lot).into(),
        integer(offer.days).into(),
        money(&offer.lot_price_cents.to_string()).into(),
        units(&offer.gpu_day().text).into(),
    ]
}

impl Present for AcceptedUnits {
    fn view(&self) -> View {
        let mut grid = Grid::new(&[
            words("Ensemble"),
            numbers("Unités essayées"),
            numbers("Unités acceptées"),
            numbers("Lignes du fichier"),
        ]);
        for set in self.unit_sets.iter().take(MAX_ROWS) {
            grid.push([
                set.unit_set.as_str().into(),
                integer(set.attempted_units).into(),
                integer(set.accepted_units).into(),
                integer(set.rows).into(),
            ]);
        }
        grid.push([
            "Total, chaque ensemble compté une fois".into(),
            integer(self.attempted_units).into(),
            integer(self.accepted_units).into(),
            "".into(),
        ]);
        let view = View::new(format!(
            "Unités acceptées (unité : {} ; règle d'acceptation {})",
            self.work_unit, self.rule_version
        ))
        .grid(grid);
        truncation(view, self.unit_sets.len()).json(self)
    }
}

impl Present for Summary {
    fn view(&self) -> View {
        let mut view = View::new(format!("Résumé de {} lignes et {} essais", integer(self.rows), integer(self.runs)))
            .note(self.comparability.as_str());
        for environment in &self.environments {
            let found = &environment.environment;
            let known = |value: &Option<String>| value.clone().unwrap_or_else(|| "inconnu".to_owned());
            let mut grid = Grid::new(&[
                words("Configuration"),
                words("Phase"),
                numbers("Lignes"),
                numbers("Temps (ms)"),
                numbers("Alloué, pic (octets)"),
                numbers("Réservé, pic (octets)"),
            ]);
            let configurations = environment.configurations.iter();
            let rows = configurations.flat_map(|entry| entry.phases.iter().map(|phase| (&entry.configuration, phase)));
            let mut count = 0;
            for (configuration, phase) in rows {
                count += 1;
                if count <= MAX_ROWS {
                    let name = format!(
                        "{} x {} x {}, {}",
                        configuration.batch,
                        configuration.context,
                        configuration.width,
                        configuration.dtype.name()
                    );
                    grid.push(summary_row(name, phase));
                }
            }
            view = view.note(format!(
                "{}, PyTorch {}, pilote {}",
                known(&found.device_name),
                known(&found.torch_version),
                known(&found.driver_version)
            ));
            view = truncation(view.grid(grid), count);
        }
        view.note(
            "Temps : la médiane, puis le plus court et le plus long quand il y en a plusieurs. Octets : le plus grand de tous les passages.",
        )
        .json(self)
    }
}

fn summary_row(configuration: String, phase: &PhaseSummary) -> [Cell; 6] {
    [
        configuration.into(),
        phase.phase.as_str().into(),
        integer(phase.count).into(),
        time(&phase.elapsed_seconds, phase.count),
        bytes(phase.peak_allocated_bytes.max),
        bytes(phase.peak_reserved_bytes.max),
    ]
}

impl Present for Appended {
    fn view(&self) -> View {
        View::new(self.to_string())
    }
}

/// A quotient in cents as units of the currency; the cents are given in full where they are not whole.
fn quotient(cents: &str, is_rounded: bool) -> Cell {
    if !cents.contains('.') {
        return units(cents).into();
    }
    let exactness = if is_rounded { ", arrondis au 28e chiffre" } else { "" };
    Cell::with(units(cents), format!("{} centimes{exactness}", decimal(cents)))
}

/// A quotient in cents as units of the currency, marked where it is rounded to a cent.
fn units(cents: &str) -> String {
    if cents.contains('.') { format!("≈ {}", money(&nearest_whole(cents))) } else { money(cents) }
}

/// Whole cents as units of the currency: `162960` becomes `1 629,60`.
fn money(cents: &str) -> String {
    let padded = format!("{cents:0>3}");
    let (units, cents) = padded.split_at(padded.len() - 2);
    format!("{},{cents}", grouped(units))
}

/// A decimal rounded to a whole number, half up.
fn nearest_whole(decimal: &str) -> String {
    let (whole, fraction) = decimal.split_once('.').unwrap_or((decimal, ""));
    let up = fraction.as_bytes().first().is_some_and(|digit| *digit >= b'5');
    whole.parse().map_or_else(|_| whole.to_owned(), |whole: u128| (whole + u128::from(up)).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cents_are_shown_as_units_of_the_currency() {
        let cases = [
            ("7", "0,07"),
            ("162960", "1\u{202f}629,60"),
            ("100000000", "1\u{202f}000\u{202f}000,00"),
            ("99999", "999,99"),
        ];
        for (cents, text) in cases {
            assert_eq!(money(cents), text);
        }
        for cents in 1..=10_000 {
            assert_eq!(money(&cents.to_string()), format!("{},{:02}", cents / 100, cents % 100));
        }
        assert_eq!(["331.49", "331.5", "7"].map(nearest_whole), ["331", "332", "7"]);
    }
}
