//! What a person sees of a simulation and of its comparison with a measurement.

use super::Present;
use super::chart::timeline_chart;
use super::figures::integer;
use super::grid::{Cell, Grid, numbers, words};
use super::view::View;
use super::views::{MAX_ROWS, bytes, key_values, label, truncation};
use crate::simulation::{AllocatorProfile, Breakdown, Comparison, Evidence, SimulatedRow, Simulation};

impl Present for Simulation {
    fn view(&self) -> View {
        let chosen = &self.configuration;
        let title = format!(
            "Simulé, rien n'a été mesuré : batch {}, context {}, width {}, {}",
            chosen.batch,
            chosen.context,
            chosen.width,
            chosen.dtype.name()
        );
        let groups = self.phases.chunk_by(|one, other| counters(one) == counters(other) && one.phase == other.phase);
        let count = groups.clone().count();
        let rows = groups.take(MAX_ROWS).filter_map(|group| row(group.first()?, group.last()?));
        let phases = rows.fold(phase_grid(), Grid::row);
        let view = View::new(title).note(profile_note(&self.profile));
        let view = match &self.gpu_memory {
            Some(memory) if memory.exceeded => view.note(format!(
                "Mémoire donnée : {} octets. La réserve simulée la dépasse de {} octets. {}",
                integer(memory.given_bytes),
                integer(memory.missing_bytes),
                memory.scope
            )),
            Some(memory) => view.note(format!(
                "Mémoire donnée : {} octets. La réserve simulée, {} octets, ne la dépasse pas. {}",
                integer(memory.given_bytes),
                integer(memory.peak_reserved_bytes),
                memory.scope
            )),
            None => view,
        };
        let view = truncation(view.grid(phases), count)
            .note("« Alloué » est une partie de « réservé » : on ne les additionne pas. Ci-dessous, ce qui remplit la réserve au moment où le plus est alloué.")
            .grid(breakdown_grid(&self.breakdown));
        let moments: Vec<(&str, u64, u64)> = self
            .timeline
            .iter()
            .map(|point| (point.phase.as_str(), point.allocated_bytes, point.reserved_bytes))
            .collect();
        timeline_chart(&moments).into_iter().fold(view, View::picture).json(self)
    }
}

fn phase_grid() -> Grid {
    Grid::new(&[
        words("Phase"),
        numbers("Alloué, avant (octets)"),
        numbers("Alloué, à la fin (octets)"),
        numbers("Alloué, pic (octets)"),
        numbers("Réservé, avant (octets)"),
        numbers("Réservé, à la fin (octets)"),
        numbers("Réservé, pic (octets)"),
    ])
}

fn counters(row: &SimulatedRow) -> [u64; 6] {
    [
        row.baseline_allocated_bytes,
        row.end_allocated_bytes,
        row.peak_allocated_bytes,
        row.baseline_reserved_bytes,
        row.end_reserved_bytes,
        row.peak_reserved_bytes,
    ]
}

/// Repetitions that count alike are one row.
fn row(first: &SimulatedRow, last: &SimulatedRow) -> Option<[Cell; 7]> {
    let name = match (first.run_index, last.run_index) {
        (0, _) => first.phase.clone(),
        (from, to) if from == to => format!("{}\u{a0}{from}", first.phase),
        (from, to) => format!("{}\u{a0}{}\u{a0}à\u{a0}{}", first.phase, integer(from), integer(to)),
    };
    let [a, b, c, d, e, f] = counters(first).map(bytes);
    Some([name.into(), a, b, c, d, e, f])
}

fn breakdown_grid(parts: &Breakdown) -> Grid {
    let rows = [
        ("Paramètres", "parameters_bytes", parts.parameters_bytes),
        ("Entrées", "inputs_bytes", parts.inputs_bytes),
        ("Activations", "activations_bytes", parts.activations_bytes),
        ("Espaces de travail des bibliothèques", "library_workspace_bytes", parts.library_workspace_bytes),
        ("Arrondis", "rounding_bytes", parts.rounding_bytes),
        ("Reste inutilisé des segments", "unused_segment_bytes", parts.unused_segment_bytes),
        ("Somme : réservé", "reserved_bytes", parts.reserved_bytes),
    ];
    rows.into_iter()
        .fold(key_values(), |grid, (name, key, count)| grid.row([label(name, key), bytes(count), "octets".into()]))
}

fn profile_note(profile: &AllocatorProfile) -> String {
    let known = match profile.evidence {
        Evidence::Measured => "vérifiés sur un H200",
        Evidence::Told => "indiqués par PyTorch pendant la mesure",
        Evidence::Documented => "valeurs par défaut de PyTorch pour cette architecture, non vérifiées ici",
        Evidence::Assumed => "GPU inconnu : supposés, d'après la plus grande valeur par défaut connue",
    };
    format!(
        "Profil « {} ». Espaces de travail : {} octets pour cuBLAS, {} pour cuBLASLt ({known}).",
        profile.name,
        integer(profile.cublas_workspace_bytes),
        integer(profile.cublaslt_workspace_bytes)
    )
}

impl Present for Comparison {
    fn view(&self) -> View {
        let differing: Vec<_> =
            self.rows.iter().filter(|row| row.differences().iter().any(|difference| *difference != 0)).collect();
        let title = match (self.identical, differing.len()) {
            (true, _) => format!(
                "Mesure et simulation : les six compteurs des {} lignes sont égaux, à l'octet près",
                self.rows.len()
            ),
            (false, 0) => "Mesure et simulation n'ont pas le même nombre de lignes".to_owned(),
            (false, count) => format!("Mesure et simulation : {count} lignes diffèrent sur {}", self.rows.len()),
        };
        let view = View::new(title).note(profile_note(&self.profile));
        if differing.is_empty() {
            return view.json(self);
        }
        let grid = differing.iter().take(MAX_ROWS).fold(phase_grid(), |grid, row| {
            let name = format!("{}\u{a0}{}", row.phase, integer(row.run_index));
            let [baseline, baseline_reserved, end, end_reserved, peak, peak_reserved] =
                row.differences().map(|difference| Cell::from(format!("{difference:+}")));
            grid.row([name.into(), baseline, end, peak, baseline_reserved, end_reserved, peak_reserved])
        });
        truncation(view.grid(grid), differing.len()).note("Chaque cellule : mesuré moins simulé, en octets.").json(self)
    }
}
