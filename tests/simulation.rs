//! The simulation beside measurements of a real GPU, and properties that hold for any configuration.

mod common;

use std::fs;

use common::measurements;
use iteragpu_lab::simulation::{
    AllocatorProfile, BlockId, CachingAllocator, Evidence, compare_with_simulation, simulate,
};
use iteragpu_lab::{Dtype, EnvironmentReport, LabError, MeasureConfig};
use proptest::prelude::*;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

#[test]
fn ten_measured_configurations_are_simulated_to_the_byte() -> Outcome {
    for measurement in measurements()? {
        let comparison = compare_with_simulation(&measurement)?;
        assert!(comparison.identical, "{:?}\n{comparison}", measurement.configuration.chosen);
    }
    Ok(())
}

#[test]
fn one_byte_of_difference_is_shown_where_it_is() -> Outcome {
    let mut measurement = measurements()?.swap_remove(1);
    measurement.phases[2].peak_allocated_bytes += 512;
    let comparison = compare_with_simulation(&measurement)?;
    assert!(!comparison.identical);
    let differing = comparison.rows.iter().filter(|row| row.differences().iter().any(|difference| *difference != 0));
    let differing: Vec<_> = differing.map(|row| (row.phase.as_str(), row.differences())).collect();
    assert_eq!(differing, [("cold_forward", [0, 0, 0, 0, 512, 0])]);
    measurement.phases.pop();
    assert!(!compare_with_simulation(&measurement)?.identical, "a missing row is a difference");
    Ok(())
}

#[test]
fn other_settings_are_not_modelled() -> Outcome {
    let mut measurement = measurements()?.swap_remove(1);
    let settings = measurement.environment.runtime_settings.as_mut().ok_or("no settings")?;
    settings.expandable_segments = true;
    let refused = compare_with_simulation(&measurement).map(|_| ()).map_err(|error| error.to_string());
    assert!(refused.is_err_and(|text| text.contains("expandable_segments=true")));
    Ok(())
}

#[test]
fn another_pytorch_is_not_modelled() -> Outcome {
    type Change = fn(&mut EnvironmentReport);
    let cases: [(&str, Change); 5] = [
        ("PyTorch 2.10.0+cu128", |e| e.torch_version = Some("2.10.0+cu128".to_owned())),
        ("PyTorch 2.110.0", |e| e.torch_version = Some("2.110.0".to_owned())),
        ("PyTorch 2.12.0", |e| e.torch_version = Some("2.12.0\n".to_owned() + &"A".repeat(1 << 20))),
        ("PyTorch de version inconnue", |e| e.torch_version = None),
        ("PyTorch pour ROCm", |e| e.hip_build_version = Some("6.4".to_owned())),
    ];
    for (expected, change) in cases {
        let mut measurement = measurements()?.swap_remove(1);
        change(&mut measurement.environment);
        let refused = compare_with_simulation(&measurement);
        assert!(matches!(&refused, Err(LabError::NotModelled { what }) if what.starts_with(expected)), "{refused:?}");
        let said = refused.map(|_| ()).map_err(|error| error.to_string()).err().unwrap_or_default();
        assert!(said.chars().count() < 500 && !said.contains('\n'), "{said}");
    }
    Ok(())
}

/// The defaults of the GPU's architecture take the place of sizes that PyTorch did not tell.
#[test]
fn a_measurement_without_settings_is_compared_and_the_evidence_says_with_what() -> Outcome {
    let mut measurement = measurements()?.swap_remove(1);
    assert_eq!(compare_with_simulation(&measurement)?.profile.evidence, Evidence::Told);
    measurement.environment.runtime_settings = None;
    let comparison = compare_with_simulation(&measurement)?;
    assert_eq!((comparison.identical, comparison.profile.evidence), (true, Evidence::Measured));
    measurement.environment.selected_device_compute_capability = Some("A100".to_owned());
    assert_eq!(compare_with_simulation(&measurement)?.profile.evidence, Evidence::Assumed);
    Ok(())
}

