//! Rows of counters around phases, measured or simulated, as a table shows them.

use std::ops::Range;

use super::chart::Bars;
use super::figures::integer;
use super::grid::{Column, numbers, words};
use crate::measure::PhaseRow;
use crate::simulation::{RowComparison, SimulatedRow};

/// Baseline, end and peak of allocated, then of reserved.
pub struct Row<'a, T> {
    pub phase: &'a str,
    pub run_index: u64,
    pub counters: [T; 6],
}

impl<'a, T> Row<'a, T> {
    /// Of counters in the order of the JSON, where allocated and reserved take turns.
    fn new(phase: &'a str, run_index: u64, counters: [T; 6]) -> Self {
        let [a, b, c, d, e, f] = counters;
        Self { phase, run_index, counters: [a, c, e, b, d, f] }
    }
}

impl<'a> From<&'a PhaseRow> for Row<'a, u64> {
    fn from(row: &'a PhaseRow) -> Self {
        Self::new(&row.phase, row.run_index, row.counters())
    }
}

impl<'a> From<&'a SimulatedRow> for Row<'a, u64> {
    fn from(row: &'a SimulatedRow) -> Self {
        Self::new(&row.phase, row.run_index, row.counters())
    }
}

impl<'a> From<&'a RowComparison> for Row<'a, i128> {
    fn from(row: &'a RowComparison) -> Self {
        Self::new(&row.phase, row.run_index, row.differences())
    }
}

/// Rows in a row that say the same, so that two hundred thousand repetitions stay readable.
pub struct Group<'a, T> {
    phase: &'a str,
    first: u64,
    last: u64,
    pub counters: [T; 6],
    /// Places of its rows.
    pub places: Range<usize>,
}

impl<T> Group<'_, T> {
    pub fn name(&self) -> String {
        match (self.first, self.last) {
            (0, _) => self.phase.to_owned(),
            (first, last) if first == last => format!("{}\u{a0}{first}", self.phase),
            (first, last) => format!("{}\u{a0}{}\u{a0}à\u{a0}{}", self.phase, integer(first), integer(last)),
        }
    }
}

pub fn groups<'a, T: PartialEq + 'a, R: Into<Row<'a, T>>>(rows: impl IntoIterator<Item = R>) -> Vec<Group<'a, T>> {
    let mut groups: Vec<Group<'a, T>> = Vec::new();
    for (place, row) in rows.into_iter().enumerate() {
        let Row { phase, run_index, counters } = row.into();
        match groups.last_mut() {
            Some(group) if group.phase == phase && group.counters == counters => {
                group.last = run_index;
                group.places.end = place + 1;
            }
            _ => groups.push(Group { phase, first: run_index, last: run_index, counters, places: place..place + 1 }),
        }
    }
    groups
}

/// What the first groups look like in a chart, which has room for no more.
pub fn bars(groups: &[Group<'_, u64>]) -> Vec<Bars> {
    groups.iter().take(8).map(|group| (group.name(), group.counters)).collect()
}

/// A column for the phase, then `between`, then one for each counter.
pub fn columns(between: &[Column]) -> Vec<Column> {
    let counters = [
        "Alloué, avant (octets)",
        "Alloué, à la fin (octets)",
        "Alloué, pic (octets)",
        "Réservé, avant (octets)",
        "Réservé, à la fin (octets)",
        "Réservé, pic (octets)",
    ];
    [words("Phase")].into_iter().chain(between.iter().cloned()).chain(counters.map(numbers)).collect()
}
