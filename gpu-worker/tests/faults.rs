//! Faults of the GPU's side, for the real command, worker and libtorch: a CUDA that answers chosen
//! errors (`faults/cuda_faults.c`), a driver without a card (`faults/driver.c`), and libraries that are
//! missing, damaged or others.
//!
//! The program runs by itself on another machine, where `ITERAGPU_WORKER` and `ITERAGPU_COMMAND` name
//! the programs and `ITERAGPU_LIBTORCH_LIB` the folder of libtorch; it needs `cc` and `c++`.
#![cfg(target_os = "linux")]

#[path = "../../tests/common/program.rs"]
mod program;

use std::env;
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{Read, Write, stderr};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use program::write_program;
use serde_json::Value;
use tempfile::TempDir;

type Outcome = Result<(), Box<dyn Error>>;

const NO_CPU: &str = "Pas de repli vers le CPU.";

/// CUDA's faults, and a fragment of what each is answered with.
const START_UP: [(&str, &str); 27] = [
    ("devices=0", "aucun GPU n'est visible pour PyTorch"),
    ("cudaGetDeviceCount=100", "aucun GPU n'est visible pour PyTorch"),
    ("cudaGetDeviceCount=2", "erreur 2, cudaErrorMemoryAllocation : out of memory). Il n'y a plus assez de mémoire"),
    (
        "cudaGetDeviceCount=3",
        "erreur 3, cudaErrorInitializationError : initialization error). Vérifiez avec nvidia-smi",
    ),
    (
        "cudaGetDeviceCount=34",
        "erreur 34, cudaErrorStubLibrary : CUDA driver is a stub library). Une bibliothèque factice",
    ),
    ("cudaGetDeviceCount=35", "erreur 35, cudaErrorInsufficientDriver : CUDA driver version is insufficient"),
    ("cudaGetDeviceCount=36", "erreur 36, cudaErrorCallRequiresNewerDriver : "),
    ("cudaGetDeviceCount=46", "le GPU choisi est occupé ou indisponible (CUDA-capable device(s) is/are busy"),
    ("cudaGetDeviceCount=802", "erreur 802, cudaErrorSystemNotReady : system not yet initialized). Le système n'a pas"),
    ("cudaGetDeviceCount=803", "erreur 803, cudaErrorSystemDriverMismatch : "),
    ("cudaGetDeviceCount=804", "erreur 804, cudaErrorCompatNotSupportedOnDevice : "),
    ("cudaGetDeviceCount=805", "erreur 805, cudaErrorMpsConnectionFailed : "),
    ("cudaGetDeviceCount=999", "erreur 999, cudaErrorUnknown : unknown error). Vérifiez avec nvidia-smi"),
    (
        "cudaGetDeviceCount=12345",
        "CUDA ne démarre pas (erreur 12345 : unrecognized error code). Vérifiez avec nvidia-smi",
    ),
    (
        "devices=2 cudaSetDevice=2",
        "erreur 2, cudaErrorMemoryAllocation : out of memory). Il n'y a plus assez de mémoire",
    ),
    ("devices=2 cudaSetDevice=46", "le GPU choisi est occupé ou indisponible (CUDA-capable device(s) is/are busy"),
    (
        "devices=2 cudaSetDevice=101",
        "erreur 101, cudaErrorInvalidDevice : invalid device ordinal). Ce numéro ne désigne pas",
    ),
    ("devices=2 cudaSetDevice=102", "erreur 102, cudaErrorDeviceNotLicensed : "),
    (
        "devices=2 cudaSetDevice=802",
        "erreur 802, cudaErrorSystemNotReady : system not yet initialized). Le système n'a pas",
    ),
    ("devices=2 cudaFree=2", "erreur 2, cudaErrorMemoryAllocation : out of memory). Il n'y a plus assez de mémoire"),
    ("devices=2 cudaFree=46", "le GPU choisi est occupé ou indisponible (CUDA-capable device(s) is/are busy"),
    ("devices=2 cudaFree=214", "erreur 214, cudaErrorECCUncorrectable : "),
    ("devices=2 cudaFree=808", "erreur 808, cudaErrorMpsMaxClientsReached : "),
    ("devices=2 cudaFree=999", "erreur 999, cudaErrorUnknown : unknown error). Vérifiez avec nvidia-smi"),
    // Later calls, which libtorch makes itself.
    ("devices=2 cudaGetDeviceCount@2=999", "a signalé une erreur : "),
    ("devices=2 cudaGetDeviceProperties=46", "CUDA error: CUDA-capable device(s) is/are busy or unavailable"),
    ("devices=2 cudaGetDeviceProperties=999", "a signalé une erreur : CUDA error: unknown error. Recommencez"),
];

