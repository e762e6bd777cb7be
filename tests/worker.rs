//! The library's side of the protocol, against a stand-in worker that misbehaves on demand.
#![cfg(unix)]

mod common;

use std::time::{Duration, Instant};

use common::StandIn;
use iteragpu_lab::environment::environment_report_with;
use iteragpu_lab::measure::{Extras, measure_with};
use iteragpu_lab::protocol::{Bfloat16Support, Failure, VERSION};
use iteragpu_lab::worker::WorkerProgram;
use iteragpu_lab::{LabError, MeasureConfig, Measurement};

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn config() -> MeasureConfig {
    MeasureConfig { batch: 1, context: 1, width: 1, warmup: 1, repeats: 2, ..MeasureConfig::default() }
}

/// Measures with a stand-in that is given little time.
fn measure_as(behaviour: &str) -> std::io::Result<Result<Measurement, LabError>> {
    let stand_in = StandIn::new(behaviour)?;
    let worker = WorkerProgram::at(stand_in.program()).with_patience(Duration::from_secs(2));
    Ok(measure_with(&worker, &config(), Extras::default(), &mut |_| ()))
}

#[test]
fn the_stand_in_speaks_for_this_version() -> Outcome {
    assert!(std::fs::read_to_string("tests/stand-in-worker.sh")?.contains(&format!("VERSION={VERSION}\n")));
    Ok(())
}

#[test]
fn a_good_worker_gives_a_measurement() -> Outcome {
    for behaviour in ["good", "talkative", "slow"] {
        let measurement = measure_as(behaviour)??;
        assert_eq!(measurement.phases.len(), 6, "{behaviour}");
        assert_eq!(measurement.phases[3].iterations, Some(1));
        assert_eq!(measurement.environment.selected_device_bfloat16, Some(Bfloat16Support::Emulated));
        assert_eq!(measurement.environment.reason, None);
    }
    Ok(())
}

fn measure_with_passes(behaviour: &str, passes: u64) -> std::io::Result<Result<Measurement, LabError>> {
    let stand_in = StandIn::new(behaviour)?;
    let extras = Extras { device_passes: Some(passes), ..Extras::default() };
    Ok(measure_with(&WorkerProgram::at(stand_in.program()), &config(), extras, &mut |_| ()))
}

#[test]
fn device_time_is_every_observation_or_the_reason_why_not() -> Outcome {
    let measurement = measure_with_passes("good", 4)??;
    let time = measurement.device_time.as_ref().ok_or("no device time")?;
    // 0.5, 1.5, 2.5 and 3.5 seconds.
    assert_eq!((time.passes, time.forward.device_seconds.len()), (4, 4));
    let replay = time.graph_replay.as_ref().ok_or("no replay")?;
    assert_eq!((replay.min_device_seconds, replay.median_device_seconds, replay.max_device_seconds), (0.5, 2.0, 3.5));
    let plain = measure_as("good")??;
    assert_eq!((measurement.phases, plain.device_time), (plain.phases, None), "the phases are the same without it");

    let time = measure_with_passes("no-graph", 2)??.device_time.ok_or("no device time")?;
    let note = time.graph_replay_note.ok_or("no note")?;
    assert!(time.graph_replay.is_none() && note.contains("la mémoire du GPU ne suffit pas"), "{note}");

    for behaviour in ["few-passes", "no-device-time"] {
        let refused = measure_with_passes(behaviour, 2)?;
        assert!(matches!(refused, Err(LabError::NotTheProtocol { .. })), "{behaviour}: {refused:?}");
    }
    assert!(matches!(measure_as("few-passes")?, Err(LabError::NotTheProtocol { .. })), "nobody asked");
    for passes in [0, 10_001] {
        assert!(matches!(measure_with_passes("good", passes)?, Err(LabError::InvalidArgument { .. })), "{passes}");
    }
    Ok(())
}

#[test]
fn rows_arrive_while_the_worker_runs() -> Outcome {
    let stand_in = StandIn::new("slow")?;
    let start = Instant::now();
    let mut arrivals = Vec::new();
    measure_with(&WorkerProgram::at(stand_in.program()), &config(), Extras::default(), &mut |_| {
        arrivals.push(start.elapsed())
    })?;
    assert!(arrivals[1] - arrivals[0] > Duration::from_millis(500), "{arrivals:?}");
    Ok(())
}

