//! Two measurements side by side: what differs in environment and configuration, then counters and
//! times. The faster one is named only where the environments allow it.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::LabError;
use crate::json;
use crate::measure::{Measurement, PHASES, PhaseRow, WARM_FORWARD};
use crate::simulation::RowComparison;
pub use crate::spread::Spread;

/// Two measurements side by side. `Display` prints it as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasurementComparison {
    /// Always `allocator_measurement_comparison`.
    pub kind: String,
    /// End of the first measurement, as it says itself.
    pub first_measured_at_utc: String,
    /// End of the second measurement, as it says itself.
    pub second_measured_at_utc: String,
    /// What differs in the environments, notes in French apart.
    pub environment_differences: Vec<EnvironmentDifference>,
    /// Keys of the environments that a ranking needs and that at least one measurement does not
    /// tell; two unknown values are not equal values.
    pub environment_unknown: Vec<String>,
    /// What differs in the configurations; the GPU's index is part of the environment.
    pub configuration_differences: Vec<Difference>,
    /// To what a ratio of times can be attributed, in French.
    pub attribution: String,
    /// The counters, row by row.
    pub counters: CounterDifferences,
    /// One entry for every phase that both have, in the order in which phases run.
    pub times: Vec<TimesOfPhase>,
    /// Which one is faster, or why that cannot be said.
    pub ranking: Ranking,
    /// How the figures were obtained, in French.
    pub scope: String,
}

/// One key and its values as they stand in the measurements; `null` where there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The key; that of a setting of libtorch starts with `runtime_settings.`.
    pub key: String,
    /// Its value in the first measurement.
    pub first: Value,
    /// Its value in the second measurement.
    pub second: Value,
}

/// A difference between environments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvironmentDifference {
    /// What differs.
    #[serde(flatten)]
    pub difference: Difference,
    /// Whether times cannot be ranked because of it. The place of a card and the number of
    /// visible GPUs, for example, do not forbid it.
    pub forbids_ranking: bool,
}

/// Differences between the counters of two measurements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterDifferences {
    /// Whether every counter of the rows below is the same in both.
    pub identical: bool,
    /// The rows that both have: second minus first.
    pub rows: Vec<RowComparison>,
    /// Number of rows, the last ones, that only the first measurement has.
    pub rows_only_in_first: u64,
    /// Number of rows, the last ones, that only the second measurement has.
    pub rows_only_in_second: u64,
}

/// The times of one phase in both measurements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimesOfPhase {
    /// Name of the phase.
    pub phase: String,
    /// Times of the first measurement.
    pub first: Times,
    /// Times of the second measurement.
    pub second: Times,
    /// Median of the second divided by that of the first.
    pub ratio_of_medians: Option<f64>,
    /// Shortest of the second divided by longest of the first.
    pub smallest_ratio: Option<f64>,
    /// Longest of the second divided by shortest of the first.
    pub largest_ratio: Option<f64>,
    /// Why a ratio is `null`, in French; absent when none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio_note: Option<String>,
}

/// The times of one phase in one measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Number of rows.
    pub count: u64,
    /// Their times in seconds.
    pub elapsed_seconds: Spread<f64>,
}

/// Which measurement is faster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ranking {
    /// The phase whose times are ranked: always `warm_forward`.
    pub phase: String,
    /// `null` when nothing can be said.
    pub verdict: Option<Verdict>,
    /// Why, in French.
    pub reason: String,
    /// What would make a verdict possible, in French; `null` when there is one.
    pub comparable_if: Option<String>,
}

/// What the times of the warm passes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Each pass of the first measurement is shorter than each one of the second.
    FirstFaster,
    /// Each pass of the second measurement is shorter than each one of the first.
    SecondFaster,
    /// Some passes of each are not longer than some of the other.
    NotDistinguished,
}

/// What the environments say in words; the facts behind it are compared.
const NOTES: [&str; 3] = ["driver_note", "reason", "runtime_settings_note"];
/// Two cards of one model are ranked, in whatever slot they sit.
const NOT_FORBIDDING: [&str; 3] = ["requested_device", "selected_device_pci_bus_id", "visible_device_count"];
/// `null` is what the setting does: every block may be split.
const MAX_SPLIT: &str = "runtime_settings.max_split_bytes";
const SETTINGS: &str = "runtime_settings";
/// Names without their values: the same name says nothing about equality.
const SET_OUTSIDE: &str = "runtime_settings.set_outside";
/// libtorch is built for one of the two: the other one is `null`.
const BUILT_FOR: [&str; 2] = ["cuda_build_version", "hip_build_version"];
/// How many passes there are does not change what each of them does.
const REPEATS: &str = "repeats";