#[test]
fn every_error_at_the_start_has_its_own_reason() -> Outcome {
    let bench = Bench::new()?;
    let before = bench.command("measure").output()?;
    for (faults, words) in START_UP {
        let message = bench.refused(bench.command("measure").env("CUDA_FAULTS", faults), words)?;
        let report = bench.report(bench.command("environment").env("CUDA_FAULTS", faults))?;
        assert_eq!(report["reason"], message.trim_end(), "{faults}");
        assert_eq!(report["selected_device_available"], false, "{faults}");
    }
    // The check above can fail, and nothing of a fault stays.
    let wrong = bench.refused(bench.command("measure").env("CUDA_FAULTS", "cudaGetDeviceCount=802"), "erreur 803");
    assert!(wrong.is_err());
    let after = bench.command("measure").output()?;
    assert_eq!(after.status.code(), before.status.code());
    assert_eq!(after.stderr, before.stderr);
    Ok(())
}

#[test]
fn native_and_emulated_bfloat16_are_told_apart() -> Outcome {
    let bench = Bench::new()?;
    bench.invent_driver(&[])?;
    for (capability, written, support) in
        [("75", "7.5", "emulated"), ("80", "8.0", "native"), ("90", "9.0", "native"), ("61", "6.1", "emulated")]
    {
        let mut command = bench.command("environment");
        let report = bench.report(command.env("CUDA_FAULTS", "devices=2").env("CUDA_CAPABILITY", capability))?;
        assert_eq!(report["selected_device_available"], true, "{report}");
        assert_eq!(report["selected_device_compute_capability"], written);
        assert_eq!(report["selected_device_bfloat16"], support, "{written}");
    }
    Ok(())
}

#[test]
fn only_the_chosen_device_is_touched() -> Outcome {
    let bench = Bench::new()?;
    bench.invent_driver(&[])?;
    let touched = |device: &str| -> Result<String, Box<dyn Error>> {
        let notes = bench.folder.path().join(device);
        let mut command = bench.command("measure");
        command.args(["--device", device]).env("CUDA_NOTES", &notes);
        bench.refused(command.env("CUDA_FAULTS", "devices=2 cudaMalloc=2"), "la mémoire du GPU ne suffit pas")?;
        Ok(fs::read_to_string(notes)?)
    };
    for (device, own, foreign) in
        [("cuda:0", [" 0", " 100"], [" 1", " 101"]), ("cuda:1", [" 1", " 101"], [" 0", " 100"])]
    {
        let notes = touched(device)?;
        for step in ["get", "set", "start", "synchronize", "allocate"] {
            assert!(notes.contains(&format!("{step}{}\n", own[0])), "{device} {step}: {notes}");
        }
        // The first line is the driver's own start.
        let others = notes.lines().filter(|line| *line != "init 0" && foreign.iter().any(|end| line.ends_with(end)));
        assert_eq!(others.count(), 0, "{device}: {notes}");
        assert!(notes.contains(&format!("retain{}\n", own[1])), "{notes}");
    }
    let mut third = bench.command("measure");
    bench.refused(
        third.args(["--device", "cuda:2"]).env("CUDA_FAULTS", "devices=2"),
        "cuda:2 n'existe pas ici ; nombre de GPU visibles : 2",
    )?;
    Ok(())
}

