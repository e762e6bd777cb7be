//! What a measurement must be: it may come from a file that people edited, or be put together by a program.

use chrono::DateTime;

use super::device_time::{DeviceSeconds, DeviceTime, are_whole, check_device_passes};
use super::{Measurement, SyntheticModel, is_complete};
use crate::error::shortened;
use crate::simulation::Simulation;

/// What is wrong with a measurement, in French.
pub(crate) fn check(measurement: &Measurement) -> Result<(), String> {
    let origin = (measurement.schema_version, measurement.artifact.as_str(), measurement.kind.as_str());
    if origin != (1, "iteragpu-lab-v1", "allocator_measurement") {
        let (version, artifact, kind) = origin;
        return Err(format!(
            "schema_version {version}, artifact « {} », kind « {} » au lieu de 1, iteragpu-lab-v1, allocator_measurement",
            shortened(artifact, 40),
            shortened(kind, 40)
        ));
    }
    if DateTime::parse_from_rfc3339(&measurement.measured_at_utc).is_err() {
        return Err(format!("measured_at_utc « {} » n'est pas une date", shortened(&measurement.measured_at_utc, 40)));
    }
    if let Err(error) = measurement.configuration.chosen.check() {
        return Err(format!("la configuration n'est pas acceptée ({error})"));
    }
    if let Some(key) = contradiction(measurement) {
        return Err(format!("{key} contredit la configuration"));
    }
    if !is_complete(&measurement.configuration.chosen, &measurement.phases) {
        return Err(format!("{} phases, dont une manque, se répète ou n'est pas à sa place", measurement.phases.len()));
    }
    if measurement.device_time.as_ref().is_some_and(|time| !time.is_consistent()) {
        return Err("device_time se contredit".to_owned());
    }
    match measurement.phases.iter().find(|row| !row.is_consistent()) {
        Some(row) => Err(format!("la durée ou les compteurs de {} {} sont impossibles", row.phase, row.run_index)),
        None => Ok(()),
    }
}

/// The key that does not go with the configuration, which has been checked.
fn contradiction(measurement: &Measurement) -> Option<&'static str> {
    let chosen = &measurement.configuration.chosen;
    let model = SyntheticModel::of(chosen);
    let goes_with = |simulation: &Simulation| {
        simulation.kind == "allocator_simulation"
            && simulation.configuration == *chosen
            && simulation.synthetic_model == model
    };
    if measurement.synthetic_model != model {
        return Some("synthetic_model");
    }
    measurement.simulation.as_ref().is_some_and(|simulation| !goes_with(simulation)).then_some("simulation")
}

impl DeviceTime {
    /// Whether it can be what [`DeviceTime::of`] makes of some observations: one from a file may be anything.
    pub(crate) fn is_consistent(&self) -> bool {
        let graph = match (&self.graph_replay, &self.graph_replay_note) {
            (Some(seconds), None) => seconds.are_of(self.passes),
            (None, Some(_)) => true,
            _ => false,
        };
        check_device_passes(Some(self.passes)).is_ok() && self.forward.are_of(self.passes) && graph
    }
}

impl DeviceSeconds {
    /// Whether these are one observation a pass and what follows from them.
    fn are_of(&self, passes: u64) -> bool {
        are_whole(&self.device_seconds, passes) && *self == Self::of(self.device_seconds.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::MAX_DEVICE_PASSES;
    use crate::protocol::DeviceObservations;

    #[test]
    fn one_from_a_file_must_follow_from_its_observations() {
        let good = DeviceTime::of(DeviceObservations {
            forward: vec![3.0, 1.0],
            graph_replay: Some(vec![0.5, 0.25]),
            graph_failure: None,
        });
        let note = || Some("Passage non capturé.".to_owned());
        assert!(good.is_consistent());
        assert!(DeviceTime { graph_replay: None, graph_replay_note: note(), ..good.clone() }.is_consistent());
        let changes: [fn(&mut DeviceTime); 7] = [
            |time| time.passes = 3,
            |time| time.forward.min_device_seconds = 0.5,
            |time| time.forward.median_device_seconds = 1.0,
            |time| time.forward.max_device_seconds = 3.5,
            |time| time.forward = DeviceSeconds::of(vec![-1.0, 1.0]),
            |time| time.graph_replay = None,
            |time| time.graph_replay = Some(DeviceSeconds::of(vec![1.0])),
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut changed = good.clone();
            change(&mut changed);
            assert!(!changed.is_consistent(), "{number}");
        }
        assert!(!DeviceTime { graph_replay_note: note(), ..good.clone() }.is_consistent());
        let many = vec![1.0; MAX_DEVICE_PASSES as usize + 1];
        let many = DeviceObservations { forward: many.clone(), graph_replay: Some(many), graph_failure: None };
        assert!(!DeviceTime::of(many).is_consistent());
    }
}
