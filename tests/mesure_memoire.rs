//! The command as a person runs it: exit codes, what goes where, and what is written.
#![cfg(unix)]

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use common::StandIn;
use common::program::write_program;
use serde_json::Value;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// The command with a worker of the given path; a path that does not exist stands for none.
fn command(worker: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mesure-memoire"));
    command.env("ITERAGPU_WORKER", worker);
    command
}

fn run(worker: &Path, arguments: &[&str]) -> std::io::Result<Output> {
    command(worker).args(arguments).output()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const NO_WORKER: &str = "/nonexistent/iteragpu-worker";
const SMALL: [&str; 13] = [
    "measure",
    "--device",
    "cuda:0",
    "--batch",
    "1",
    "--context",
    "16",
    "--width",
    "64",
    "--warmup",
    "1",
    "--repeats",
    "2",
];

#[test]
fn estimate_prints_exact_json() -> Outcome {
    let arguments = ["estimate", "--parameters", "7000000000", "--bits", "16", "--reserve-gib", "4"];
    let output = run(Path::new(NO_WORKER), &arguments)?;
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    let value: Value = serde_json::from_str(&stdout(&output))?;
    assert_eq!(value["kind"], "arithmetic_only");
    assert_eq!(value["theoretical_weight_bytes"], 14_000_000_000u64);
    assert_eq!(value["weights_plus_assumed_reserve_gib"], "17.03851604461669921875");
    assert_eq!(value.as_object().map(|object| object.len()), Some(8));
    Ok(())
}

#[test]
fn wrong_arguments_name_option_text_and_what_is_accepted() -> Outcome {
    let estimate = |option: &'static str, value: &'static str| {
        let mut arguments = vec!["estimate", "--parameters", "7", "--bits", "16", "--reserve-gib", "0"];
        let position = arguments.iter().position(|argument| *argument == option).unwrap_or(0);
        arguments[position + 1] = value;
        arguments
    };
    let measure = |option: &'static str, value: &'static str| vec!["measure", option, value];
    let mut cases = Vec::new();
    for value in ["0", "-1", "", "NaN", "2_5", "18446744073709551616", "1e9", "7.0"] {
        cases.push(("--parameters", value, estimate("--parameters", value)));
    }
    for value in ["", "0", "5", "64", "-4"] {
        cases.push(("--bits", value, estimate("--bits", value)));
    }
    for value in ["", "-1", "NaN", "inf", "2_5", "4,5", "99999999999999999999999999999"] {
        cases.push(("--reserve-gib", value, estimate("--reserve-gib", value)));
    }
    for value in
        ["cuda", "cuda:", "cuda:-1", "CUDA:0", "cuda:0 cuda:1", "cuda:99999999999999999999", "cuda:00", "cpu", ""]
    {
        cases.push(("--device", value, measure("--device", value)));
        cases.push(("--device", value, vec!["environment", "--device", value]));
    }
    for option in ["--batch", "--context", "--width", "--warmup", "--repeats"] {
        for value in ["0", "-1", "1.5", ""] {
            cases.push((option, value, measure(option, value)));
        }
    }
    cases.push(("--dtype", "float64", measure("--dtype", "float64")));
    cases.push(("--seed", "-1", measure("--seed", "-1")));
    cases.push(("--seed", "9223372036854775808", measure("--seed", "9223372036854775808")));
    for (option, value, arguments) in cases {
        let output = run(Path::new(NO_WORKER), &arguments)?;
        let text = stderr(&output);
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""), "{arguments:?}");
        let shown = format!("{option} : « {value} » refusé. Accepté : ");
        assert!(text.starts_with(&shown), "{arguments:?}: {text}");
    }
    Ok(())
}