/// Past the start: the device is there, and fails at work.
#[test]
fn a_device_that_fails_at_work_has_its_own_reason() -> Outcome {
    let bench = Bench::new()?;
    bench.invent_driver(&[])?;
    let memory = "la mémoire du GPU ne suffit pas pour cette configuration (CUDA out of memory. Tried to allocate ";
    for (faults, dtype, words) in [
        ("cudaMalloc=2", "float32", memory),
        // The device emulates bfloat16, which is tried first: memory is still memory.
        ("cudaMalloc=2", "bfloat16", memory),
        ("cudaMalloc=999", "float32", "CUDA error: unknown error. Recommencez"),
        ("cudaMalloc=999", "bfloat16", "a signalé une erreur : CUDA error: unknown error. Recommencez"),
        ("cudaDeviceSynchronize=719", "float32", "CUDA error: unspecified launch failure. Recommencez"),
        ("cudaDeviceSynchronize@2=214", "float32", "CUDA error: uncorrectable ECC error encountered. Recommencez"),
    ] {
        let mut command = bench.command("measure");
        command.args(["--dtype", dtype]).env("CUDA_FAULTS", format!("devices=2 {faults}"));
        let message = bench.refused(&mut command, words)?;
        assert!(!message.contains("PYTORCH_CUDA_ALLOC_CONF"), "{message}");
    }
    Ok(())
}

#[test]
fn a_driver_that_lacks_an_entry_point_is_named() -> Outcome {
    let bench = Bench::new()?;
    // libtorch looks this one up where nothing can catch its exception.
    bench.invent_driver(&["-DcuDevicePrimaryCtxGetState=renamed"])?;
    let words = "code 134). Son dernier message : Error in dlopen or dlsym: libcuda.so.1: undefined symbol: cuDevicePrimaryCtxGetState";
    bench.refused(bench.command("measure").env("CUDA_FAULTS", "devices=2"), words)?;
    bench.invent_driver(&["-DcuDeviceGetName=renamed"])?;
    bench.refused(bench.command("measure").env("CUDA_FAULTS", "devices=2"), "libcuda.so.1 lacks an entry point")?;
    Ok(())
}

#[test]
fn a_libtorch_without_its_gpu_library_is_named() -> Outcome {
    let bench = Bench::new()?;
    bench.compile("cc", "nothing.c", "libtorch_cuda.so", &[])?;
    let words = "ce PyTorch (libtorch) est construit sans prise en charge du GPU";
    let message = bench.refused(&mut bench.command("measure"), words)?;
    assert!(message.contains("2.11.0") && message.contains(NO_CPU), "{message}");
    Ok(())
}

#[test]
fn another_libtorch_is_named() -> Outcome {
    let bench = Bench::new()?;
    let other = bench.compile("c++", "other_libtorch.cpp", "other.so", &[])?;
    let words = "le PyTorch (libtorch) chargé est de version 2.10.0, le programme de mesure est construit pour la version 2.11.0. Installez";
    let message = bench.refused(bench.command("measure").env("LD_PRELOAD", other), words)?;
    assert!(message.contains("LD_LIBRARY_PATH"), "{message}");
    Ok(())
}

#[test]
fn a_missing_library_is_named() -> Outcome {
    let bench = Bench::new()?;
    let worker = bench.worker_without_its_own_path()?;
    for library in ["libtorch_cuda.so", "libtorch_cpu.so", "libc10.so", "libc10_cuda.so"] {
        bench.link_libtorch(Some(library), true)?;
        let words = format!("ne peut pas être chargé, la bibliothèque {library} manque");
        bench.refused(bench.command("measure").env("ITERAGPU_WORKER", &worker), &words)?;
    }
    // PyTorch finds what NVIDIA makes in a folder beside its own.
    bench.link_libtorch(None, false)?;
    bench.refused(bench.command("measure").env("ITERAGPU_WORKER", &worker), " manque. « cargo xtask worker »")?;
    // With all of them the worker starts: only what is missing was missing.
    bench.link_libtorch(None, true)?;
    let report = bench.report(bench.command("environment").env("ITERAGPU_WORKER", &worker))?;
    assert_eq!(report["torch_importable"], true, "{report}");
    Ok(())
}

