//! Smallest, middle and largest of repeated figures.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

/// Smallest, middle and largest of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spread<T> {
    /// Smallest.
    pub min: T,
    /// Middle one; between two middle ones, their mean. Where that mean of two counts of bytes is
    /// no integer, the smaller of the two.
    pub median: T,
    /// Largest.
    pub max: T,
}

impl Spread<f64> {
    /// Of times in seconds; `None` when there are none.
    pub(crate) fn of_times(times: &mut [f64]) -> Option<Self> {
        let (min, lower, upper, max) = landmarks(times, f64::total_cmp)?;
        Some(Self { min, median: lower.midpoint(upper), max })
    }
}

/// Smallest, the two middle ones (one and the same for an odd number), largest.
pub(crate) fn landmarks<T: Copy>(values: &mut [T], order: fn(&T, &T) -> Ordering) -> Option<(T, T, T, T)> {
    let is_odd = values.len() % 2 == 1;
    let middle = values.len() / 2;
    if values.is_empty() {
        return None;
    }
    // Much less work than to sort them all.
    let (below, upper, above) = values.select_nth_unstable_by(middle, order);
    let (largest_below, upper) = (below.iter().copied().max_by(order), *upper);
    let min = below.iter().copied().min_by(order).unwrap_or(upper);
    let max = above.iter().copied().max_by(order).unwrap_or(upper);
    let lower = largest_below.filter(|_| !is_odd).unwrap_or(upper);
    Some((min, lower, upper, max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_times() {
        let median = |times: &mut [f64]| Spread::of_times(times).map(|spread| spread.median);
        assert_eq!(median(&mut []), None);
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&mut [f64::MAX, f64::MAX]), Some(f64::MAX));
    }
}
