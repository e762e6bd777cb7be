//! A worker that writes any bytes at all: a measurement that can be recorded, or a reason.
//!
//! The first byte chooses what was asked; the rest is the worker's standard output, and from the
//! first zero byte on its standard error.

use std::io::{Cursor, Read};

use iteragpu_lab::environment::environment_recorded;
use iteragpu_lab::measure::{Extras, measure_recorded};
use iteragpu_lab::protocol::Message;
use iteragpu_lab::results::read_measurement;
use iteragpu_lab::worker::Recorded;
use iteragpu_lab::{LabError, MeasureConfig, Measurement, PhaseRow};

use crate::inert::{assert_refused, assert_shows};
use crate::scratch;

pub fn check(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    let end = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let (output, last_words) = (&data[..end], data[end..].get(1..).unwrap_or_default());
    for line in output.split_inclusive(|byte| *byte == b'\n') {
        assert_message(line);
    }
    // A pipe gives what has arrived, in pieces of any size.
    let step = usize::from(*choice >> 2) + 1;
    if choice & 1 == 0 {
        let extras = Extras { digest: choice & 2 != 0, device_passes: (choice & 0x80 != 0).then_some(2) };
        let whole = measured(Cursor::new(output), last_words, extras);
        let pieces = measured(Pieces { rest: output, step }, last_words, extras);
        assert_eq!(whole, pieces);
    } else {
        let whole = environment(Cursor::new(output), last_words);
        assert_eq!(whole, environment(Pieces { rest: output, step }, last_words));
    }
}

/// A line that is a message says the same when it is written and read again.
fn assert_message(line: &[u8]) {
    if let Ok(message) = serde_json::from_slice::<Message>(line) {
        let text = serde_json::to_string(&message).unwrap();
        assert!(!text.contains('\n'));
        assert_eq!(serde_json::from_str::<Message>(&text).unwrap(), message);
    }
}

/// Phases and what belongs to them, or the reason.
fn measured(output: impl Read, last_words: &[u8], extras: Extras) -> Result<String, String> {
    let config = MeasureConfig { batch: 1, context: 1, width: 1, warmup: 1, repeats: 2, ..MeasureConfig::default() };
    let mut rows: Vec<PhaseRow> = Vec::new();
    let outcome =
        measure_recorded(Recorded::new(output, last_words), &config, extras, &mut |row| rows.push(row.clone()));
    let measurement = match &outcome {
        Ok(measurement) => measurement,
        Err(error) => {
            assert_reason(error);
            assert_refused(&outcome);
            return Err(error.to_string());
        }
    };
    assert_shows(&outcome);
    assert_eq!(measurement.phases, rows);
    assert_measured(measurement, &config, extras);
    Ok(format!("{rows:?} {:?} {:?}", measurement.environment, measurement.synthetic_model))
}

fn assert_measured(measurement: &Measurement, config: &MeasureConfig, extras: Extras) {
    assert_eq!(measurement.configuration.chosen, *config);
    assert_eq!(measurement.phases.len() as u64, 4 + config.repeats);
    assert_eq!(measurement.digests_sha256.is_some(), extras.digest);
    assert_eq!(measurement.device_time.as_ref().map(|time| time.passes), extras.device_passes);
    assert_eq!(measurement.synthetic_model.parameter_count, 2 * config.width * (config.width + 1));
    assert_eq!(measurement.synthetic_model.parameter_bytes, 8 * config.width * (config.width + 1));
    let environment = &measurement.environment;
    assert!(environment.selected_device_available && environment.gpu_available && environment.reason.is_none());
    // What is given out as a measurement is one that the other commands take.
    let file = scratch::holding("mesure.json", measurement.to_string().as_bytes());
    assert_eq!(read_measurement(&file).unwrap(), *measurement);
}

fn assert_reason(error: &LabError) {
    let is_known = matches!(
        error,
        LabError::NotTheProtocol { .. }
            | LabError::WorkerVersion { .. }
            | LabError::WorkerStopped { .. }
            | LabError::Unavailable(_)
            | LabError::LibtorchNotLoaded { .. }
            | LabError::LibtorchUnusable { .. }
            | LabError::LibtorchMismatch { .. }
    );
    assert!(is_known, "{error:?}");
}

/// The report is never an error of the worker: it says what is missing, and why.
fn environment(output: impl Read, last_words: &[u8]) -> String {
    let outcome = environment_recorded(Recorded::new(output, last_words), "cuda:0");
    assert_shows(&outcome);
    let report = outcome.unwrap();
    assert_eq!(report.selected_device_available, report.reason.is_none(), "{report}");
    assert!(report.gpu_available || !report.selected_device_available, "{report}");
    assert_eq!(report.torch_importable, report.torch_version.is_some());
    report.to_string()
}

/// Gives at most `step` bytes at a time.
struct Pieces<'a> {
    rest: &'a [u8],
    step: usize,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = self.step.min(buffer.len());
        (&mut self.rest).take(length as u64).read(buffer)
    }
}
