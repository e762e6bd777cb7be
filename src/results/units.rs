//! Units of real work that were accepted, as people counted them. Repeating a trial adds rows, not
//! units: each set of distinct units counts once, however many rows name it.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{ACCEPTED_UNITS, ATTEMPTED_UNITS, COLUMNS, COUNTERS, RULE_VERSION, RUN_ID, UNIT_SET, WORK_UNIT};
use crate::error::{LabError, shortened};
use crate::json;
use crate::table::{Row, Table};

/// Counts the distinct accepted units of a results file. Only its quality side is read, from the
/// rows that name a `unit_set`.
///
/// # Errors
/// [`LabError::Unreadable`]; [`LabError::InTable`] naming line and column of what is not accepted,
/// and both lines where rows contradict each other; [`LabError::NoAcceptedUnits`].
///
/// # Examples
/// ```
/// use std::path::Path;
///
/// use iteragpu_lab::{LabError, accepted_units};
///
/// // Nobody has judged anything in the blank grid.
/// let none = accepted_units(Path::new("resultats-bruts.csv"));
/// assert!(matches!(none, Err(LabError::NoAcceptedUnits { .. })));
/// ```
pub fn accepted_units(path: &Path) -> Result<AcceptedUnits, LabError> {
    let name = path.to_string_lossy();
    let file = File::open(path).map_err(|error| LabError::unreadable(&name, error))?;
    let mut table = Table::open(&name, file, COLUMNS)?;
    let mut count = Count::default();
    while let Some(row) = table.next_row()? {
        if let Some(counted) = Counted::of(&row)? {
            count.add(&row, counted)?;
        }
    }
    count.total(&name)
}

/// The accepted units of a results file. `Display` prints them as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptedUnits {
    /// Always `recorded_units`: counted by people, neither calculated from a model nor simulated.
    pub kind: String,
    /// What one unit is.
    pub work_unit: String,
    /// Version of the rule that decides what is accepted.
    pub rule_version: String,
    /// Distinct units that were tried, over all sets.
    pub attempted_units: u64,
    /// Distinct units that were accepted, over all sets.
    pub accepted_units: u64,
    /// The sets, in alphabetical order.
    pub unit_sets: Vec<UnitSet>,
    /// What was counted and what was not, in French.
    pub scope: String,
}

impl fmt::Display for AcceptedUnits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", json::Pretty(self))
    }
}

/// A set of distinct units.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitSet {
    /// Its name.
    pub unit_set: String,
    /// Distinct units of it that were tried.
    pub attempted_units: u64,
    /// Distinct units of it that were accepted.
    pub accepted_units: u64,
    /// Rows that name it: repetitions, which add no units.
    pub rows: u64,
}

const SCOPE: &str = "Unités distinctes, telles qu'elles ont été comptées et jugées par ceux qui ont rempli le fichier. \
     Chaque ensemble compte une fois, quel que soit le nombre de lignes qui le nomment : répéter un essai n'ajoute pas d'unités. \
     Deux ensembles sont supposés sans unité commune.";

/// Checks the quality side of a row that may be empty.
pub(super) fn check(row: &Row<'_>) -> Result<(), LabError> {
    Counted::of(row).map(|_| ())
}

/// Whether a row counts units of a real task and holds no measurement.
pub(super) fn is_all_of(row: &Row<'_>) -> bool {
    (RUN_ID..COUNTERS.end).all(|column| row.bytes(column).trim_ascii().is_empty())
        && !row.bytes(UNIT_SET).trim_ascii().is_empty()
}

/// The quality side of one row.
struct Counted {
    work_unit: String,
    rule_version: String,
    set: UnitSet,
}

