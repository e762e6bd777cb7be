//! What must hold for any input at all, one module for every way in. `check` panics where it does
//! not: the programs of `fuzz_targets` look for such an input.
//!
//! Results are compared with arithmetic of another kind (`num-bigint`), written back and read again,
//! or obtained a second way; that nothing panics is the least of it.

pub mod command_line;
pub mod exploration;
pub mod measurement;
pub mod protocol;
pub mod results;
pub mod tariffs;

mod exact;
mod inert;
mod scratch;

/// A small real measurement, of an H200.
const MEASUREMENT: &[u8] = include_bytes!("../measurement.json");