/// A file may hold anything under a setting's name.
#[test]
fn settings_from_a_file_are_named_in_one_short_line() -> Outcome {
    let hostile = "x\n\u{1b}[31mEVCXR_BEGIN_CONTENT text/html\u{202e}".to_owned() + &"A".repeat(1 << 20);
    let mut measurement = measurements()?.swap_remove(1);
    let settings = measurement.environment.runtime_settings.as_mut().ok_or("no settings")?;
    settings.set_outside = vec![hostile.clone()];
    settings.allocator_backend = hostile;
    let said = compare_with_simulation(&measurement).map(|_| ()).map_err(|error| error.to_string());
    let said = said.err().ok_or("accepted")?;
    assert!(said.contains("allocator_backend=x"), "{said}");
    assert!(said.chars().count() < 1000 && !said.contains("EVCXR_"), "{said}");
    assert!(!said.contains(['\n', '\u{1b}', '\u{202e}']), "{said}");
    Ok(())
}

#[test]
fn figures_of_a_file_that_cannot_be_simulated_are_no_wrong_arguments() -> Outcome {
    let measurement = measurements()?.swap_remove(1);
    let mut repeated = measurement.clone();
    repeated.configuration.chosen.repeats = 1_000_001;
    let mut huge = measurement;
    let settings = huge.environment.runtime_settings.as_mut().ok_or("no settings")?;
    (settings.cublas_workspace_bytes, settings.cublaslt_workspace_bytes) = (Some(u64::MAX), Some(u64::MAX));
    for (measurement, expected) in [(repeated, "1000001"), (huge, "2^64")] {
        let refused = compare_with_simulation(&measurement);
        assert!(matches!(&refused, Err(LabError::NotModelled { what }) if what.contains(expected)), "{refused:?}");
    }
    Ok(())
}

/// 320 configurations drawn at random were measured and compared: `cargo xtask verify-simulation`.
/// What was simulated then is simulated now.
#[test]
fn the_kept_verification_is_complete_and_still_what_is_simulated() -> Outcome {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/mesures/h200-simulation.json"))?;
    let kept: serde_json::Value = serde_json::from_str(&text)?;
    let cases = kept["cases"].as_array().ok_or("no cases")?;
    assert!(cases.len() >= 300);
    for case in cases {
        assert_eq!(case["identical"], true, "{case}");
        let config: MeasureConfig = serde_json::from_value(case["configuration"].clone())?;
        let simulation = simulate(&config, &AllocatorProfile::hopper())?;
        let peak = simulation.phases.iter().map(|row| row.peak_reserved_bytes).max();
        assert_eq!(peak, case["simulated_peak_reserved_bytes"].as_u64(), "{case}");
    }
    Ok(())
}

#[test]
fn a_memory_is_exceeded_by_what_is_missing() -> Outcome {
    let simulation = simulate(&MeasureConfig::default(), &AllocatorProfile::hopper())?;
    let peak = measurements()?[1].phases.iter().map(|row| row.peak_reserved_bytes).max().ok_or("no rows")?;
    for (given, missing) in [(peak, 0), (peak - 1, 1), (peak + 1, 0), (1, peak - 1), (u64::MAX, 0)] {
        let memory = simulation.clone().beside_memory(given).gpu_memory.ok_or("no memory")?;
        assert_eq!((memory.missing_bytes, memory.exceeded), (missing, missing > 0), "{given}");
    }
    Ok(())
}

#[test]
fn what_cannot_be_counted_is_refused() {
    let refused: [fn(&mut MeasureConfig); 4] = [
        |config| config.batch = 0,
        |config| config.repeats = 1_000_001,
        |config| config.width = 1 << 40,
        |config| config.batch = 1 << 51,
    ];
    for change in refused {
        let mut config = MeasureConfig::default();
        change(&mut config);
        assert!(simulate(&config, &AllocatorProfile::hopper()).is_err(), "{config:?}");
    }
    // As large as a measurement accepts, or just not.
    for width in [1 << 28, 1 << 29, 1 << 30] {
        let config = MeasureConfig { batch: 1, context: 1, width, dtype: Dtype::Float16, ..MeasureConfig::default() };
        let _ = simulate(&config, &AllocatorProfile::hopper());
    }
}