/// A folder in LD_LIBRARY_PATH stands before the worker's own; reinstalling would change nothing.
#[test]
fn another_libtorch_that_is_put_first_is_no_missing_one() -> Outcome {
    let bench = Bench::new()?;
    let needed = bench.compile("cc", "nothing.c", "libof_another.so.12", &["-Wl,-soname,libof_another.so.12"])?;
    let needed_name = needed.to_string_lossy();
    for library in ["libtorch_cuda.so", "libtorch_cpu.so", "libc10.so"] {
        let other = bench.compile("cc", "nothing.c", library, &["-Wl,--no-as-needed", &needed_name])?;
        fs::rename(&needed, bench.folder.path().join("elsewhere"))?;
        let words = "la bibliothèque libof_another.so.12 manque";
        let message = bench.refused(&mut bench.command("measure"), words)?;
        assert!(message.contains("Si la variable LD_LIBRARY_PATH désigne un autre PyTorch, retirez-la"), "{message}");
        fs::rename(bench.folder.path().join("elsewhere"), &needed)?;
        fs::remove_file(other)?;
    }
    // Gone, it leaves nothing in the way of the right one.
    assert_eq!(bench.report(&mut bench.command("environment"))?["torch_importable"], true);
    Ok(())
}

#[test]
fn a_damaged_library_is_named() -> Outcome {
    let bench = Bench::new()?;
    for library in ["libtorch_cuda.so", "libc10.so"] {
        let damaged = bench.folder.path().join(library);
        let mut beginning = Vec::new();
        fs::File::open(libtorch().join(library))?.take(200_000).read_to_end(&mut beginning)?;
        for (bytes, words) in [
            (
                &[] as &[u8],
                format!(
                    "la bibliothèque {library} de PyTorch (libtorch) est là, mais ne peut pas être chargée (file too short)"
                ),
            ),
            (
                &[0; 100_000],
                format!(
                    "la bibliothèque {library} de PyTorch (libtorch) est là, mais ne peut pas être chargée (invalid ELF header)"
                ),
            ),
            // What an interrupted copy leaves: the loader trusts its beginning.
            (&beginning, "interrompu par le signal 7 (un fichier chargé est incomplet".to_owned()),
        ] {
            fs::write(&damaged, bytes)?;
            let message = bench.refused(&mut bench.command("measure"), &words)?;
            assert!(message.contains("pip install --force-reinstall torch==2.11.0"), "{message}");
        }
        fs::remove_file(damaged)?;
    }
    Ok(())
}

/// What only a device that computes can show: memory that ends in the middle of a measurement.
#[test]
fn memory_that_ends_at_any_allocation_has_its_own_reason() -> Outcome {
    let bench = Bench::new()?;
    let plain = bench.command("measure").output()?;
    if plain.status.code() != Some(0) {
        // Not `eprintln!`, which the harness hides when a test passes.
        writeln!(stderr(), "skipped: {}", String::from_utf8_lossy(&plain.stderr).trim_end())?;
        return Ok(());
    }
    let plain: Value = serde_json::from_slice(&plain.stdout)?;
    let mut refusals = 0;
    let whole = loop {
        let mut command = bench.command("measure");
        command.env("CUDA_FAULTS", format!("cudaMalloc@{}=2", refusals + 1));
        let output = command.output()?;
        if output.status.code() == Some(0) {
            break serde_json::from_slice::<Value>(&output.stdout)?;
        }
        bench.refused(&mut command, "la mémoire du GPU ne suffit pas pour cette configuration (CUDA out of memory.")?;
        refusals += 1;
        assert!(refusals < 100);
    };
    writeln!(stderr(), "memory refused at each of {refusals} allocations")?;
    // Weights, inputs, workspace and activations take more than one segment.
    assert!(refusals > 2, "{refusals}");
    assert_eq!(counters(&whole), counters(&plain));
    // libtorch tries once more: a refusal that passes changes nothing.
    let passing = bench.command("measure").env("CUDA_FAULTS", "cudaMalloc@1-1=2").output()?;
    assert_eq!(counters(&serde_json::from_slice(&passing.stdout)?), counters(&plain));
    bench.refused(
        bench.command("measure").env("CUDA_FAULTS", "cudaMalloc@2=719"),
        "CUDA error: unspecified launch failure",
    )?;
    bench.refused(
        bench.command("measure").env("CUDA_FAULTS", "cudaDeviceSynchronize@9=214"),
        "CUDA error: uncorrectable ECC",
    )?;
    Ok(())
}

