//! Times the model of the allocator on a great number of events. A benchmark, not a test: machines are
//! shared.

use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use fastrand::Rng;
use iteragpu_lab::simulation::{BlockId, CachingAllocator};

use crate::UsageError;

#[derive(Args)]
pub struct SimulationBenchArgs {
    /// Nombre d'allocations et de libérations [par défaut : 1000000]
    #[arg(long, value_name = "NOMBRE", default_value_t = 1_000_000, hide_default_value = true)]
    events: usize,
    /// Nombre de passages [par défaut : 5]
    #[arg(long, value_name = "NOMBRE", default_value_t = 5, hide_default_value = true)]
    runs: usize,
    /// Graine du tirage [par défaut : 1729]
    #[arg(long, value_name = "NOMBRE", default_value_t = 1729, hide_default_value = true)]
    seed: u64,
}

pub fn run(arguments: &SimulationBenchArgs) -> anyhow::Result<ExitCode> {
    if arguments.events == 0 || arguments.runs == 0 {
        return Err(UsageError("--events et --runs : au moins 1.".to_owned()).into());
    }
    for _ in 0..arguments.runs {
        let start = Instant::now();
        let allocator = simulated(arguments.events, arguments.seed);
        let seconds = start.elapsed().as_secs_f64();
        println!("{} événements en {seconds:.3} s : {:?}", arguments.events, allocator.counters());
    }
    Ok(ExitCode::SUCCESS)
}

/// Up to some thousand blocks at once, of one byte to 64 MiB, evenly in their magnitude.
fn simulated(events: usize, seed: u64) -> CachingAllocator {
    const MOST_BLOCKS: f64 = 4_000.0;
    let mut random = Rng::with_seed(seed);
    let mut allocator = CachingAllocator::new();
    let mut live: Vec<BlockId> = Vec::new();
    for _ in 0..events {
        let fullness = live.len() as f64 / MOST_BLOCKS;
        if random.f64() >= fullness {
            live.push(allocator.allocate(2f64.powf(random.f64() * 26.0) as u64));
        } else {
            let place = (random.f64() * live.len() as f64) as usize;
            allocator.free(live.swap_remove(place));
        }
    }
    allocator
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_events_come_every_time_and_blocks_live_on() {
        let counters = |seed| simulated(20_000, seed).counters();
        assert_eq!(counters(1), counters(1));
        assert_ne!(counters(1), counters(2));
        assert!(counters(1).allocated > 0 && counters(1).peak_reserved >= counters(1).peak_allocated);
    }
}