#[test]
fn help_and_refusals_are_in_french() -> Outcome {
    let english = ["Usage:", "Options:", "Commands:", "error:", "Print", "default", "required", "unexpected", "tip:"];
    let cases: [(&[&str], i32); 15] = [
        (&["--help"], 0),
        (&["compare", "--help"], 0),
        (&["estimate", "--help"], 0),
        (&["environment", "--help"], 0),
        (&["measure", "-h"], 0),
        (&["--version"], 0),
        (&[], 2),
        (&["mesure"], 2),
        (&["estimate"], 2),
        (&["estimate", "--parameters"], 2),
        (&["estimate", "--parametres", "7"], 2),
        (&["measure", "extra"], 2),
        (&["measure", "--batch", "1", "--batch", "2"], 2),
        (&["measure", "--digest=yes"], 2),
        (&["help"], 2),
    ];
    for (arguments, code) in cases {
        let output = run(Path::new(NO_WORKER), arguments)?;
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        let (said, silent) =
            if code == 0 { (stdout(&output), stderr(&output)) } else { (stderr(&output), stdout(&output)) };
        assert!(!said.is_empty() && silent.is_empty(), "{arguments:?}");
        for word in english {
            assert!(!said.contains(word), "{arguments:?} says {word}: {said}");
        }
    }
    Ok(())
}

#[test]
fn the_help_states_the_originals_defaults() -> Outcome {
    let help = stdout(&run(Path::new(NO_WORKER), &["measure", "--help"])?);
    let help: String = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for default in ["2", "128", "1024", "float32", "3", "5", "1729", "cuda:0"] {
        assert!(help.contains(&format!("[par défaut : {default}]")), "{default}");
    }
    // The values behind the words: a measurement records them.
    let good = StandIn::new("good")?;
    let output = command(&good.program()).args(["measure", "--repeats", "2"]).output()?;
    let value: Value = serde_json::from_str(&stdout(&output))?;
    let recorded = &value["configuration"];
    for (key, default) in [("batch", 2), ("context", 128), ("width", 1024), ("warmup", 3), ("seed", 1729)] {
        assert_eq!(recorded[key], default, "{key}");
    }
    assert_eq!((&recorded["dtype"], &recorded["device"]), (&"float32".into(), &"cuda:0".into()));
    Ok(())
}

#[test]
fn without_a_worker_environment_explains_and_measure_refuses() -> Outcome {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("mesures.json");
    let environment = run(Path::new(NO_WORKER), &["environment"])?;
    assert_eq!(environment.status.code(), Some(0));
    let report: Value = serde_json::from_str(&stdout(&environment))?;
    assert_eq!(report["torch_importable"], false);
    assert!(report["reason"].as_str().is_some_and(|reason| !reason.is_empty()));
    assert!(!stdout(&environment).contains("/nonexistent"), "no path in any output");

    let measure = command(Path::new(NO_WORKER)).args(SMALL).arg("--output").arg(&file).output()?;
    assert_eq!((measure.status.code(), stdout(&measure).as_str()), (Some(2), ""));
    assert!(stderr(&measure).starts_with("Aucune mesure"));
    assert_eq!(fs::read_dir(folder.path())?.count(), 0);
    Ok(())
}

#[test]
fn a_measurement_is_saved_once_and_never_over_another() -> Outcome {
    let good = StandIn::new("good")?;
    let file = good.beside("mesures.json");
    let saved = command(&good.program()).args(SMALL).arg("--output").arg(&file).output()?;
    assert_eq!((saved.status.code(), stdout(&saved).as_str()), (Some(0), ""));
    let text = fs::read_to_string(&file)?;
    assert!(text.ends_with("}\n") && serde_json::from_str::<Value>(&text)?["artifact"] == "iteragpu-lab-v1");

    let again = command(&good.program()).args(SMALL).arg("--output").arg(&file).output()?;
    assert_eq!((again.status.code(), stdout(&again).as_str()), (Some(2), ""));
    assert!(stderr(&again).contains("existe déjà"));
    assert_eq!(fs::read_to_string(&file)?, text);
    Ok(())
}

