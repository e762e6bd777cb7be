//! The worker as a process, with the real libtorch, on a machine with or without a GPU.
#![cfg(unix)]

#[path = "../../tests/common/program.rs"]
mod program;

use std::error::Error;
use std::io::Write;
use std::process::{Command, Stdio};

use iteragpu_lab::environment::{EnvironmentReport, environment_report_with};
use iteragpu_lab::measure::{Extras, measure_with};
use iteragpu_lab::protocol::Failure;
use iteragpu_lab::worker::WorkerProgram;
use iteragpu_lab::{LabError, MeasureConfig};
use program::write_program;

type Outcome = Result<(), Box<dyn Error>>;

const WORKER: &str = env!("CARGO_BIN_EXE_iteragpu-worker");

#[test]
fn the_report_names_the_libtorch_that_is_loaded() -> Outcome {
    let report = environment_report_with(Ok(WorkerProgram::at(WORKER)), "cuda:0")?;
    assert!(report.torch_importable);
    assert!(report.torch_version.as_deref().is_some_and(|version| version.starts_with("2.11.0")), "{report}");
    assert_eq!(report.tch_version.as_deref(), Some("0.24.0"));
    assert_eq!(report.selected_device_available, report.reason.is_none(), "{report}");
    Ok(())
}

#[test]
fn without_a_gpu_nothing_is_measured() -> Outcome {
    let measured = measure_with(&WorkerProgram::at(WORKER), &MeasureConfig::default(), Extras::default(), &mut |_| ());
    match measured {
        Ok(measurement) => {
            // A GPU is there: then it must have been measured, never a CPU.
            assert!(measurement.environment.selected_device_available);
        }
        Err(LabError::Unavailable(
            Failure::NoVisibleGpu | Failure::CudaStartup { .. } | Failure::GpuBackendMissing,
        )) => {}
        Err(other) => return Err(other.into()),
    }
    Ok(())
}