#[test]
fn a_measurement_has_the_originals_keys_in_its_order() -> Outcome {
    let text = measure_as("good")??.to_string();
    let value: serde_json::Value = serde_json::from_str(&text)?;
    let keys = |value: &serde_json::Value| -> Vec<String> {
        value.as_object().map(|object| object.keys().cloned().collect()).unwrap_or_default()
    };
    // Keys at the first level, in the order of the text (a `Value` would sort them).
    let top: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("  \"")?.split('"').next()).collect();
    let expected = [
        "schema_version",
        "artifact",
        "kind",
        "measured_at_utc",
        "environment",
        "configuration",
        "synthetic_model",
        "scope",
        "interpretation",
        "phases",
    ];
    assert_eq!(top, expected);
    assert_eq!(keys(&value["synthetic_model"]), ["definition", "parameter_bytes", "parameter_count"]);
    for key in [
        "platform",
        "requested_device",
        "torch_importable",
        "torch_version",
        "cuda_build_version",
        "hip_build_version",
        "gpu_available",
        "visible_device_count",
        "selected_device_available",
        "selected_device_name",
        "selected_device_total_bytes",
        "driver_version",
        "driver_note",
        "lab_version",
        "tch_version",
    ] {
        assert!(value["environment"].get(key).is_some(), "{key}");
    }
    assert!(value["phases"][0].get("iterations").is_none() && value["phases"][3]["iterations"] == 1);
    Ok(())
}

/// The words that keep people from reading the counters as something else.
#[test]
fn the_text_beside_the_counters_says_what_they_are_not() -> Outcome {
    let measurement = measure_as("good")??;
    for words in [
        "allocated est contenu dans reserved",
        "espace de travail de cuBLAS",
        "pas une fuite",
        "l'outil du fournisseur",
    ] {
        assert!(measurement.interpretation.contains(words), "{words}: {}", measurement.interpretation);
    }
    for words in ["les autres processus", "les allocations extérieures à PyTorch"] {
        assert!(measurement.scope.contains(words), "{words}: {}", measurement.scope);
    }
    Ok(())
}

/// What a behaviour must be answered with.
type Expected = fn(&LabError) -> bool;

#[test]
fn every_misbehaviour_has_its_own_reason() -> Outcome {
    let cases: [(&str, Expected); 42] = [
        ("silent", |e| matches!(e, LabError::WorkerSilent { seconds: 2 })),
        ("garbage", |e| matches!(e, LabError::NotTheProtocol { found } if found == "Segmentation tree ready")),
        ("binary", |e| matches!(e, LabError::NotTheProtocol { .. })),
        ("endless-line", |e| matches!(e, LabError::NotTheProtocol { .. })),
        ("half", |e| matches!(e, LabError::NotTheProtocol { found } if found.contains("measu"))),
        ("half-killed", |e| matches!(e, LabError::WorkerKilled { signal: 9, .. })),
        ("killed", |e| matches!(e, LabError::WorkerKilled { signal: 9, .. })),
        ("terminated", |e| matches!(e, LabError::WorkerKilled { signal: 15, .. })),
        ("crashed", |e| matches!(e, LabError::WorkerStopped { last_words, .. } if last_words.contains("c10::Error"))),
        (
            "aborted",
            |e| matches!(e, LabError::WorkerStopped { code: 134, last_words } if last_words == "Error in libcuda.so.1: no entry"),
        ),
        ("quiet-exit", |e| matches!(e, LabError::WorkerStopped { .. })),
        ("no-library", |e| matches!(e, LabError::LibtorchNotLoaded { library } if library == "libtorch_cuda.so")),
        ("other-library", |e| matches!(e, LabError::LibtorchMismatch { symbol } if symbol == "_ZN3c105ErrorC1Ev")),
        ("other-version", |e| matches!(e, LabError::WorkerVersion { found, .. } if found == "9.9.9")),
        ("no-hello", |e| matches!(e, LabError::NotTheProtocol { .. })),
        ("two-hellos", |e| matches!(e, LabError::NotTheProtocol { .. })),
        ("environment-instead", |e| matches!(e, LabError::NotTheProtocol { .. })),
        ("flood", |e| matches!(e, LabError::NotTheProtocol { .. })),
        ("grandchild", |e| matches!(e, LabError::WorkerKilled { signal: 9, .. })),
        ("no-device", |e| matches!(e, LabError::NotTheProtocol { .. })),
        ("zeros", |e| matches!(e, LabError::NotTheProtocol { .. })),
        ("impossible", |e| matches!(e, LabError::NotTheProtocol { .. })),
        ("negative", |e| matches!(e, LabError::NotTheProtocol { .. })),
        ("wrong-iterations", |e| matches!(e, LabError::NotTheProtocol { .. })),
        ("wrong-model", |e| matches!(e, LabError::NotTheProtocol { .. })),
        ("wrong-bytes", |e| matches!(e, LabError::NotTheProtocol { .. })),
        ("invisible", |e| matches!(e, LabError::NotTheProtocol { .. })),
        ("missing-phase", |e| matches!(e, LabError::NotTheProtocol { .. })),
        ("unknown-kind", |e| matches!(e, LabError::NotTheProtocol { .. })),
        ("no-such-behaviour", |e| matches!(e, LabError::WorkerStopped { .. })),
        ("no-backend", |e| matches!(e, LabError::Unavailable(Failure::GpuBackendMissing))),
        ("no-gpu", |e| matches!(e, LabError::Unavailable(Failure::NoVisibleGpu))),
        ("start-up", |e| matches!(e, LabError::Unavailable(Failure::CudaStartup { code: 802, .. }))),
        ("out-of-range", |e| {
            matches!(e, LabError::Unavailable(Failure::DeviceIndexOutOfRange { index: 7, visible: 1 }))
        }),
        ("busy", |e| matches!(e, LabError::Unavailable(Failure::DeviceBusy { .. }))),
        ("gpu-memory", |e| matches!(e, LabError::Unavailable(Failure::OutOfGpuMemory { .. }))),
        ("host-memory", |e| matches!(e, LabError::Unavailable(Failure::OutOfHostMemory { .. }))),
        ("no-cache", |e| matches!(e, LabError::Unavailable(Failure::CachingAllocatorOff))),
        ("no-bfloat16", |e| matches!(e, LabError::Unavailable(Failure::Bfloat16NotDeclared { .. }))),
        ("other-libtorch", |e| matches!(e, LabError::Unavailable(Failure::LibtorchVersion { .. }))),
        ("libtorch", |e| matches!(e, LabError::Unavailable(Failure::Libtorch { .. }))),
        ("bad-request", |e| matches!(e, LabError::Unavailable(Failure::BadRequest { .. }))),
    ];
    let mut texts = std::collections::BTreeSet::new();
    for (behaviour, expected) in cases {
        match measure_as(behaviour)? {
            Ok(_) => return Err(format!("{behaviour} gave a measurement").into()),
            Err(error) => {
                assert!(expected(&error), "{behaviour}: {error:?}");
                assert_eq!(error.exit_code(), 2, "{behaviour}");
                texts.insert(error.to_string());
            }
        }
    }
    // 41 behaviours; those alike are three kills by one signal and rows out of place.
    assert!(texts.len() >= 28, "{texts:#?}");
    Ok(())
}