#[test]
fn an_existing_name_is_refused_before_the_worker_starts() -> Outcome {
    let endless = StandIn::new("endless")?;
    let file = endless.beside("mesures.json");
    fs::write(&file, "kept")?;
    let output = command(&endless.program()).args(SMALL).arg("--output").arg(&file).output()?;
    assert_eq!(output.status.code(), Some(2));
    assert!(!endless.beside("pid").exists(), "the worker was started");
    assert_eq!(fs::read_to_string(&file)?, "kept");
    Ok(())
}

#[test]
fn a_name_taken_meanwhile_sends_the_result_to_standard_output() -> Outcome {
    let slow = StandIn::new("slow")?;
    let file = slow.beside("mesures.json");
    let child = command(&slow.program())
        .args(SMALL)
        .arg("--output")
        .arg(&file)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()?;
    // The stand-in pauses for a second between its rows.
    std::thread::sleep(Duration::from_millis(500));
    fs::write(&file, "another's")?;
    let output = child.wait_with_output()?;
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(serde_json::from_str::<Value>(&stdout(&output))?["artifact"], "iteragpu-lab-v1");
    assert_eq!(fs::read_to_string(&file)?, "another's");
    Ok(())
}

#[test]
fn a_failure_writes_no_file() -> Outcome {
    for behaviour in ["no-gpu", "gpu-memory", "killed", "half", "garbage", "other-version", "no-library", "crashed"] {
        let stand_in = StandIn::new(behaviour)?;
        let folder = tempfile::tempdir()?;
        let output =
            command(&stand_in.program()).args(SMALL).arg("--output").arg(folder.path().join("m.json")).output()?;
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""), "{behaviour}");
        assert!(stderr(&output).starts_with("Aucune mesure"), "{behaviour}: {}", stderr(&output));
        assert_eq!(fs::read_dir(folder.path())?.count(), 0, "{behaviour}");
    }
    Ok(())
}

#[test]
fn a_full_standard_output_is_a_failure_and_not_a_panic() -> Outcome {
    let full = fs::OpenOptions::new().write(true).open("/dev/full")?;
    let output = command(Path::new(NO_WORKER)).arg("environment").stdout(full).output()?;
    assert_eq!(output.status.code(), Some(1));
    assert!(!stderr(&output).contains("panicked"));
    Ok(())
}

/// The result is written within a few milliseconds of the worker's end; killed at any moment
/// around it, the command leaves a complete file or none, and nothing beside it.
#[cfg(target_os = "linux")]
#[test]
fn a_killed_command_leaves_a_complete_file_or_nothing() -> Outcome {
    let good = StandIn::new("good")?;
    let (mut complete, mut none) = (0, 0);
    let mut delay = Duration::ZERO;
    // Later and later, however slow the machine is, until the end has been passed several times.
    while complete < 5 && delay < Duration::from_secs(20) {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("m.json");
        let mut child = command(&good.program()).args(SMALL).arg("--output").arg(&file).spawn()?;
        std::thread::sleep(delay);
        delay += delay / 8 + Duration::from_millis(1);
        child.kill()?;
        child.wait()?;
        let names = fs::read_dir(folder.path())?.map(|entry| entry.map(|entry| entry.file_name()));
        match names.collect::<Result<Vec<_>, _>>()?.as_slice() {
            [] => none += 1,
            [name] if name == "m.json" => {
                serde_json::from_str::<Value>(&fs::read_to_string(&file)?)?;
                complete += 1;
            }
            left => return Err(format!("left behind: {left:?}").into()),
        }
    }
    // Both must have happened, or the moments were not around the end.
    assert!(none > 0 && complete > 0, "{none} without a file, {complete} with one");
    Ok(())
}