/// Also for a device that computes: a pass that cannot be captured takes nothing from what was measured.
#[test]
fn a_pass_that_is_not_captured_is_told_and_the_measurement_kept() -> Outcome {
    let bench = Bench::new()?;
    let measured = |faults: &str| {
        let mut command = bench.command("measure");
        command.args(["--device-time", "3"]).env("CUDA_FAULTS", faults).output()
    };
    let plain = measured("")?;
    if plain.status.code() != Some(0) {
        writeln!(stderr(), "skipped: {}", String::from_utf8_lossy(&plain.stderr).trim_end())?;
        return Ok(());
    }
    let plain: Value = serde_json::from_slice(&plain.stdout)?;
    assert!(plain["device_time"]["graph_replay"].is_object(), "{}", plain["device_time"]);
    for (faults, words) in [
        ("cudaStreamBeginCapture=901", "cudaStreamBeginCapture"),
        ("cudaGraphInstantiateWithFlags=801", "cudaGraphInstantiateWithFlags"),
        ("cudaGraphLaunch=801", "cudaGraphLaunch"),
        ("cudaGraphLaunch@3=801", "cudaGraphLaunch"),
    ] {
        let output = measured(faults)?;
        assert_eq!(output.status.code(), Some(0), "{faults}: {}", String::from_utf8_lossy(&output.stderr));
        let kept: Value = serde_json::from_slice(&output.stdout)?;
        assert_eq!(counters(&kept), counters(&plain), "{faults}");
        let time = &kept["device_time"];
        assert!(time["graph_replay"].is_null() && time["forward"].is_object(), "{faults}: {time}");
        let note = time["graph_replay_note"].as_str().unwrap_or_default();
        assert!(note.starts_with("Passage non capturé : ") && note.contains(words), "{faults}: {note}");
    }
    Ok(())
}

/// The phases without their times.
fn counters(measurement: &Value) -> Vec<Value> {
    let mut phases = measurement["phases"].as_array().cloned().unwrap_or_default();
    for phase in phases.iter_mut().filter_map(Value::as_object_mut) {
        phase.remove("elapsed_seconds");
    }
    phases
}

/// The source of each library that stands before a real one.
const SOURCES: [(&str, &str); 4] = [
    ("cuda_faults.c", include_str!("faults/cuda_faults.c")),
    ("driver.c", include_str!("faults/driver.c")),
    ("other_libtorch.cpp", include_str!("faults/other_libtorch.cpp")),
    ("nothing.c", "extern int nothing;\n"),
];

/// A folder of libraries that are loaded before others.
struct Bench {
    folder: TempDir,
}

impl Bench {
    fn new() -> Result<Self, Box<dyn Error>> {
        let bench = Self { folder: tempfile::tempdir()? };
        bench.compile("cc", "cuda_faults.c", "cuda_faults.so", &["-ldl"])?;
        Ok(bench)
    }

    fn compile(&self, compiler: &str, source: &str, name: &str, flags: &[&str]) -> Result<PathBuf, Box<dyn Error>> {
        let (_, text) = SOURCES.iter().find(|(name, _)| *name == source).ok_or("no such source")?;
        let (file, library) = (self.folder.path().join(source), self.folder.path().join(name));
        fs::write(&file, text)?;
        let mut command = Command::new(compiler);
        command.args(["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o"]).args([&library, &file]).args(flags);
        if !command.status()?.success() {
            return Err(format!("{source} does not compile").into());
        }
        Ok(library)
    }

    /// A driver of two cards that do not exist. A real NVML would send PyTorch to the real driver.
    fn invent_driver(&self, flags: &[&str]) -> Outcome {
        self.compile("cc", "driver.c", "libcuda.so.1", flags)?;
        Ok(fs::write(self.folder.path().join("libnvidia-ml.so.1"), "")?)
    }

