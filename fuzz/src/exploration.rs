//! A file of explorations of any bytes: refused with its line, or reported; merged, it says the same.

use std::collections::BTreeMap;
use std::path::Path;

use iteragpu_lab::LabError;
use iteragpu_lab::explore::report::{ExplorationReport, PointReport, Report, SampledTimes};
use iteragpu_lab::explore::{merge, report};

use crate::inert::{assert_page, assert_refused, assert_shows, assert_text};
use crate::scratch;

pub fn check(data: &[u8]) {
    let file = scratch::holding("exploration.jsonl", data);
    let outcome = report(&file);
    let Ok(found) = &outcome else {
        assert!(matches!(outcome, Err(LabError::ExplorationRefused { .. })), "{outcome:?}");
        return assert_refused(&outcome);
    };
    assert_shows(&outcome);
    assert_text(&found.table());
    assert_page(&found.page());
    assert_eq!(serde_json::from_str::<Report>(&found.to_string()).unwrap(), *found);
    assert_eq!(found.last_line_cut, data.last() != Some(&b'\n'));
    found.explorations.iter().for_each(assert_exploration);
    assert_merged(found, &file);
}

fn assert_exploration(exploration: &ExplorationReport) {
    let ExplorationReport { plan, points, failures, .. } = exploration;
    let runs = exploration.measured_runs + exploration.failed_runs + exploration.missing_runs;
    assert_eq!((runs, points.len()), (plan.runs.len() as u64, plan.points.len()));
    assert_eq!(failures.len() as u64, exploration.failed_runs);
    for (place, (point, config)) in points.iter().zip(&plan.points).enumerate() {
        assert!(point.measured_runs + point.failed_runs <= plan.trials);
        assert_eq!(failures.iter().filter(|failure| failure.point == place).count() as u64, point.failed_runs);
        assert_eq!(point.warm_forward.as_ref().map_or(0, |times| times.count), point.measured_runs * config.repeats);
        let times = [&point.warm_forward, &point.device_forward, &point.device_graph_replay];
        times.into_iter().flatten().for_each(assert_times);
        for peak in [point.peak_allocated_bytes, point.peak_reserved_bytes] {
            assert_eq!(peak.is_some(), point.measured_runs > 0);
            assert!(peak.is_none_or(|peak| peak.min <= peak.max && (point.measured_runs > 1 || peak.min == peak.max)));
        }
        let tried = point.simulated.is_some() != point.simulation_note.is_some();
        assert_eq!(tried, point.measured_runs > 0);
    }
}

fn assert_times(times: &SampledTimes) {
    // So few fit into an input that all of them are kept.
    assert_eq!(times.observations.len() as u64, times.count);
    let mut seconds: Vec<f64> = times.observations.iter().map(|observation| observation.seconds).collect();
    seconds.sort_by(f64::total_cmp);
    assert_eq!((times.min_seconds, times.max_seconds), (seconds[0], seconds[seconds.len() - 1]));
    let (below, above) = (seconds[(seconds.len() - 1) / 2], seconds[seconds.len() / 2]);
    assert!(below <= times.median_seconds && times.median_seconds <= above, "{times:?}");
}

/// What does not depend on the order of the runs.
fn figures(point: &PointReport) -> impl PartialEq + std::fmt::Debug + use<> {
    let times = [&point.warm_forward, &point.device_forward, &point.device_graph_replay];
    let times = times.map(|times| {
        times.as_ref().map(|times| (times.count, times.min_seconds, times.median_seconds, times.max_seconds))
    });
    (point.measured_runs, point.failed_runs, times, point.peak_allocated_bytes, point.peak_reserved_bytes)
}

fn assert_merged(found: &Report, file: &Path) {
    let output = file.with_extension("merged.jsonl");
    merge(&[file.to_owned()], &output).unwrap();
    let merged = report(&output).unwrap();
    let by_id = |report: &Report| -> BTreeMap<String, Vec<_>> {
        let of = |one: &ExplorationReport| (one.exploration_id.clone(), one.points.iter().map(figures).collect());
        report.explorations.iter().map(of).collect()
    };
    assert_eq!(by_id(&merged), by_id(found));
    assert!(!merged.last_line_cut);
    assert_eq!(scratch::files(), 2, "something was left behind");
}
