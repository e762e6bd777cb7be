//! What a person sees of each result. Labels are French; each stands beside the JSON key it explains.

use super::Present;
use super::chart::{memory_chart, times_chart};
use super::figures::{decimal, integer, microseconds, milliseconds, rounded_gib};
use super::grid::{Cell, Column, Grid, numbers, words};
use super::rows::{bars, columns, groups};
use super::view::View;
use crate::environment::EnvironmentReport;
use crate::estimate::Estimate;
use crate::export::Saved;
use crate::measure::{DeviceSeconds, DeviceTime, MeasureConfig, Measurement, PhaseRow};
use crate::protocol::Bfloat16Support;
use crate::spread::Spread;

/// Longer tables end with a note; the JSON has everything.
pub(super) const MAX_ROWS: usize = 60;

const GIB_NOTE: &str = "Sous les octets, les mêmes en Gio (2^30 octets), arrondis à six décimales. Le graphique compte en Mio (2^20 octets ; 1 Gio = 1 024 Mio) ou dans l'unité qu'il indique.";

pub(super) const PART_NOTE: &str = "« Alloué » est une partie de « réservé » : on ne les additionne pas.";

pub(super) fn key_values() -> Grid {
    Grid::new(&[words("Grandeur"), numbers("Valeur"), words("Unité")])
}

pub(super) fn label(text: &str, key: &str) -> Cell {
    Cell::with(text, key)
}

pub(super) fn bytes(count: u64) -> Cell {
    if count == 0 {
        return "0".into();
    }
    Cell::with(integer(count), format!("{} Gio", rounded_gib(count)))
}

impl Present for Estimate {
    fn view(&self) -> View {
        let grid = key_values()
            .row([label("Paramètres", "parameters"), integer(self.parameters).into(), "".into()])
            .row([
                label("Taille d'un paramètre", "bits_per_parameter"),
                self.bits_per_parameter.to_string().into(),
                "bits".into(),
            ])
            .row([
                label("Poids, en octets", "theoretical_weight_bytes"),
                integer(self.theoretical_weight_bytes).into(),
                "octets".into(),
            ])
            .row([
                label("Poids, en Gio", "theoretical_weight_gib"),
                decimal(&self.theoretical_weight_gib).into(),
                "Gio".into(),
            ])
            .row([
                label("Réserve supposée", "assumed_reserve_gib"),
                decimal(&self.assumed_reserve_gib).into(),
                "Gio".into(),
            ])
            .row([
                label("Poids et réserve supposée", "weights_plus_assumed_reserve_gib"),
                decimal(&self.weights_plus_assumed_reserve_gib).into(),
                "Gio".into(),
            ]);
        View::new("Place des poids : un calcul, exact jusqu'au dernier chiffre").grid(grid).json(self)
    }
}

/// Under other settings than the defaults, figures do not compare with those that people know.
pub(super) fn warning(view: View, environment: &EnvironmentReport) -> View {
    match &environment.runtime_settings {
        Some(settings) if settings.differences().is_some() => view.note(settings.note()),
        _ => view,
    }
}

pub(super) fn environment_grid(environment: &EnvironmentReport) -> Grid {
    let text = |value: &Option<String>| Cell::from(value.as_deref().unwrap_or("non lu"));
    let yes_no = |value: bool| Cell::from(if value { "oui" } else { "non" });
    let bfloat16 = environment.selected_device_bfloat16.map_or("non lu", |support| match support {
        Bfloat16Support::Native => "natif",
        Bfloat16Support::Emulated => "émulé",
    });
    let settings = environment
        .runtime_settings
        .as_ref()
        .map_or("non lus".to_owned(), |settings| settings.differences().unwrap_or_else(|| "par défaut".to_owned()));
    let visible = environment.visible_device_count.map_or("non lu".to_owned(), |count| count.to_string());
    Grid::new(&[words("Question"), words("Réponse")])
        .row([label("GPU demandé", "requested_device"), environment.requested_device.as_str().into()])
        .row([label("Utilisable", "selected_device_available"), yes_no(environment.selected_device_available)])
        .row([label("Nom", "selected_device_name"), text(&environment.selected_device_name)])
        .row([
            label("Mémoire totale", "selected_device_total_bytes"),
            environment.selected_device_total_bytes.map_or("non lu".into(), |total| {
                Cell::with(format!("{} octets", integer(total)), format!("{} Gio", rounded_gib(total)))
            }),
        ])
        .row([
            label("Génération (compute capability)", "selected_device_compute_capability"),
            text(&environment.selected_device_compute_capability),
        ])
        .row([label("bfloat16", "selected_device_bfloat16"), bfloat16.into()])
        .row([label("GPU visibles", "visible_device_count"), visible.into()])
        .row([label("PyTorch chargé", "torch_version"), text(&environment.torch_version)])
        .row([label("Construit pour CUDA", "cuda_build_version"), text(&environment.cuda_build_version)])
        .row([label("Pilote", "driver_version"), text(&environment.driver_version)])
        .row([label("Réglages de PyTorch", "runtime_settings"), settings.into()])
}