const SCOPE: &str = "Différences : seconde mesure moins première, en octets. Rapports : seconde divisée par première ; \
     smallest_ratio et largest_ratio sont les extrêmes que donneraient deux passages quelconques. \
     warmup : la durée couvre tous les passages de l'échauffement.";

/// Part of every verdict.
const TWO_TRIALS: &str = "Cela vaut pour ces deux essais : deux essais d'une même configuration, sur le même modèle de GPU, peuvent différer davantage que les passages d'un seul. Répétez chaque mesure avant de conclure.";

/// Compares two measurements.
///
/// # Errors
/// [`LabError::NothingToCompare`] when both are one and the same measurement, with or without its
/// simulation.
pub fn compare_measurements(first: &Measurement, second: &Measurement) -> Result<MeasurementComparison, LabError> {
    if is_same(first, second) {
        let reason = "C'est deux fois la même mesure".to_owned();
        return Err(LabError::NothingToCompare { reason });
    }
    let pairs = environment_pairs(first, second);
    let environment_unknown = unknown(&pairs);
    let environment_differences: Vec<EnvironmentDifference> = different(pairs)
        .map(|difference| EnvironmentDifference {
            forbids_ranking: !NOT_FORBIDDING.contains(&difference.key.as_str()),
            difference,
        })
        .collect();
    let obstacles = Obstacles::of(&environment_differences, &environment_unknown);
    let configuration_differences: Vec<Difference> = different(configuration_pairs(first, second)).collect();
    let times: Vec<TimesOfPhase> = PHASES.iter().filter_map(|phase| times_of_phase(phase, first, second)).collect();
    Ok(MeasurementComparison {
        kind: "allocator_measurement_comparison".to_owned(),
        first_measured_at_utc: first.measured_at_utc.clone(),
        second_measured_at_utc: second.measured_at_utc.clone(),
        attribution: attribution(&configuration_differences, obstacles.is_none()),
        counters: counter_differences(&first.phases, &second.phases),
        ranking: ranking(obstacles, times.iter().find(|times| times.phase == WARM_FORWARD)),
        environment_differences,
        environment_unknown,
        configuration_differences,
        times,
        scope: SCOPE.to_owned(),
    })
}

/// The same for the outcomes of two measurements, so that a notebook cell can call this whether or
/// not both took place.
///
/// # Errors
/// [`LabError::NothingToCompare`] with the reason when one of them did not, else as
/// [`compare_measurements`].
///
/// # Examples
/// ```no_run
/// use iteragpu_lab::{Dtype, MeasureConfig, compare_measurement_outcomes, measure, outcome_text};
///
/// let single = measure(&MeasureConfig::default());
/// let half = measure(&MeasureConfig { dtype: Dtype::Float16, ..MeasureConfig::default() });
/// println!("{}", outcome_text(&compare_measurement_outcomes(&single, &half)));
/// ```
pub fn compare_measurement_outcomes(
    first: &Result<Measurement, LabError>,
    second: &Result<Measurement, LabError>,
) -> Result<MeasurementComparison, LabError> {
    let missing = |which: &str, error: &LabError| LabError::NothingToCompare {
        reason: format!("La {which} mesure manque. {error}"),
    };
    let first = first.as_ref().map_err(|error| missing("première", error))?;
    let second = second.as_ref().map_err(|error| missing("seconde", error))?;
    compare_measurements(first, second)
}

/// A simulation is no part of what was measured.
fn is_same(first: &Measurement, second: &Measurement) -> bool {
    first.measured_at_utc == second.measured_at_utc
        && first.environment == second.environment
        && first.configuration == second.configuration
        && first.phases == second.phases
}

/// Every key of two objects, each once with both values; objects inside them key by key.
pub(crate) fn pairs(prefix: &str, first: &Value, second: &Value) -> Vec<Difference> {
    match (first, second) {
        (Value::Object(one), Value::Object(other)) => {
            let keys: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            keys.into_iter().flat_map(|key| pairs(&format!("{prefix}.{key}"), &first[key], &second[key])).collect()
        }
        _ => {
            let key = prefix.trim_start_matches('.').to_owned();
            vec![Difference { key, first: first.clone(), second: second.clone() }]
        }
    }
}