/// What the worker answers to a request for the environment.
fn environment_of(worker: &mut Command) -> Result<String, Box<dyn Error>> {
    let mut child = worker.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut input = child.stdin.take().ok_or("no input")?;
    // One that the loader ends reads nothing.
    let _ = writeln!(input, r#"{{"request":"environment","device_index":0}}"#);
    let output = child.wait_with_output()?;
    drop(input);
    Ok(String::from_utf8(output.stdout)?)
}

/// A kernel was started long before anybody could have set one.
#[test]
fn no_variable_is_needed_to_find_libtorch() -> Outcome {
    let text = environment_of(Command::new(WORKER).env_clear())?;
    assert!(text.contains(r#""torch_version":"2.11.0"#), "{text}");
    // The variable that would change this has its effect, and is gone above.
    let elsewhere = tempfile::tempdir()?;
    std::fs::write(elsewhere.path().join("libtorch_cpu.so"), "")?;
    let text = environment_of(Command::new(WORKER).env_clear().env("LD_LIBRARY_PATH", elsewhere.path()))?;
    assert!(!text.contains("torch_version"), "{text}");
    Ok(())
}

/// Hidden GPUs are told from a driver that does not start; both are told from an absent backend.
#[test]
fn hidden_gpus_are_no_gpus() -> Outcome {
    for hidden in ["", "-1", "9"] {
        let text = environment_of(Command::new(WORKER).env("CUDA_VISIBLE_DEVICES", hidden))?;
        let reasons = ["no_visible_gpu", "cuda_startup", "gpu_backend"];
        assert!(reasons.iter().any(|reason| text.contains(reason)), "{hidden:?}: {text}");
    }
    Ok(())
}

/// The environment that the worker reports when it is started with one more variable.
fn environment_with(name: &str, value: &str) -> Result<EnvironmentReport, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let script = folder.path().join("worker");
    write_program(&script, &format!("#!/bin/sh\nexport {name}='{value}'\nexec '{WORKER}' \"$@\"\n"))?;
    Ok(environment_report_with(Ok(WorkerProgram::at(script)), "cuda:0")?)
}

#[test]
fn settings_are_read_from_libtorch() -> Outcome {
    let cases = [
        ("PYTORCH_ALLOC_CONF", "", "default"),
        ("PYTORCH_ALLOC_CONF", "expandable_segments:True", "expandable_segments=true"),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", "expandable_segments=true"),
        ("PYTORCH_ALLOC_CONF", "backend:cudaMallocAsync", "allocator_backend=cudaMallocAsync"),
        ("PYTORCH_ALLOC_CONF", "max_split_size_mb:32", "max_split_bytes=33554432"),
        ("PYTORCH_ALLOC_CONF", "max_non_split_rounding_mb:64", "max_non_split_rounding_bytes=67108864"),
        ("PYTORCH_ALLOC_CONF", "garbage_collection_threshold:0.5", "garbage_collection_threshold=0.5"),
        (
            "PYTORCH_ALLOC_CONF",
            "large_segment_size_mb:40",
            "large_segment_bytes=41943040 max_non_split_rounding_bytes=41943040",
        ),
        (
            "PYTORCH_ALLOC_CONF",
            "roundup_power2_divisions:[512:2,>:8]",
            "roundup_power2_divisions=2/2/2/2/2/2/2/2/2/2/8/8/8/8/8/8",
        ),
        ("CUDA_LAUNCH_BLOCKING", "1", "CUDA_LAUNCH_BLOCKING"),
        ("NVIDIA_TF32_OVERRIDE", "secret", "NVIDIA_TF32_OVERRIDE"),
        ("A_VARIABLE_OF_NO_MEANING", "secret", "default"),
    ];
    for (name, value, expected) in cases {
        let report = environment_with(name, value)?;
        let settings = report.runtime_settings.as_ref().ok_or("no settings")?;
        // Sizes of workspaces need a GPU, and this is not about them.
        assert_eq!(settings.to_string(), expected, "{name}={value}");
        assert!(!report.to_string().contains("secret"), "a variable's value is never recorded");
    }
    Ok(())
}

/// PyTorch would stop at the first allocation: the reason is said before.
#[test]
fn settings_that_libtorch_does_not_accept_are_no_defaults() -> Outcome {
    for value in ["nonsense:1", "expandable_segments:maybe", "max_split_size_mb:abc"] {
        let report = environment_with("PYTORCH_ALLOC_CONF", value)?;
        assert_eq!(report.runtime_settings, None, "{value}");
        assert!(!report.selected_device_available && report.reason.is_some(), "{value}");
    }
    Ok(())
}

#[test]
fn the_gpu_library_is_linked_whether_or_not_anything_calls_it() -> Outcome {
    let output = Command::new("readelf").args(["-d", WORKER]).output()?;
    let entries = String::from_utf8(output.stdout)?;
    assert!(entries.contains("[libtorch_cpu.so]"), "{entries}");
    let lib = env!("ITERAGPU_LIBTORCH_LIB");
    let has_backend = std::path::Path::new(lib).join("libtorch_cuda.so").exists();
    if !has_backend {
        // Not `eprintln!`, which the harness hides when a test passes.
        writeln!(std::io::stderr(), "skipped: the libtorch that was built against has no GPU library")?;
        return Ok(());
    }
    assert!(entries.contains("[libtorch_cuda.so]"), "{entries}");
    Ok(())
}

#[test]
fn a_bad_request_is_answered() -> Outcome {
    for request in ["\n", "{}\n", "{\"request\":\"measure\"}\n", "\u{0}\n"] {
        let mut child = Command::new(WORKER).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        // Kept open: the answer is for somebody.
        let mut input = child.stdin.take().ok_or("no input")?;
        input.write_all(request.as_bytes())?;
        let output = child.wait_with_output()?;
        assert!(String::from_utf8(output.stdout)?.contains("bad_request"), "{request:?}");
    }
    Ok(())
}

/// From its first moment on, while libtorch is still loading, and with a request that nobody has read.
#[test]
fn a_closed_input_ends_the_worker_before_it_says_a_word() -> Outcome {
    for request in ["", "{\"request\":\"environment\",\"device_index\":0}\n"] {
        let mut child = Command::new(WORKER).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        child.stdin.take().ok_or("no input")?.write_all(request.as_bytes())?;
        let output = child.wait_with_output()?;
        assert_eq!((output.status.code(), output.stdout), (Some(1), Vec::new()), "{request:?}");
    }
    Ok(())
}

/// A driver that writes down what it is asked; it stands before the real one, if any.
const DRIVER: &str = include_str!("faults/driver.c");

#[test]
fn only_the_chosen_device_is_started_early() -> Outcome {
    let folder = tempfile::tempdir()?;
    let (source, driver) = (folder.path().join("driver.c"), folder.path().join("libcuda.so.1"));
    std::fs::write(&source, DRIVER)?;
    assert!(Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&driver, &source]).status()?.success());
    let noted = |arguments: &[&str]| -> Result<String, Box<dyn Error>> {
        let file = folder.path().join("noted");
        let _ = std::fs::remove_file(&file);
        let mut worker = Command::new(WORKER);
        worker.args(arguments).env("LD_LIBRARY_PATH", folder.path()).env("CUDA_NOTES", &file);
        worker.stdin(Stdio::null()).stdout(Stdio::null()).status()?;
        Ok(std::fs::read_to_string(&file).unwrap_or_default())
    };
    assert!(noted(&["cuda:1"])?.starts_with("init 0\nget 1\nretain 101\n"));
    for arguments in [&["cuda:2"] as &[&str], &["cuda:1", "cuda:0"], &["cpu"], &[]] {
        assert!(!noted(arguments)?.contains("retain"), "{arguments:?}");
    }
    Ok(())
}
