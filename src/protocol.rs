//! The messages between the library and the worker: one JSON request on the worker's standard
//! input, then JSON lines on its standard output. Both sides use these very types. The worker's
//! only argument, such as `cuda:0`, is a hint to start that device early.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::measure::{Digests, MeasureConfig, PhaseRow, SyntheticModel};

/// Version that both sides must share; it is the version of the packages.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What the library asks of a fresh worker: one request a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// What GPU runtime can be reached?
    Environment {
        /// Index of the GPU that is asked about.
        device_index: u32,
    },
    /// Measure one configuration.
    Measure {
        /// Index of the GPU, the same as in `configuration.device`.
        device_index: u32,
        /// The checked configuration.
        configuration: MeasureConfig,
        /// Whether to digest weights, inputs and the last output, outside the timed phases.
        digest: bool,
    },
}

/// What the worker says, one JSON object a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum Message {
    /// First line of every worker.
    Hello {
        /// The worker's own version.
        worker_version: String,
    },
    /// The device has started, and the measurement begins: what comes now takes its time.
    Ready,
    /// A phase has been measured.
    Phase {
        /// Its row.
        row: PhaseRow,
    },
    /// Last line of an environment request.
    Environment {
        /// What was found.
        environment: WorkerEnvironment,
    },
    /// Last line of a successful measurement.
    Measured {
        /// The environment that was measured in.
        environment: WorkerEnvironment,
        /// Size of the model that ran.
        synthetic_model: SyntheticModel,
        /// Present when asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digests_sha256: Option<Digests>,
    },
    /// Last line when nothing was measured.
    Failed {
        /// Why.
        failure: Failure,
    },
}

/// What only a process with libtorch can tell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerEnvironment {
    /// Version of the Rust binding.
    pub tch_version: String,
    /// Version of the libtorch that is really loaded.
    pub torch_version: String,
    /// CUDA version that this libtorch was built for.
    pub cuda_build_version: Option<String>,
    /// HIP version that this libtorch was built for.
    pub hip_build_version: Option<String>,
    /// GPUs that libtorch sees.
    pub visible_device_count: u32,
    /// The chosen GPU, when it exists.
    pub selected_device: Option<SelectedDevice>,
    /// Version of the vendor's driver, read through NVML.
    pub driver_version: Option<String>,
    /// Why the chosen GPU cannot be used, when it cannot.
    pub failure: Option<Failure>,
}

/// The chosen GPU, as its driver describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelectedDevice {
    /// Marketing name.
    pub name: String,
    /// Where the card sits, such as `0000:3B:00.0`: the same card whatever its index.
    pub pci_bus_id: String,
    /// Memory of the device in bytes, as the runtime announces it.
    pub total_bytes: u64,
    /// Compute capability, such as `9.0`.
    pub compute_capability: String,
    /// Whether bfloat16 runs natively on this device or through emulation.
    pub bfloat16: Bfloat16Support,
}

/// How a device computes bfloat16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bfloat16Support {
    /// Compute capability 8.0 or more.
    Native,
    /// An older device, on which PyTorch emulates it.
    Emulated,
}

impl Bfloat16Support {
    /// PyTorch's own rule for CUDA devices: native from compute capability 8.0 on.
    pub fn of_compute_capability(major: u32) -> Self {
        if major >= 8 { Self::Native } else { Self::Emulated }
    }
}