fn environment_pairs(first: &Measurement, second: &Measurement) -> Vec<Difference> {
    let told = |measurement: &Measurement| {
        let mut told = serde_json::to_value(&measurement.environment).unwrap_or_default();
        if measurement.environment.runtime_settings.is_none() {
            // Settings that neither tells are unknown too, not absent.
            told[SETTINGS] = Value::Null;
        }
        told
    };
    let mut pairs = pairs("", &told(first), &told(second));
    pairs.retain(|pair| !NOTES.contains(&pair.key.as_str()));
    pairs
}

/// The GPU's index is compared with the environment; the model that ran belongs here.
fn configuration_pairs(first: &Measurement, second: &Measurement) -> Vec<Difference> {
    let told = |measurement: &Measurement| {
        let mut told = serde_json::to_value(&measurement.configuration).unwrap_or_default();
        told["synthetic_model.definition"] = Value::from(measurement.synthetic_model.definition.as_str());
        told
    };
    let mut pairs = pairs("", &told(first), &told(second));
    pairs.retain(|pair| pair.key != "device");
    pairs
}

fn different(pairs: Vec<Difference>) -> impl Iterator<Item = Difference> {
    pairs.into_iter().filter(|pair| pair.first != pair.second)
}

/// Keys that a ranking needs and that one of the two does not tell.
fn unknown(pairs: &[Difference]) -> Vec<String> {
    let told = |value: fn(&Difference) -> &Value| {
        pairs.iter().any(|pair| BUILT_FOR.contains(&pair.key.as_str()) && !value(pair).is_null())
    };
    let is_built_for_something = told(|pair| &pair.first) && told(|pair| &pair.second);
    let is_unknown = |pair: &&Difference| match pair.key.as_str() {
        MAX_SPLIT => false,
        // A difference in names is told as such.
        SET_OUTSIDE => pair.first == pair.second && pair.first != Value::Array(Vec::new()),
        key if NOT_FORBIDDING.contains(&key) => false,
        key if BUILT_FOR.contains(&key) => !is_built_for_something,
        _ => pair.first.is_null() || pair.second.is_null(),
    };
    pairs.iter().filter(is_unknown).map(|pair| pair.key.clone()).collect()
}

/// Why times cannot be ranked.
struct Obstacles {
    different: Vec<String>,
    unknown: Vec<String>,
}

impl Obstacles {
    fn of(differences: &[EnvironmentDifference], unknown: &[String]) -> Option<Self> {
        let forbidding = differences.iter().filter(|difference| difference.forbids_ranking);
        // One unknown value beside a known one differs, but that is not what is to be said of it.
        let different = forbidding.map(|found| found.difference.key.clone()).filter(|key| !unknown.contains(key));
        let found = Self { different: different.collect(), unknown: unknown.to_vec() };
        (!found.different.is_empty() || !found.unknown.is_empty()).then_some(found)
    }

    fn reason(&self) -> String {
        let mut sentences = Vec::new();
        if !self.different.is_empty() {
            sentences.push(format!("Les environnements diffèrent : {}.", self.different.join(", ")));
        }
        if !self.unknown.is_empty() {
            sentences.push(format!(
                "Inconnu dans l'une au moins des mesures, donc pas tenu pour égal : {}.",
                self.unknown.join(", ")
            ));
        }
        sentences.join(" ")
    }

    fn comparable_if(&self) -> String {
        let mut wanted: Vec<&str> = Vec::new();
        for key in self.different.iter().chain(&self.unknown) {
            let words = in_words(key);
            if !wanted.contains(&words) {
                wanted.push(words);
            }
        }
        let needed = format!("Pour classer ces durées, il faut {}.", wanted.join(", "));
        let unread: Vec<&str> = self.unknown.iter().map(String::as_str).filter(|key| *key != SET_OUTSIDE).collect();
        if unread.is_empty() {
            return needed;
        }
        format!("{needed} Les deux mesures doivent donner : {}.", unread.join(", "))
    }
}

/// What has to be the same in both measurements.
fn in_words(key: &str) -> &str {
    match key {
        "platform" => "le même système d'exploitation",
        "lab_version" | "tch_version" => "la même version d'IteraGPU Lab",
        "torch_version" | "cuda_build_version" | "hip_build_version" => "la même version de PyTorch",
        "driver_version" => "le même pilote",
        SET_OUTSIDE => "aucune des variables dont PyTorch ne dit pas la valeur (set_outside)",
        _ if key.starts_with(SETTINGS) => "les mêmes réglages de PyTorch",
        _ if key.starts_with("selected_device_") => "le même modèle de GPU",
        _ => key,
    }
}