    /// The command on the real worker, whose CUDA answers what CUDA_FAULTS says, and whose libraries
    /// come from the folder where it has them.
    fn command(&self, task: &str) -> Command {
        let mut command = Command::new(program());
        command.arg(task).stdin(Stdio::null()).env("ITERAGPU_WORKER", worker());
        command.env("LD_PRELOAD", self.folder.path().join("cuda_faults.so"));
        let given = env::var_os("LD_LIBRARY_PATH").filter(|path| !path.is_empty());
        let path = [Some(self.folder.path().into()), given].into_iter().flatten().collect::<Vec<OsString>>();
        command.env("LD_LIBRARY_PATH", path.join(OsStr::new(":")));
        command
    }

    /// Runs a measurement that has to be refused with `words`, on one line and without a file.
    fn refused(&self, command: &mut Command, words: &str) -> Result<String, Box<dyn Error>> {
        let file = self.folder.path().join("measured.json");
        let output = command.arg("--output").arg(&file).output()?;
        let message = String::from_utf8(output.stderr)?;
        let clean = message.lines().count() == 1 && message.starts_with("Aucune mesure : ") && !message.contains("..");
        let machine = message.contains(&*self.folder.path().to_string_lossy()) || message.contains("site-packages");
        if output.status.code() != Some(2) || !output.stdout.is_empty() || file.exists() {
            return Err(format!("not refused: {:?} {message}", output.status).into());
        }
        if !clean || machine || !message.contains(words) {
            return Err(format!("expected « {words} », found: {message}").into());
        }
        Ok(message)
    }

    fn report(&self, command: &mut Command) -> Result<Value, Box<dyn Error>> {
        let output = command.output()?;
        if output.status.code() != Some(0) || !output.stderr.is_empty() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// libtorch as links, in folders that lie to each other as in a Python package.
    fn link_libtorch(&self, without: Option<&str>, with_nvidia: bool) -> Outcome {
        let root = self.folder.path().join("packages");
        if root.exists() {
            fs::remove_dir_all(&root)?;
        }
        fs::create_dir_all(root.join("torch/lib"))?;
        for entry in fs::read_dir(libtorch())? {
            let entry = entry?;
            if Some(&*entry.file_name().to_string_lossy()) != without {
                symlink(entry.path(), root.join("torch/lib").join(entry.file_name()))?;
            }
        }
        let nvidia = libtorch().join("../../nvidia");
        if with_nvidia && nvidia.exists() {
            symlink(nvidia, root.join("nvidia"))?;
        }
        Ok(())
    }

    /// The worker as it is where libtorch is nowhere but in these links.
    fn worker_without_its_own_path(&self) -> Result<PathBuf, Box<dyn Error>> {
        let script = self.folder.path().join("worker.sh");
        let (libraries, worker) = (self.folder.path().join("packages/torch/lib"), worker());
        // An empty name is the program's: its own search path is not used.
        let text = format!(
            "#!/bin/sh\nexec {LOADER} --inhibit-rpath : --library-path '{}' '{}' \"$@\"\n",
            libraries.display(),
            worker.display()
        );
        write_program(&script, &text)?;
        Ok(script)
    }
}

/// The dynamic loader; PyTorch's CUDA builds exist for few other machines.
const LOADER: &str =
    if cfg!(target_arch = "aarch64") { "/lib/ld-linux-aarch64.so.1" } else { "/lib64/ld-linux-x86-64.so.2" };

fn named(variable: &str, otherwise: impl FnOnce() -> PathBuf) -> PathBuf {
    env::var_os(variable).map_or_else(otherwise, PathBuf::from)
}

fn libtorch() -> PathBuf {
    named("ITERAGPU_LIBTORCH_LIB", || env!("ITERAGPU_LIBTORCH_LIB").into())
}

fn worker() -> PathBuf {
    named("ITERAGPU_WORKER", || env!("CARGO_BIN_EXE_iteragpu-worker").into())
}

/// `mesure-memoire`, which belongs to the other package: built here unless it is named.
fn program() -> PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| named("ITERAGPU_COMMAND", built_command)).clone()
}

fn built_command() -> PathBuf {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut build = Command::new(cargo);
    build.args(["build", "--release", "--locked", "-p", "iteragpu-lab", "--bin", "mesure-memoire"]).current_dir(root);
    // Without it the command is not found, and each test says so.
    let _ = build.status();
    let beside = Path::new(env!("CARGO_BIN_EXE_iteragpu-worker"));
    beside.with_file_name("mesure-memoire")
}
