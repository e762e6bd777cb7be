//! Message lines on standard output.

use std::io::{self, BufWriter, Stdout, Write};
use std::time::{Duration, Instant};

use iteragpu_lab::protocol::Message;

/// Buffers lines, so that a measurement of many repetitions is not a system call each; a reader
/// still sees progress several times a second.
pub struct Output {
    lines: BufWriter<Stdout>,
    flushed: Instant,
}

const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

impl Output {
    pub fn new() -> Self {
        Self { lines: BufWriter::with_capacity(1 << 16, io::stdout()), flushed: Instant::now() }
    }

    pub fn send(&mut self, message: &Message) {
        let written = serde_json::to_writer(&mut self.lines, message).map_err(io::Error::from);
        let written = written.and_then(|()| self.lines.write_all(b"\n"));
        if written.is_err() {
            leave_alone();
        }
        if self.flushed.elapsed() >= PROGRESS_INTERVAL {
            self.flush();
        }
    }

    pub fn flush(&mut self) {
        self.flushed = Instant::now();
        if self.lines.flush().is_err() {
            leave_alone();
        }
    }
}

/// Nobody listens any more: there is no one to report to, and nothing to measure for.
fn leave_alone() -> ! {
    crate::boundary::exit(1)
}