/// A real worker sees its input close when the command dies, however it dies; here the stand-in's
/// place is taken by `cat`, which ends for the same reason.
#[test]
fn the_workers_input_closes_when_the_command_is_killed() -> Outcome {
    let folder = tempfile::tempdir()?;
    let program = folder.path().join("watching");
    let ended = folder.path().join("ended");
    write_program(&program, &format!("#!/bin/sh\ncat > /dev/null\necho > '{}'\n", ended.display()))?;
    let mut child = command(&program).args(SMALL).spawn()?;
    std::thread::sleep(Duration::from_millis(300));
    assert!(!ended.exists());
    child.kill()?;
    child.wait()?;
    let start = Instant::now();
    while !ended.exists() {
        assert!(start.elapsed() < Duration::from_secs(5), "the worker outlived the command");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

#[test]
fn a_simulation_needs_no_gpu_and_refuses_like_a_measurement() -> Outcome {
    let arguments = ["simulate", "--profile", "hopper", "--batch", "1", "--context", "16", "--width", "64"];
    let output = run(Path::new(NO_WORKER), &arguments)?;
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    let simulation: Value = serde_json::from_str(&stdout(&output))?;
    assert_eq!(simulation["kind"], "allocator_simulation");
    // As measured on an H200: docs/mesures/h200-golden.json.
    assert_eq!(simulation["phases"][2]["peak_allocated_bytes"], 34_649_088);
    assert!(simulation["gpu_memory"].is_null() && simulation["phases"][0].get("elapsed_seconds").is_none());

    let refused = [("--profile", "volta"), ("--gpu-memory", "0"), ("--gpu-memory", "24 Go"), ("--batch", "0")];
    for (option, value) in refused {
        let output = run(Path::new(NO_WORKER), &["simulate", option, value])?;
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""), "{option} {value}");
        assert!(stderr(&output).starts_with(&format!("{option} : « {value} » refusé. Accepté : ")));
    }
    // Gibibytes in the place of bytes would answer a question that nobody asked.
    for (value, code) in [("24", 2), ("1048575", 2), ("24 Go", 2), ("1048576", 0), ("25769803776", 0)] {
        let output = run(Path::new(NO_WORKER), &["simulate", "--gpu-memory", value])?;
        assert_eq!(output.status.code(), Some(code), "{value}");
        assert_eq!(stderr(&output).contains("par exemple 25769803776 pour 24 Gio"), code == 2, "{}", stderr(&output));
    }
    let help = stdout(&run(Path::new(NO_WORKER), &["simulate", "--help"])?);
    let help: String = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for said in ["en octets, par exemple 25769803776 pour 24 Gio", "[par défaut : 1024]"] {
        assert!(help.contains(said), "{help}");
    }
    for option in ["--device", "--seed"] {
        let said = help.split(option).nth(1).map(|rest| rest.split("--").next().unwrap_or_default());
        assert!(said.is_some_and(|said| said.contains("sans effet sur la simulation")), "{option}: {help}");
    }
    let unknown: Value = serde_json::from_str(&stdout(&run(Path::new(NO_WORKER), &["simulate"])?))?;
    assert_eq!(unknown["profile"]["evidence"], "assumed");
    Ok(())
}

/// Tens of megabytes of JSON are written as they are made.
#[test]
fn many_repetitions_are_printed_in_little_memory() -> Outcome {
    let mut command = common::in_little_memory(env!("CARGO_BIN_EXE_mesure-memoire"));
    let output = command.args(["simulate", "--repeats", "100000"]).output()?;
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    assert!(output.stdout.len() > 30_000_000 && output.stdout.ends_with(b"\n}\n"), "{} bytes", output.stdout.len());
    Ok(())
}

