//! What a person sees of a simulation and of its comparison with a measurement.

use super::Present;
use super::chart::timeline_chart;
use super::figures::{integer, signed};
use super::grid::Grid;
use super::rows::{columns, groups};
use super::view::View;
use super::views::{MAX_ROWS, PART_NOTE, bytes, key_values, label, shape, truncation};
use crate::simulation::{AllocatorProfile, Breakdown, Comparison, Evidence, RowComparison, Simulation};

impl Present for Simulation {
    fn view(&self) -> View {
        let title = format!("Simulé, rien n'a été mesuré : {}", shape(&self.configuration));
        let groups = groups(&self.phases);
        let mut phases = Grid::new(&columns(&[]));
        for group in groups.iter().take(MAX_ROWS) {
            let [a, b, c, d, e, f] = group.counters.map(bytes);
            phases.push([group.name().into(), a, b, c, d, e, f]);
        }
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
        let view = truncation(view.grid(phases), groups.len())
            .note(PART_NOTE)
            .note("Ci-dessous, ce qui remplit la réserve au moment où le plus est alloué.")
            .grid(breakdown_grid(&self.breakdown));
        let counters = self.timeline.iter().map(|point| [point.allocated_bytes, point.reserved_bytes]);
        let events: Vec<(&str, [u64; 2])> =
            self.timeline.iter().map(|point| point.phase.as_str()).zip(counters).collect();
        timeline_chart(&events).into_iter().fold(view, View::picture).json(self)
    }
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
        let differing = self.rows.iter().filter(|row| !row.is_equal()).count();
        let rows = integer(self.rows.len() as u64);
        let title = match (self.identical, differing) {
            (true, 0) => {
                format!("Mesure et simulation : les six compteurs des {rows} lignes sont égaux, à l'octet près")
            }
            (false, 0) => "Mesure et simulation n'ont pas le même nombre de lignes".to_owned(),
            _ => format!("Lignes où mesure et simulation diffèrent : {} sur {rows}", integer(differing as u64)),
        };
        let view = View::new(title).note(profile_note(&self.profile));
        if differing == 0 {
            return view.json(self);
        }
        differences(view, &self.rows).note("Chaque cellule : mesuré moins simulé, en octets.").json(self)
    }
}

/// The rows of counters that differ.
pub(super) fn differences(view: View, rows: &[RowComparison]) -> View {
    let groups: Vec<_> = groups(rows).into_iter().filter(|group| group.counters != [0; 6]).collect();
    let mut grid = Grid::new(&columns(&[]));
    for group in groups.iter().take(MAX_ROWS) {
        let [a, b, c, d, e, f] = group.counters.map(|difference| signed(difference).into());
        grid.push([group.name().into(), a, b, c, d, e, f]);
    }
    truncation(view.grid(grid), groups.len())
}
