//! What a person sees of two measurements side by side.

use serde_json::Value;

use super::Present;
use super::figures::{integer, ratio};
use super::grid::{Cell, Grid, numbers, words};
use super::simulation_views::differences;
use super::view::View;
use super::views::{MAX_ROWS, time, truncation};
use crate::compare::{CounterDifferences, Difference, MeasurementComparison, TimesOfPhase, Verdict};
use crate::error::shortened;

/// A GPU's name, a version or a list of settings is shorter.
const MAX_VALUE: usize = 120;

impl Present for MeasurementComparison {
    fn view(&self) -> View {
        let title = match self.ranking.verdict {
            Some(Verdict::FirstFaster) => "Deux mesures : passages à chaud plus courts dans la première",
            Some(Verdict::SecondFaster) => "Deux mesures : passages à chaud plus courts dans la seconde",
            Some(Verdict::NotDistinguished) => "Deux mesures : leurs passages à chaud ne se distinguent pas",
            None => "Deux mesures, sans classement de leurs durées",
        };
        let view = View::new(title).note(format!(
            "Première mesure : {}. Seconde mesure : {}.",
            shortened(&self.first_measured_at_utc, MAX_VALUE),
            shortened(&self.second_measured_at_utc, MAX_VALUE)
        ));
        let view = counters(what_differs(view, self), &self.counters);
        let view = times(view.note(self.attribution.as_str()), &self.times).note(self.ranking.reason.as_str());
        self.ranking.comparable_if.iter().fold(view, |view, way| view.note(way.as_str())).json(self)
    }
}

/// Environment, then configuration.
fn what_differs(view: View, comparison: &MeasurementComparison) -> View {
    let environment = comparison.environment_differences.iter().map(|found| {
        (if found.forbids_ranking { "environnement, empêche de classer" } else { "environnement" }, &found.difference)
    });
    let configuration = comparison.configuration_differences.iter().map(|found| ("configuration", found));
    let rows: Vec<(&str, &Difference)> = environment.chain(configuration).collect();
    if rows.is_empty() {
        return view.note("Environnements et configurations égaux.");
    }
    let mut grid = Grid::new(&[words("Diffère"), words("Où"), words("Première mesure"), words("Seconde mesure")]);
    for (place, Difference { key, first, second }) in rows.iter().take(MAX_ROWS) {
        grid.push([shortened(key, MAX_VALUE).into(), (*place).into(), value(first), value(second)]);
    }
    truncation(view.grid(grid), rows.len())
}

/// As it stands in the measurement, save for the spaces between thousands.
fn value(value: &Value) -> Cell {
    let text = match value {
        Value::Null => "non donné".to_owned(),
        Value::String(text) => text.clone(),
        number => number.as_u64().map_or_else(|| number.to_string(), integer),
    };
    shortened(&text, MAX_VALUE).into()
}

fn counters(view: View, counters: &CounterDifferences) -> View {
    let rows = integer(counters.rows.len() as u64);
    let view = if counters.identical {
        view.note(format!("Les six compteurs des {rows} lignes communes sont égaux, à l'octet près."))
    } else {
        let view = differences(view, &counters.rows);
        view.note("Chaque cellule : seconde mesure moins première, en octets ; les lignes égales n'y sont pas.")
    };
    let only = [("première", counters.rows_only_in_first), ("seconde", counters.rows_only_in_second)];
    only.into_iter().filter(|(_, count)| *count > 0).fold(view, |view, (which, count)| {
        view.note(format!("Lignes que seule la {which} mesure contient, non comparées : {}.", integer(count)))
    })
}

fn times(view: View, times: &[TimesOfPhase]) -> View {
    let mut grid = Grid::new(&[
        words("Phase"),
        numbers("Première mesure (ms)"),
        numbers("Seconde mesure (ms)"),
        numbers("Seconde / première"),
    ]);
    for phase in times.iter().take(MAX_ROWS) {
        let [first, second] = [phase.first, phase.second].map(|times| time(&times.elapsed_seconds, times.count));
        grid.push([shortened(&phase.phase, MAX_VALUE).into(), first, second, ratios(phase)]);
    }
    truncation(view.grid(grid), times.len()).note(
        "Durées : la médiane, puis la plus courte et la plus longue quand il y en a plusieurs. Rapport : celui des médianes, puis ses extrêmes. warmup : tous les passages de l'échauffement ensemble.",
    )
}

fn ratios(phase: &TimesOfPhase) -> Cell {
    let [middle, smallest, largest] = [phase.ratio_of_medians, phase.smallest_ratio, phase.largest_ratio]
        .map(|found| found.map_or_else(|| "aucun".to_owned(), ratio));
    if phase.first.count == 1 && phase.second.count == 1 {
        return middle.into();
    }
    Cell::with(middle, format!("{smallest} à {largest}"))
}