impl Present for EnvironmentReport {
    fn view(&self) -> View {
        let view = View::new("Environnement GPU, tel qu'il a été trouvé");
        let view = match &self.reason {
            Some(reason) => view.note(reason.as_str()),
            None => view,
        };
        warning(view, self).grid(environment_grid(self)).json(self)
    }
}

/// The median, and the extremes where there are several.
pub(super) fn time(seconds: &Spread<f64>, count: u64) -> Cell {
    let median = milliseconds(seconds.median);
    match count {
        1 => median.into(),
        _ => Cell::with(median, format!("{} à {}", milliseconds(seconds.min), milliseconds(seconds.max))),
    }
}

fn time_of(rows: &[PhaseRow]) -> Cell {
    let spread = Spread::of_times(&mut rows.iter().map(|row| row.elapsed_seconds).collect::<Vec<_>>());
    spread.map_or("".into(), |seconds| time(&seconds, rows.len() as u64))
}

/// The dimensions and the number type, as the titles name them.
pub(super) fn shape(config: &MeasureConfig) -> String {
    let MeasureConfig { batch, context, width, dtype, .. } = config;
    format!("batch {batch}, context {context}, width {width}, {}", dtype.name())
}

impl Present for Measurement {
    fn view(&self) -> View {
        let groups = groups(&self.phases);
        let mut grid = Grid::new(&columns(&[numbers("Temps (ms)")]));
        for group in groups.iter().take(MAX_ROWS) {
            let [a, b, c, d, e, f] = group.counters.map(bytes);
            grid.push([group.name().into(), time_of(&self.phases[group.places.clone()]), a, b, c, d, e, f]);
        }
        let chosen = &self.configuration.chosen;
        let device = self.environment.selected_device_name.as_deref().unwrap_or(&chosen.device);
        let title = format!("Mesuré sur {device} : {}", shape(chosen));
        let times: Vec<f64> =
            self.phases.iter().filter(|row| row.run_index > 0).map(|row| row.elapsed_seconds).collect();
        let view = View::new(title)
            .grid(grid)
            .note(format!("{GIB_NOTE} Quand plusieurs passages ont les mêmes compteurs, le temps est leur médiane ; dessous, le plus court et le plus long."))
            .note(PART_NOTE);
        let view = truncation(warning(view, &self.environment), groups.len());
        let view = match &self.device_time {
            Some(time) => with_device_time(view, time),
            None => view,
        };
        let view = match self.simulation {
            Some(_) => view.note("Sa simulation est dans le JSON, sous la clé simulation : elle n'a pas été mesurée."),
            None => view,
        };
        [memory_chart(&bars(&groups)), times_chart(&times)].into_iter().flatten().fold(view, View::picture).json(self)
    }
}

fn with_device_time(view: View, time: &DeviceTime) -> View {
    let title = "Un passage, à l'horloge du GPU";
    let columns = ["Médiane (µs)", "Le plus court (µs)", "Le plus long (µs)"].map(numbers);
    let columns: Vec<Column> = [words(title)].into_iter().chain(columns).collect();
    let cells = |name: &str, key: &str, seconds: &DeviceSeconds| {
        let times = [seconds.median_device_seconds, seconds.min_device_seconds, seconds.max_device_seconds];
        let [median, min, max] = times.map(|time| microseconds(time).into());
        [label(name, key), median, min, max]
    };
    let grid = Grid::new(&columns).row(cells("lancé au repos", "forward", &time.forward));
    let view = match (&time.graph_replay, &time.graph_replay_note) {
        (Some(replay), _) => view.grid(grid.row(cells("graphe CUDA, relancé d'avance", "graph_replay", replay))),
        (None, Some(note)) => view.grid(grid).note(note.as_str()),
        (None, None) => view.grid(grid),
    };
    view.note(time.scope.as_str())
}

pub(super) fn truncation(view: View, rows: usize) -> View {
    match rows.checked_sub(MAX_ROWS) {
        None | Some(0) => view,
        Some(more) => view
            .note(format!("{} autres lignes ne sont pas montrées ici ; le JSON les contient.", integer(more as u64))),
    }
}

impl Present for Saved {
    fn view(&self) -> View {
        View::new(self.to_string())
    }
}