#[test]
fn a_comparison_ends_with_1_at_the_slightest_difference() -> Outcome {
    let kept = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/mesures/h200-golden.json"))?;
    let mut measurement = serde_json::from_str::<Value>(&kept)?["measurements"][0].take();
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("m.json");
    let compare = |measurement: &Value| -> Outcome<(Option<i32>, Value, String)> {
        fs::write(&file, measurement.to_string())?;
        let output = command(Path::new(NO_WORKER)).arg("compare").arg(&file).output()?;
        Ok((output.status.code(), serde_json::from_str(&stdout(&output)).unwrap_or_default(), stderr(&output)))
    };
    let (code, comparison, _) = compare(&measurement)?;
    assert_eq!((code, &comparison["identical"]), (Some(0), &true.into()));

    measurement["phases"][2]["peak_reserved_bytes"] = 35_651_585.into();
    let (code, comparison, _) = compare(&measurement)?;
    assert_eq!((code, &comparison["identical"]), (Some(1), &false.into()));
    assert_eq!(comparison["rows"][2]["peak_reserved_difference_bytes"], 1);

    measurement["environment"]["runtime_settings"]["expandable_segments"] = true.into();
    let (code, comparison, words) = compare(&measurement)?;
    assert_eq!((code, comparison), (Some(2), Value::Null));
    assert!(
        words.contains("La simulation ne couvre pas ceci") && words.contains("expandable_segments=true"),
        "{words}"
    );
    assert_eq!(compare(&Value::Null)?.0, Some(2));
    Ok(())
}

#[test]
fn two_measurements_are_compared_and_a_refused_one_is_named() -> Outcome {
    let kept = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/mesures/h200-golden.json"))?;
    let kept: Value = serde_json::from_str(&kept)?;
    let folder = tempfile::tempdir()?;
    for (name, place) in [("a.json", 1), ("b.json", 3)] {
        fs::write(folder.path().join(name), kept["measurements"][place].to_string())?;
    }
    let mut unfinished = kept["measurements"][2].clone();
    unfinished["phases"][0]["elapsed_seconds"] = (-1).into();
    fs::write(folder.path().join("faulty.json"), unfinished.to_string())?;
    fs::write(folder.path().join("other.json"), "{}")?;
    let compare =
        |files: &[&str]| command(Path::new(NO_WORKER)).current_dir(folder.path()).arg("compare").args(files).output();

    // Counters differ: with two measurements, that is a result and no failure.
    let output = compare(&["a.json", "b.json"])?;
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    let comparison: Value = serde_json::from_str(&stdout(&output))?;
    assert_eq!(comparison["kind"], "allocator_measurement_comparison");
    assert_eq!(comparison["configuration_differences"][0]["second"], "bfloat16");
    assert_eq!(comparison["ranking"]["verdict"], "second_faster");

    let refused: [(&[&str], &str); 7] = [
        (&["a.json", "a.json"], "C'est deux fois la même mesure."),
        (&["a.json", "faulty.json"], "« faulty.json » : la durée ou les compteurs de model_load 0"),
        (&["faulty.json", "a.json"], "« faulty.json » : la durée ou les compteurs de model_load 0"),
        (&["a.json", "other.json"], "« other.json » contient un autre JSON"),
        (&["a.json", "absent.json"], "« absent.json » ne peut pas être lu"),
        (&["a.json", "b.json", "a.json"], "Argument inconnu : a.json."),
        (&[], "Il manque : <FICHIER>."),
    ];
    for (files, expected) in refused {
        let output = compare(files)?;
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""), "{files:?}");
        assert!(stderr(&output).contains(expected), "{files:?}: {}", stderr(&output));
    }
    Ok(())
}

/// The stand-in measures under a setting that is not simulated.
#[test]
fn a_measurement_is_not_lost_for_want_of_its_simulation() -> Outcome {
    let good = StandIn::new("good")?;
    let output = command(&good.program()).args(SMALL).arg("--simulate").output()?;
    assert_eq!(output.status.code(), Some(0));
    let measurement: Value = serde_json::from_str(&stdout(&output))?;
    assert!(measurement["phases"].is_array() && measurement.get("simulation").is_none());
    assert!(stderr(&output).ends_with("La mesure est donnée sans simulation.\n"), "{}", stderr(&output));
    Ok(())
}