impl Counted {
    /// None where the row names no set and counts nothing.
    fn of(row: &Row<'_>) -> Result<Option<Self>, LabError> {
        let is_empty = |column: usize| row.bytes(column).trim_ascii().is_empty();
        if is_empty(UNIT_SET) {
            if is_empty(ATTEMPTED_UNITS) && is_empty(ACCEPTED_UNITS) {
                return Ok(None);
            }
            return Err(row.refused(UNIT_SET, "le nom de l'ensemble d'unités distinctes que cette ligne compte"));
        }
        let set = UnitSet {
            unit_set: row.filled(UNIT_SET)?,
            attempted_units: row.positive(ATTEMPTED_UNITS)?,
            accepted_units: row.whole(ACCEPTED_UNITS)?,
            rows: 1,
        };
        if set.accepted_units > set.attempted_units {
            let expected = format!("au plus les {} unités tentées de cette ligne", set.attempted_units);
            return Err(row.refused(ACCEPTED_UNITS, &expected));
        }
        Ok(Some(Self { work_unit: row.filled(WORK_UNIT)?, rule_version: row.filled(RULE_VERSION)?, set }))
    }
}

/// Sets counted so far, each with the line that first named it.
#[derive(Default)]
struct Count {
    first: Option<(u64, Counted)>,
    sets: HashMap<String, (u64, UnitSet)>,
}

impl Count {
    fn add(&mut self, row: &Row<'_>, counted: Counted) -> Result<(), LabError> {
        let differs = |column: usize, line: u64, there: &dyn fmt::Display, what: &str| {
            let there = shortened(&there.to_string(), 80);
            Err(row.refused(column, &format!("{what} qu'à la ligne {line}, « {there} »")))
        };
        if let Some((line, known)) = self.sets.get(&counted.set.unit_set) {
            let (known, set, what) = (known, &counted.set, "pour le même ensemble, le même nombre");
            if known.attempted_units != set.attempted_units {
                return differs(ATTEMPTED_UNITS, *line, &known.attempted_units, what);
            }
            if known.accepted_units != set.accepted_units {
                return differs(ACCEPTED_UNITS, *line, &known.accepted_units, what);
            }
        }
        if let Some((line, first)) = &self.first {
            if first.work_unit != counted.work_unit {
                return differs(WORK_UNIT, *line, &first.work_unit, "la même unité de travail");
            }
            if first.rule_version != counted.rule_version {
                return differs(RULE_VERSION, *line, &first.rule_version, "la même version de la règle");
            }
        }
        let set = counted.set.clone();
        self.sets.entry(set.unit_set.clone()).and_modify(|(_, set)| set.rows += 1).or_insert((row.line(), set));
        self.first.get_or_insert((row.line(), counted));
        Ok(())
    }

    fn total(self, name: &str) -> Result<AcceptedUnits, LabError> {
        let none = |reason: &str| LabError::NoAcceptedUnits { file: shortened(name, 120), reason: reason.to_owned() };
        let (_, first) = self.first.ok_or_else(|| {
            none(
                "Aucune ligne ne nomme d'ensemble d'unités : remplissez work_unit, unit_set, attempted_units, \
                 accepted_units et rule_version après avoir jugé les résultats.",
            )
        })?;
        let mut sets: Vec<(u64, UnitSet)> = self.sets.into_values().collect();
        sets.sort_by(|(_, one), (_, other)| one.unit_set.cmp(&other.unit_set));
        let sum = |count: fn(&UnitSet) -> u64| {
            sets.iter().try_fold(0u64, |sum, (line, set)| {
                let too_many = || {
                    let expected = format!("un total d'au plus {} unités pour tous les ensembles", u64::MAX);
                    LabError::in_table(
                        name,
                        *line,
                        COLUMNS[ATTEMPTED_UNITS],
                        &set.attempted_units.to_string(),
                        expected,
                    )
                };
                sum.checked_add(count(set)).ok_or_else(too_many)
            })
        };
        let attempted_units = sum(|set| set.attempted_units)?;
        let accepted_units = sum(|set| set.accepted_units)?;
        if accepted_units == 0 {
            return Err(none(&format!("Aucune des {attempted_units} unités tentées n'a été acceptée.")));
        }
        Ok(AcceptedUnits {
            kind: "recorded_units".to_owned(),
            work_unit: first.work_unit,
            rule_version: first.rule_version,
            attempted_units,
            accepted_units,
            unit_sets: sets.into_iter().map(|(_, set)| set).collect(),
            scope: SCOPE.to_owned(),
        })
    }
}
