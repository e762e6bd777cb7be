//! Tells how far a measurement is, from a thread of its own, since a phase can last for hours
//! without a word of the worker.

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::{MeasureConfig, PHASES, PhaseRow};

/// Shorter measurements need no comment.
const FIRST: Duration = Duration::from_secs(2);

/// Rows so far; none once the measurement has ended.
type Rows = Mutex<Option<u64>>;

/// Runs `measure`, handing it the function that it calls with each row.
pub(super) fn told<T>(
    config: &MeasureConfig,
    mut tell: impl FnMut(&str) + Send,
    measure: impl FnOnce(&mut dyn FnMut(&PhaseRow)) -> T,
) -> T {
    told_from(FIRST, config, &mut tell, measure)
}

fn told_from<T>(
    first: Duration,
    config: &MeasureConfig,
    tell: &mut (dyn FnMut(&str) + Send),
    measure: impl FnOnce(&mut dyn FnMut(&PhaseRow)) -> T,
) -> T {
    let (rows, changed): (Rows, Condvar) = (Mutex::new(Some(0)), Condvar::new());
    thread::scope(|scope| {
        let teller = thread::Builder::new();
        // Without a thread to spare the measurement goes on in silence.
        let _ = teller.spawn_scoped(scope, || report(first, config, tell, &rows, &changed));
        let _ended = Ended(&rows, &changed);
        measure(&mut |_| set(&rows, |rows| rows.map(|count| count + 1)))
    })
}

/// Wakes the reporting thread for good, also when the measurement panics.
struct Ended<'a>(&'a Rows, &'a Condvar);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        set(self.0, |_| None);
        self.1.notify_all();
    }
}

fn set(rows: &Rows, change: impl FnOnce(Option<u64>) -> Option<u64>) {
    let mut rows = rows.lock().unwrap_or_else(PoisonError::into_inner);
    *rows = change(*rows);
}

fn report(first: Duration, config: &MeasureConfig, tell: &mut dyn FnMut(&str), rows: &Rows, changed: &Condvar) {
    let started = Instant::now();
    let mut next = first;
    let mut guard = rows.lock().unwrap_or_else(PoisonError::into_inner);
    while let Some(count) = *guard {
        let elapsed = started.elapsed();
        if elapsed >= next {
            drop(guard);
            tell(&line(config, count, elapsed));
            next = elapsed * 2;
            guard = rows.lock().unwrap_or_else(PoisonError::into_inner);
        } else {
            guard = changed.wait_timeout(guard, next - elapsed).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// What runs now, after `rows` rows.
fn line(config: &MeasureConfig, rows: u64, elapsed: Duration) -> String {
    let doing = match rows {
        0 => format!("démarrage du GPU, puis phase {}", PHASES[0]),
        1 | 2 => format!("phase {}", PHASES[rows as usize]),
        3 => format!("phase {}, {} passages d'affilée", PHASES[3], config.warmup),
        _ if rows - 4 >= config.repeats => "fin de la mesure".to_owned(),
        _ => format!("phase {}, passage {} sur {}", PHASES[4], rows - 3, config.repeats),
    };
    format!("Mesure en cours depuis {} s : {doing}.", elapsed.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_names_what_runs() {
        let config = MeasureConfig { warmup: 7, repeats: 3, ..MeasureConfig::default() };
        let lines: Vec<String> = (0..8).map(|rows| line(&config, rows, Duration::from_millis(2900))).collect();
        assert_eq!(lines[1], "Mesure en cours depuis 2 s : phase inputs.");
        for (line, part) in lines.iter().zip(["model_load", "inputs", "cold_forward", "7 passages", "passage 1 sur 3"])
        {
            assert!(line.contains(part), "{line}");
        }
        assert!(lines[6].contains("passage 3 sur 3") && lines[7].contains("fin de la mesure"));
    }

    #[test]
    fn a_long_measurement_is_told_in_a_few_lines_and_a_short_one_in_none() {
        let told_in = |first: Duration, lasts: Duration| {
            let mut lines = Vec::new();
            let mut tell = |line: &str| lines.push(line.to_owned());
            told_from(first, &MeasureConfig::default(), &mut tell, |_| thread::sleep(lasts));
            lines.len()
        };
        let (tick, long) = (Duration::from_millis(20), Duration::from_millis(400));
        // At 20, 40, 80, 160 and 320 ms when the machine is idle; later and fewer when it is not.
        assert!((1..=5).contains(&told_in(tick, long)));
        assert_eq!(told_in(Duration::from_secs(60), tick), 0);
    }
}
