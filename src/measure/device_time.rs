//! The device's own time of a forward pass, which a measurement adds to its phases when asked.

use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::protocol::DeviceObservations;
use crate::spread::Spread;

/// Most passes for the device's own time: each is an observation in the result.
pub const MAX_DEVICE_PASSES: u64 = 10_000;

/// The device's own time of a forward pass, by events that the device itself records. It is no part of
/// the phases: its passes run after them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceTime {
    /// Number of passes, each observed once.
    pub passes: u64,
    /// What the times cover, in French.
    pub scope: String,
    /// From an event before a pass to one after it, each pass launched when the one before has ended.
    pub forward: DeviceSeconds,
    /// From one replay of the captured pass to the next, all launched ahead: the floor, without a wait
    /// for the host. `null` where the pass could not be captured.
    pub graph_replay: Option<DeviceSeconds>,
    /// Why `graph_replay` is absent, in French.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph_replay_note: Option<String>,
}

/// Observations on the device's clock, in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceSeconds {
    /// Every observation, in the order of the passes.
    pub device_seconds: Vec<f64>,
    /// The shortest.
    pub min_device_seconds: f64,
    /// The median; the mean of both in the middle when their number is even.
    pub median_device_seconds: f64,
    /// The longest.
    pub max_device_seconds: f64,
}

const SCOPE: &str = "Temps à l'horloge du GPU, entre deux événements, sur des passages faits après les phases ; les lignes de phases n'en dépendent pas. \
     forward : un passage à la fois, le GPU étant au repos ; ce temps comprend les instants où le GPU attend que la machine lui lance l'opération suivante. \
     graph_replay : le même passage, capturé en graphe CUDA et relancé d'avance ; c'est le plancher, sans ces attentes, \
     mais chaque observation comprend l'enregistrement d'un événement.";

impl DeviceTime {
    /// From a worker's observations, which [`answers`] has accepted.
    pub(super) fn of(observed: DeviceObservations) -> Self {
        let refused = |failure: crate::protocol::Failure| format!("Passage non capturé : {}.", failure.happened());
        Self {
            passes: observed.forward.len() as u64,
            scope: SCOPE.to_owned(),
            forward: DeviceSeconds::of(observed.forward),
            graph_replay: observed.graph_replay.map(DeviceSeconds::of),
            graph_replay_note: observed.graph_failure.map(refused),
        }
    }
}

impl DeviceSeconds {
    pub(super) fn of(device_seconds: Vec<f64>) -> Self {
        let all = Spread::of_times(&mut device_seconds.clone());
        // Nobody asks for no pass.
        let Spread { min, median, max } = all.unwrap_or(Spread { min: 0.0, median: 0.0, max: 0.0 });
        Self { min_device_seconds: min, median_device_seconds: median, max_device_seconds: max, device_seconds }
    }
}

/// Refuses a number of passes beyond the accepted ones.
pub(crate) fn check_device_passes(passes: Option<u64>) -> Result<(), LabError> {
    match passes {
        Some(passes) if !(1..=MAX_DEVICE_PASSES).contains(&passes) => {
            let expected = format!("un entier de 1 à {MAX_DEVICE_PASSES}");
            Err(LabError::invalid("device_time", &passes.to_string(), expected))
        }
        _ => Ok(()),
    }
}

/// Whether a worker's observations are what was asked for: one a pass, or a reason.
pub(super) fn answers(asked: Option<u64>, observed: Option<&DeviceObservations>) -> bool {
    let (Some(passes), Some(observed)) = (asked, observed) else { return asked.is_none() && observed.is_none() };
    let graph = match (&observed.graph_replay, &observed.graph_failure) {
        (Some(seconds), None) => are_whole(seconds, passes),
        (None, Some(_)) => true,
        _ => false,
    };
    are_whole(&observed.forward, passes) && graph
}

/// Whether there is one observation a pass.
pub(super) fn are_whole(seconds: &[f64], passes: u64) -> bool {
    seconds.len() as u64 == passes && seconds.iter().all(|time| time.is_finite() && *time >= 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Failure;

    #[test]
    fn medians_are_in_the_middle() {
        let of = |seconds: &[f64]| DeviceSeconds::of(seconds.to_vec());
        let odd = of(&[3.0, 1.0, 2.0]);
        assert_eq!((odd.min_device_seconds, odd.median_device_seconds, odd.max_device_seconds), (1.0, 2.0, 3.0));
        assert_eq!(odd.device_seconds, [3.0, 1.0, 2.0], "the order of the passes stays");
        assert_eq!(of(&[4.0, 1.0, 2.0, 8.0]).median_device_seconds, 3.0);
        assert_eq!(of(&[5.0]).median_device_seconds, 5.0);
    }

    #[test]
    fn an_answer_has_one_observation_a_pass_or_a_reason() {
        let observed = |forward: &[f64], graph: Option<&[f64]>| DeviceObservations {
            forward: forward.to_vec(),
            graph_replay: graph.map(<[f64]>::to_vec),
            graph_failure: None,
        };
        let good = observed(&[1.0, 0.0], Some(&[2.0, 3.0]));
        assert!(answers(Some(2), Some(&good)) && answers(None, None));
        let refused = DeviceObservations {
            graph_replay: None,
            graph_failure: Some(Failure::OutOfGpuMemory { words: "x".to_owned() }),
            ..good.clone()
        };
        assert!(answers(Some(2), Some(&refused)));
        assert!(DeviceTime::of(refused.clone()).graph_replay_note.is_some_and(|note| note.contains("mémoire du GPU")));
        let both = DeviceObservations { graph_replay: Some(vec![1.0, 1.0]), ..refused };
        let bad = [
            observed(&[1.0], Some(&[2.0, 3.0])),
            observed(&[1.0, 1.0], Some(&[2.0])),
            observed(&[1.0, 1.0], None),
            observed(&[1.0, -1.0], Some(&[2.0, 3.0])),
            observed(&[1.0, f64::NAN], Some(&[2.0, 3.0])),
            observed(&[1.0, 1.0], Some(&[2.0, f64::INFINITY])),
            both,
        ];
        for observed in bad {
            assert!(!answers(Some(2), Some(&observed)), "{observed:?}");
        }
        assert!(!answers(None, Some(&good)) && !answers(Some(2), None));
    }

    #[test]
    fn the_number_of_passes_has_a_limit() {
        for good in [None, Some(1), Some(MAX_DEVICE_PASSES)] {
            assert!(check_device_passes(good).is_ok());
        }
        for bad in [Some(0), Some(MAX_DEVICE_PASSES + 1)] {
            assert!(check_device_passes(bad).is_err_and(|error| error.to_string().starts_with("device_time : ")));
        }
    }
}