#[test]
fn a_worker_that_is_slow_to_start_is_waited_for() -> Outcome {
    let stand_in = StandIn::new("late")?;
    let patient = WorkerProgram::at(stand_in.program()).with_patience(Duration::from_secs(120));
    assert!(measure_with(&patient, &config(), Extras::default(), &mut |_| ()).is_ok());
    Ok(())
}

#[test]
fn a_worker_that_does_not_leave_is_ended_after_its_result() -> Outcome {
    let start = Instant::now();
    let stand_in = StandIn::new("lingering")?;
    assert!(measure_with(&WorkerProgram::at(stand_in.program()), &config(), Extras::default(), &mut |_| ()).is_ok());
    assert!(start.elapsed() < Duration::from_secs(30));
    let pid = std::fs::read_to_string(stand_in.beside("pid"))?;
    let looked_for = std::process::Command::new("/bin/sh").args(["-c", "kill -0 \"$0\"", pid.trim()]).output()?;
    assert!(!looked_for.status.success(), "it still runs");
    Ok(())
}

#[test]
fn the_environment_report_is_never_an_error_of_the_worker() -> Outcome {
    let good = StandIn::new("good-environment")?;
    let report = environment_report_with(Ok(WorkerProgram::at(good.program())), "cuda:0")?;
    assert!(report.selected_device_available && report.reason.is_none());

    for behaviour in ["silent-after-hello", "flood", "no-library", "killed", "garbage", "start-up", "good", "no-reason"]
    {
        let stand_in = StandIn::new(behaviour)?;
        let worker = WorkerProgram::at(stand_in.program()).with_patience(Duration::from_secs(2));
        let report = environment_report_with(Ok(worker), "cuda:0")?;
        assert!(!report.selected_device_available && report.reason.is_some(), "{behaviour}");
        assert_eq!(report.visible_device_count, None, "{behaviour}: nothing was counted");
    }
    let missing = environment_report_with(Err(LabError::WorkerMissing), "cuda:0")?;
    assert!(missing.reason.is_some_and(|reason| reason.contains("cargo xtask worker")));
    assert!(environment_report_with(Err(LabError::WorkerMissing), "cpu").is_err());
    Ok(())
}

#[test]
fn a_file_that_is_no_program_is_a_reason() -> Outcome {
    let folder = tempfile::tempdir()?;
    let text = folder.path().join("text");
    std::fs::write(&text, "not a program")?;
    for path in [text, folder.path().join("absent"), folder.path().to_path_buf()] {
        let refused = measure_with(&WorkerProgram::at(path), &config(), Extras::default(), &mut |_| ());
        assert!(matches!(refused, Err(LabError::WorkerStart(_))));
    }
    Ok(())
}