fn attribution(differences: &[Difference], environments_compare: bool) -> String {
    let names: Vec<&str> = differences.iter().map(|found| found.key.as_str()).filter(|key| *key != REPEATS).collect();
    match (names.as_slice(), environments_compare) {
        ([], true) => "Même configuration, au nombre de passages près : un rapport dit ce qui varie d'un essai, ou d'une carte, à l'autre.".to_owned(),
        ([name], true) => format!("Seule différence de configuration qui change le calcul : {name}. Un rapport dit son effet, auquel s'ajoute ce qui varie d'un essai à l'autre."),
        ([] | [_], false) => "Les environnements diffèrent, ou sont en partie inconnus : un rapport ne peut pas être attribué à une cause.".to_owned(),
        (names, _) => format!(
            "Plusieurs différences de configuration : {}. Un rapport ne peut être attribué à aucune d'elles ; n'en changez qu'une à la fois.",
            names.join(", ")
        ),
    }
}

fn counter_differences(first: &[PhaseRow], second: &[PhaseRow]) -> CounterDifferences {
    let same_place =
        |(one, other): &(&PhaseRow, &PhaseRow)| (&one.phase, one.run_index) == (&other.phase, other.run_index);
    let both = first.iter().zip(second).take_while(same_place);
    let rows: Vec<RowComparison> =
        both.map(|(first, second)| RowComparison::between(second, first.counters())).collect();
    CounterDifferences {
        identical: !rows.is_empty() && rows.iter().all(RowComparison::is_equal),
        rows_only_in_first: (first.len() - rows.len()) as u64,
        rows_only_in_second: (second.len() - rows.len()) as u64,
        rows,
    }
}

fn times_of_phase(phase: &str, first: &Measurement, second: &Measurement) -> Option<TimesOfPhase> {
    let (first, second) = (times(phase, first)?, times(phase, second)?);
    let (one, other) = (first.elapsed_seconds, second.elapsed_seconds);
    let [ratio_of_medians, smallest_ratio, largest_ratio] =
        [(other.median, one.median), (other.min, one.max), (other.max, one.min)].map(quotient);
    let is_missing = [ratio_of_medians, smallest_ratio, largest_ratio].contains(&None);
    let ratio_note = is_missing.then(|| {
        "null : la première durée est nulle, ou le quotient dépasse ce qu'un nombre JSON peut contenir.".to_owned()
    });
    Some(TimesOfPhase {
        phase: phase.to_owned(),
        first,
        second,
        ratio_of_medians,
        smallest_ratio,
        largest_ratio,
        ratio_note,
    })
}

fn times(phase: &str, measurement: &Measurement) -> Option<Times> {
    let rows = measurement.phases.iter().filter(|row| row.phase == phase);
    let mut seconds: Vec<f64> = rows.map(|row| row.elapsed_seconds).collect();
    Some(Times { count: seconds.len() as u64, elapsed_seconds: Spread::of_times(&mut seconds)? })
}

fn quotient((dividend, divisor): (f64, f64)) -> Option<f64> {
    Some(dividend / divisor).filter(|quotient| quotient.is_finite())
}

fn ranking(obstacles: Option<Obstacles>, times: Option<&TimesOfPhase>) -> Ranking {
    let (verdict, reason, comparable_if) = match (obstacles, times) {
        (Some(obstacles), _) => (None, obstacles.reason(), Some(obstacles.comparable_if())),
        (None, Some(times)) if times.first.count > 1 && times.second.count > 1 => {
            let (verdict, reason) = verdict(&times.first.elapsed_seconds, &times.second.elapsed_seconds);
            (Some(verdict), format!("{reason} {TWO_TRIALS}"), None)
        }
        (None, _) => (
            None,
            "Une des mesures au moins n'a qu'un passage à chaud : rien ne dit de combien ses durées varient."
                .to_owned(),
            Some("Pour classer ces durées, il faut au moins deux passages dans chaque mesure (repeats).".to_owned()),
        ),
    };
    Ranking { phase: WARM_FORWARD.to_owned(), verdict, reason, comparable_if }
}

fn verdict(first: &Spread<f64>, second: &Spread<f64>) -> (Verdict, &'static str) {
    if first.max < second.min {
        return (
            Verdict::FirstFaster,
            "Le plus long passage à chaud de la première mesure est plus court que tous ceux de la seconde.",
        );
    }
    if second.max < first.min {
        return (
            Verdict::SecondFaster,
            "Le plus long passage à chaud de la seconde mesure est plus court que tous ceux de la première.",
        );
    }
    (Verdict::NotDistinguished, "Les durées des passages à chaud, de la plus courte à la plus longue, se recouvrent.")
}

impl fmt::Display for MeasurementComparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", json::Pretty(self))
    }
}
