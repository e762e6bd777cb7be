//! A results file of any bytes: refused with its line, or summarised, counted and added to without
//! any change to what it holds.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use iteragpu_lab::results::{Spread, read_measurement};
use iteragpu_lab::{AcceptedUnits, LabError, Measurement, Summary, accepted_units, append, summarize};

use crate::inert::{assert_refused, assert_shows};
use crate::{MEASUREMENT, scratch};

static GOOD: OnceLock<Measurement> = OnceLock::new();

pub fn check(data: &[u8]) {
    let good = GOOD.get_or_init(|| read_measurement(&scratch::holding("mesure.json", MEASUREMENT)).unwrap());
    let file = scratch::holding("mes-resultats.csv", data);
    let (summary, units) = (summarize(&file), accepted_units(&file));
    assert_summary(&summary);
    assert_units(&units);
    let before = Before { bytes: data, summary, units };
    match append(good, &file) {
        Ok(appended) => {
            assert_eq!(appended.rows, good.phases.len() as u64);
            before.assert_added(good, &file);
        }
        Err(error) => before.assert_refused(&error, &file),
    }
    assert_eq!(scratch::files(), 1, "something was left behind");
}

fn assert_summary(outcome: &Result<Summary, LabError>) {
    let Ok(summary) = outcome else {
        assert!(matches!(outcome, Err(LabError::InTable { line: 1.., .. })), "{outcome:?}");
        return assert_refused(outcome);
    };
    assert_shows(outcome);
    assert_eq!(serde_json::from_str::<Summary>(&summary.to_string()).unwrap(), *summary);
    let configurations = || summary.environments.iter().flat_map(|environment| &environment.configurations);
    let phases = || configurations().flat_map(|configuration| &configuration.phases);
    assert!(phases().map(|phase| phase.count).sum::<u64>() <= summary.rows && summary.runs <= summary.rows);
    for phase in phases() {
        assert!(phase.count > 0);
        let times = &phase.elapsed_seconds;
        assert!(times.min.is_finite() && times.max.is_finite() && times.min >= 0.0, "{times:?}");
        assert!(times.min <= times.median && times.median <= times.max, "{times:?}");
        assert_between(&phase.baseline_allocated_bytes, phase.count);
        assert_between(&phase.baseline_reserved_bytes, phase.count);
        assert_between(&phase.end_allocated_bytes, phase.count);
        assert_between(&phase.end_reserved_bytes, phase.count);
        assert_between(&phase.peak_allocated_bytes, phase.count);
        assert_between(&phase.peak_reserved_bytes, phase.count);
    }
}

fn assert_between(spread: &Spread<u64>, count: u64) {
    assert!(spread.min <= spread.median && spread.median <= spread.max, "{spread:?}");
    assert!(count > 1 || spread.min == spread.max, "{spread:?}");
}

fn assert_units(outcome: &Result<AcceptedUnits, LabError>) {
    let Ok(units) = outcome else {
        let is_known = matches!(outcome, Err(LabError::InTable { line: 1.., .. } | LabError::NoAcceptedUnits { .. }));
        assert!(is_known, "{outcome:?}");
        return assert_refused(outcome);
    };
    assert_shows(outcome);
    assert_eq!(serde_json::from_str::<AcceptedUnits>(&units.to_string()).unwrap(), *units);
    let total = |count: fn(&iteragpu_lab::results::UnitSet) -> u64| {
        units.unit_sets.iter().map(|set| u128::from(count(set))).sum::<u128>()
    };
    assert_eq!(total(|set| set.attempted_units), u128::from(units.attempted_units));
    assert_eq!(total(|set| set.accepted_units), u128::from(units.accepted_units));
    assert!(units.accepted_units > 0);
    assert!(units.unit_sets.iter().all(|set| set.accepted_units <= set.attempted_units && set.rows > 0));
    assert!(units.unit_sets.windows(2).all(|pair| pair[0].unit_set < pair[1].unit_set), "{units:?}");
}

/// A file before something was to be added to it.
struct Before<'a> {
    bytes: &'a [u8],
    summary: Result<Summary, LabError>,
    units: Result<AcceptedUnits, LabError>,
}

impl Before<'_> {
    fn assert_added(&self, good: &Measurement, file: &Path) {
        let after = fs::read(file).unwrap();
        assert!(after.starts_with(self.bytes), "what the file held has changed");
        let summary = self.summary.as_ref().expect("a file that is added to can be summarised");
        let outcome = summarize(file);
        assert_summary(&outcome);
        let longer = outcome.unwrap();
        assert_eq!((longer.rows, longer.runs), (summary.rows + good.phases.len() as u64, summary.runs + 1));
        match (&self.units, accepted_units(file)) {
            (Ok(before), Ok(after)) => assert_eq!(*before, after),
            (Err(before), Err(after)) => assert_eq!(before.to_string(), after.to_string()),
            other => panic!("{other:?}"),
        }
        let again = append(good, file);
        assert!(matches!(again, Err(LabError::RunAlreadyRecorded { .. })), "{again:?}");
        assert_refused(&again);
        assert_eq!(fs::read(file).unwrap(), after);
    }

    fn assert_refused(&self, error: &LabError, file: &Path) {
        assert_eq!(fs::read(file).unwrap(), self.bytes, "a refused file has changed");
        let is_recorded = matches!(error, LabError::RunAlreadyRecorded { .. });
        let is_broken = matches!(error, LabError::InTable { .. });
        assert!(is_recorded || is_broken, "{error:?}");
        // What is refused is refused for a reason that reading alone finds as well.
        let found = matches!(self.summary, Err(LabError::InTable { .. }))
            || matches!(self.units, Err(LabError::InTable { .. }));
        assert!(is_recorded || found, "{error}");
    }
}