fn configurations() -> impl Strategy<Value = MeasureConfig> {
    let dtype = prop::sample::select(vec![Dtype::Float32, Dtype::Float16, Dtype::Bfloat16]);
    (1u64..300, 1u64..20_000, 1u64..20_000, dtype, 1u64..5, 1u64..6).prop_map(
        |(batch, context, width, dtype, warmup, repeats)| MeasureConfig {
            batch,
            context,
            width,
            dtype,
            warmup,
            repeats,
            ..MeasureConfig::default()
        },
    )
}

proptest! {
    #[test]
    fn counters_never_contradict_each_other(config in configurations()) {
        let simulation = simulate(&config, &AllocatorProfile::hopper()).map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert_eq!(simulation.phases.len() as u64, 4 + config.repeats);
        for row in &simulation.phases {
            let (allocated, reserved) = (row.baseline_allocated_bytes, row.baseline_reserved_bytes);
            prop_assert!(row.peak_allocated_bytes >= row.end_allocated_bytes.max(allocated));
            prop_assert!(row.peak_reserved_bytes >= row.end_reserved_bytes.max(reserved));
            prop_assert!(reserved >= allocated && row.end_reserved_bytes >= row.end_allocated_bytes);
            prop_assert!(row.peak_reserved_bytes >= row.peak_allocated_bytes);
        }
        let parts = simulation.breakdown;
        let sum = parts.parameters_bytes + parts.inputs_bytes + parts.activations_bytes
            + parts.library_workspace_bytes + parts.rounding_bytes + parts.unused_segment_bytes;
        prop_assert_eq!(sum, parts.reserved_bytes);
        prop_assert_eq!(parts.parameters_bytes, simulation.synthetic_model.parameter_bytes);
        let peak = simulation.phases.iter().map(|row| row.peak_allocated_bytes).max();
        prop_assert_eq!(peak, Some(parts.reserved_bytes - parts.unused_segment_bytes));
    }

    /// The last row of many repetitions is that of all of them one by one.
    #[test]
    fn leaving_out_what_repeats_changes_nothing(config in configurations(), more in 6u64..40) {
        let short = simulate(&config, &AllocatorProfile::hopper()).map_err(|e| TestCaseError::fail(e.to_string()))?;
        let config = MeasureConfig { repeats: more, warmup: more, ..config };
        let long = simulate(&config, &AllocatorProfile::hopper()).map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert_eq!(&short.phases[..3], &long.phases[..3]);
        prop_assert!(long.phases[5..].windows(2).all(|pair| pair[0].peak_allocated_bytes == pair[1].peak_allocated_bytes));
        prop_assert_eq!(long.phases.last().map(|row| row.run_index), Some(more));
    }

    /// Any order of requests and releases, beside an obvious model of the same blocks.
    #[test]
    fn freeing_everything_returns_to_nothing_allocated(
        steps in prop::collection::vec((any::<bool>(), 1u64..(40 << 20), any::<prop::sample::Index>()), 1..300)
    ) {
        let mut allocator = CachingAllocator::new();
        let mut live: Vec<BlockId> = Vec::new();
        let mut highest = 0;
        for (allocate, bytes, place) in steps {
            if allocate || live.is_empty() {
                let block = allocator.allocate(bytes);
                let size = allocator.size_of(&block);
                prop_assert!(size >= bytes && size.is_multiple_of(512));
                live.push(block);
            } else {
                allocator.free(live.swap_remove(place.index(live.len())));
            }
            let now = allocator.counters();
            let sum: u64 = live.iter().map(|block| allocator.size_of(block)).sum();
            highest = highest.max(sum);
            prop_assert_eq!((now.allocated, now.peak_allocated), (sum, highest));
            prop_assert!(now.reserved >= now.allocated && now.peak_reserved == now.reserved);
        }
        let reserved = allocator.counters().reserved;
        live.into_iter().for_each(|block| allocator.free(block));
        prop_assert_eq!((allocator.counters().allocated, allocator.counters().reserved), (0, reserved));
    }
}