/// Why a worker measured nothing. The `Display` text is French.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Failure {
    /// The libtorch that was loaded is not the one that the worker was built with.
    #[error(
        "le PyTorch (libtorch) chargé est de version {loaded}, le programme de mesure est construit pour la version {expected}. \
         Installez PyTorch {expected}, ou reconstruisez avec « cargo xtask worker »."
    )]
    LibtorchVersion {
        /// Version inside the loaded library.
        loaded: String,
        /// Version of the headers that the worker was compiled with.
        expected: String,
    },

    /// libtorch is there, its CUDA library is not.
    #[error(
        "ce PyTorch (libtorch) est construit sans prise en charge du GPU. \
         Installez PyTorch 2.11.0 avec CUDA, par exemple avec « cargo xtask worker ». Pas de repli vers le CPU."
    )]
    GpuBackendMissing,

    /// CUDA works and finds no device.
    #[error(
        "aucun GPU n'est visible pour PyTorch. Vérifiez que cette machine en a un et que CUDA_VISIBLE_DEVICES ne le cache pas. \
         Pas de repli vers le CPU."
    )]
    NoVisibleGpu,

    /// CUDA did not start.
    #[error(
        "CUDA ne démarre pas (erreur {code}, {name} : {words}). {} Pas de repli vers le CPU.",
        startup_advice(*code)
    )]
    CudaStartup {
        /// CUDA's number.
        code: i32,
        /// CUDA's name of the error.
        name: String,
        /// CUDA's words.
        words: String,
    },

    /// The chosen index does not exist.
    #[error(
        "le GPU cuda:{index} n'existe pas ici ; nombre de GPU visibles : {visible}, numérotés à partir de cuda:0. \
         Pas de repli vers un autre GPU ni vers le CPU."
    )]
    DeviceIndexOutOfRange {
        /// The index asked for.
        index: u32,
        /// How many are visible.
        visible: u32,
    },

    /// Another process holds the device exclusively.
    #[error("le GPU choisi est occupé ou indisponible ({words}). Attendez qu'il se libère ou choisissez-en un autre.")]
    DeviceBusy {
        /// CUDA's words.
        words: String,
    },

    /// The device's memory does not hold the configuration.
    #[error("la mémoire du GPU ne suffit pas pour cette configuration ({words}). Réduisez batch, context ou width.")]
    OutOfGpuMemory {
        /// libtorch's words.
        words: String,
    },

    /// The machine's memory does not hold the weights, which are drawn on the CPU.
    #[error("la mémoire de la machine ne suffit pas pour préparer les poids ({words}). Réduisez width.")]
    OutOfHostMemory {
        /// libtorch's words.
        words: String,
    },

    /// The caching allocator is off, so its counters stay at zero.
    #[error(
        "l'allocateur avec cache de PyTorch est désactivé, ses compteurs resteraient à zéro. \
         Retirez le réglage de mise au point PYTORCH_NO_CUDA_MEMORY_CACHING, puis recommencez."
    )]
    CachingAllocatorOff,

    /// The device does not take bfloat16 tensors.
    #[error("bfloat16 n'est pas déclaré pris en charge sur le GPU choisi ({words}). Choisissez float32 ou float16.")]
    Bfloat16NotDeclared {
        /// libtorch's words.
        words: String,
    },

    /// Any other error of libtorch.
    #[error("PyTorch (libtorch) a signalé une erreur : {words}")]
    Libtorch {
        /// libtorch's words.
        words: String,
    },

    /// The worker did not understand its request.
    #[error("le programme de mesure n'a pas compris sa demande ({words}).")]
    BadRequest {
        /// What was wrong.
        words: String,
    },
}

/// What a CUDA start-up error usually means, from CUDA's documentation of its error codes.
fn startup_advice(code: i32) -> &'static str {
    match code {
        35 => {
            "Le plus souvent, aucun pilote NVIDIA n'est installé sur cette machine, ou il est trop ancien pour ce PyTorch."
        }
        802 => {
            "Le système n'a pas fini d'initialiser ses GPU : attendez un peu, puis vérifiez le service Fabric Manager."
        }
        803 => {
            "Le pilote chargé et ses bibliothèques n'ont pas la même version : redémarrer la machine suffit souvent."
        }
        _ => "Vérifiez le pilote du GPU.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bfloat16_is_native_from_compute_capability_8_on() {
        // 7.5 is a T4, 8.0 an A100, 9.0 an H200.
        let support = [7, 8, 9].map(Bfloat16Support::of_compute_capability);
        assert_eq!(support, [Bfloat16Support::Emulated, Bfloat16Support::Native, Bfloat16Support::Native]);
    }

    #[test]
    fn messages_are_single_tagged_lines() -> Result<(), serde_json::Error> {
        let message = Message::Failed { failure: Failure::DeviceIndexOutOfRange { index: 7, visible: 1 } };
        let line = serde_json::to_string(&message)?;
        assert_eq!(
            line,
            r#"{"message":"failed","failure":{"kind":"device_index_out_of_range","index":7,"visible":1}}"#
        );
        assert_eq!(serde_json::from_str::<Message>(&line)?, message);
        Ok(())
    }
}
