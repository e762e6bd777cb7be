//! The messages between the library and the worker: one JSON request on the worker's standard
//! input, then JSON lines on its standard output. Both sides use these very types. The worker's
//! only argument, such as `cuda:0`, is a hint to start that device early.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::measure::{Digests, Extras, MeasureConfig, PhaseRow, SyntheticModel};
use crate::settings::RuntimeSettings;

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
        /// What to add, outside the timed phases.
        extras: Extras,
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
        /// Present when asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        device_time: Option<Box<DeviceObservations>>,
    },
    /// Last line when nothing was measured.
    Failed {
        /// Why.
        failure: Failure,
    },
}

/// Times of passes on the device's clock, in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceObservations {
    /// Of passes launched one by one.
    pub forward: Vec<f64>,
    /// Of replays of a captured pass; absent when it could not be captured.
    pub graph_replay: Option<Vec<f64>>,
    /// Why it could not.
    pub graph_failure: Option<Failure>,
}

/// What only a process with libtorch can tell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// Settings that change what is measured; unknown when libtorch does not accept them.
    pub runtime_settings: Option<RuntimeSettings>,
    /// Why the chosen GPU cannot be used, when it cannot.
    pub failure: Option<Failure>,
}

impl WorkerEnvironment {
    /// Whether it has a visible GPU, or the reason why not.
    pub(crate) fn is_consistent(&self) -> bool {
        match self.selected_device {
            Some(_) => self.visible_device_count > 0,
            None => self.failure.is_some(),
        }
    }
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Failure {
    /// The libtorch that was loaded is not the one that the worker was built with.
    LibtorchVersion {
        /// Version inside the loaded library.
        loaded: String,
        /// Version of the headers that the worker was compiled with.
        expected: String,
    },

    /// libtorch is there, its CUDA library is not.
    GpuBackendMissing,

    /// CUDA works and finds no device.
    NoVisibleGpu,

    /// CUDA did not start.
    CudaStartup {
        /// CUDA's number.
        code: i32,
        /// CUDA's name of the error.
        name: String,
        /// CUDA's words.
        words: String,
    },

    /// The chosen index does not exist.
    DeviceIndexOutOfRange {
        /// The index asked for.
        index: u32,
        /// How many are visible.
        visible: u32,
    },

    /// Another process holds the device exclusively.
    DeviceBusy {
        /// CUDA's words.
        words: String,
    },

    /// The device's memory does not hold the configuration.
    OutOfGpuMemory {
        /// libtorch's words.
        words: String,
    },

    /// The machine's memory does not hold the weights, which are drawn on the CPU.
    OutOfHostMemory {
        /// libtorch's words.
        words: String,
    },

    /// The caching allocator is off, so its counters stay at zero.
    CachingAllocatorOff,

    /// The device does not take bfloat16 tensors.
    Bfloat16NotDeclared {
        /// libtorch's words.
        words: String,
    },

    /// Any other error of libtorch.
    Libtorch {
        /// libtorch's words.
        words: String,
    },

    /// The worker did not understand its request.
    BadRequest {
        /// What was wrong.
        words: String,
    },
}

const NO_CPU: &str = "Pas de repli vers le CPU.";
/// The loader looks there before it looks where the worker was linked.
pub(crate) const OTHERS_FIRST: &str =
    "Si la variable LD_LIBRARY_PATH désigne un autre PyTorch, retirez-la : il passe devant.";

impl Failure {
    /// What was found, in French, without a final full stop.
    pub fn happened(&self) -> String {
        match self {
            Self::LibtorchVersion { loaded, expected } => format!(
                "le PyTorch (libtorch) chargé est de version {loaded}, le programme de mesure est construit pour la version {expected}"
            ),
            Self::GpuBackendMissing => "ce PyTorch (libtorch) est construit sans prise en charge du GPU".to_owned(),
            Self::NoVisibleGpu => "aucun GPU n'est visible pour PyTorch".to_owned(),
            // A number without a name, from a newer or broken driver.
            Self::CudaStartup { code, name, words } if name == words => {
                format!("CUDA ne démarre pas (erreur {code} : {words})")
            }
            Self::CudaStartup { code, name, words } => {
                format!("CUDA ne démarre pas (erreur {code}, {name} : {words})")
            }
            Self::DeviceIndexOutOfRange { index, visible } => format!(
                "le GPU cuda:{index} n'existe pas ici ; nombre de GPU visibles : {visible}, numérotés à partir de cuda:0"
            ),
            Self::DeviceBusy { words } => format!("le GPU choisi est occupé ou indisponible ({words})"),
            Self::OutOfGpuMemory { words } => {
                format!("la mémoire du GPU ne suffit pas pour cette configuration ({words})")
            }
            Self::OutOfHostMemory { words } => {
                format!("la mémoire de la machine ne suffit pas pour préparer les poids ({words})")
            }
            Self::CachingAllocatorOff => {
                "l'allocateur avec cache de PyTorch est désactivé, ses compteurs resteraient à zéro".to_owned()
            }
            Self::Bfloat16NotDeclared { words } => {
                format!("bfloat16 n'est pas déclaré pris en charge sur le GPU choisi ({words})")
            }
            Self::Libtorch { words } => format!("PyTorch (libtorch) a signalé une erreur : {words}"),
            Self::BadRequest { words } => format!("le programme de mesure n'a pas compris sa demande ({words})"),
        }
    }

    /// What to do, in French; may be empty.
    pub fn way_out(&self) -> String {
        match self {
            Self::LibtorchVersion { expected, .. } => {
                format!("Installez PyTorch {expected}, ou reconstruisez avec « cargo xtask worker ». {OTHERS_FIRST}")
            }
            Self::GpuBackendMissing => {
                format!(
                    "Installez PyTorch 2.11.0 avec CUDA, par exemple avec « cargo xtask worker ». {OTHERS_FIRST} {NO_CPU}"
                )
            }
            Self::NoVisibleGpu => {
                format!("Vérifiez que cette machine en a un et que CUDA_VISIBLE_DEVICES ne le cache pas. {NO_CPU}")
            }
            Self::CudaStartup { code, .. } => format!("{} {NO_CPU}", startup_advice(*code)),
            Self::DeviceIndexOutOfRange { .. } => "Pas de repli vers un autre GPU ni vers le CPU.".to_owned(),
            Self::DeviceBusy { .. } => {
                "Attendez qu'il se libère ou choisissez-en un autre ; nvidia-smi montre ce qui l'occupe et si son mode de calcul interdit de le partager.".to_owned()
            },
            Self::OutOfGpuMemory { .. } => "Réduisez batch, context ou width.".to_owned(),
            Self::OutOfHostMemory { .. } => "Réduisez width.".to_owned(),
            Self::CachingAllocatorOff => {
                "Retirez le réglage de mise au point PYTORCH_NO_CUDA_MEMORY_CACHING, puis recommencez.".to_owned()
            }
            Self::Bfloat16NotDeclared { .. } => "Choisissez float32 ou float16.".to_owned(),
            Self::Libtorch { .. } => {
                "Recommencez ; si l'erreur revient, vérifiez l'état du GPU et de son pilote avec nvidia-smi.".to_owned()
            }
            Self::BadRequest { .. } => String::new(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way_out = self.way_out();
        write!(f, "{}.", self.happened())?;
        if way_out.is_empty() { Ok(()) } else { write!(f, " {way_out}") }
    }
}

impl std::error::Error for Failure {}

/// What a CUDA start-up error usually means, from CUDA's documentation of its error codes.
fn startup_advice(code: i32) -> &'static str {
    match code {
        2 => {
            "Il n'y a plus assez de mémoire pour démarrer : d'autres programmes occupent sans doute le GPU, et nvidia-smi les montre. Attendez qu'ils finissent, ou choisissez un autre GPU."
        }
        34 => {
            "Une bibliothèque factice (stub) est chargée à la place du pilote NVIDIA : retirez son dossier de LD_LIBRARY_PATH."
        }
        35 => {
            "Le plus souvent, aucun pilote NVIDIA n'est installé sur cette machine, ou il est trop ancien pour ce PyTorch."
        }
        36 => "Le pilote NVIDIA est trop ancien pour ce PyTorch : mettez-le à jour.",
        101 => {
            "Ce numéro ne désigne pas un GPU que CUDA peut utiliser : comparez-le à la liste de nvidia-smi et à CUDA_VISIBLE_DEVICES."
        }
        102 => "Ce GPU partagé n'a pas de licence valide : demandez-la à qui administre la machine.",
        214 => {
            "La mémoire du GPU a une erreur qui ne se corrige pas : choisissez un autre GPU, ou redémarrez la machine."
        }
        802 => {
            "Le système n'a pas fini d'initialiser ses GPU : attendez un peu, puis vérifiez le service Fabric Manager."
        }
        803 => {
            "Le pilote chargé et ses bibliothèques n'ont pas la même version : redémarrer la machine suffit souvent."
        }
        804 => {
            "Les bibliothèques de compatibilité CUDA (cuda-compat) ne conviennent pas à ce GPU : mettez le pilote à jour et retirez-les, ou ne laissez visibles, avec CUDA_VISIBLE_DEVICES, que des GPU qui conviennent."
        }
        805..=809 => {
            "Le service MPS, qui partage le GPU entre programmes, ne répond pas ou n'a plus de place : attendez un peu, puis redémarrez-le ou arrêtez-le."
        }
        _ => "Vérifiez avec nvidia-smi que le pilote du GPU répond ; sinon, rechargez-le ou redémarrez la machine.",
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
    fn a_failure_says_what_happened_and_the_way_out_if_there_is_one() {
        let words = || "mots".to_owned();
        assert_eq!(
            Failure::BadRequest { words: words() }.to_string(),
            "le programme de mesure n'a pas compris sa demande (mots)."
        );
        assert_eq!(
            Failure::OutOfHostMemory { words: words() }.to_string(),
            "la mémoire de la machine ne suffit pas pour préparer les poids (mots). Réduisez width."
        );
    }

    #[test]
    fn start_up_errors_have_advice_of_their_own() {
        // Numbers of CUDA's documentation; 999 is cudaErrorUnknown.
        let advice = [
            (2, "choisissez un autre GPU"),
            (34, "stub"),
            (35, "trop ancien"),
            (36, "mettez-le à jour"),
            (101, "CUDA_VISIBLE_DEVICES"),
            (102, "licence"),
            (214, "ne se corrige pas"),
            (802, "Fabric Manager"),
            (803, "redémarrer"),
            (804, "cuda-compat"),
            (805, "MPS"),
            (809, "MPS"),
            (810, "nvidia-smi"),
            (999, "nvidia-smi"),
        ];
        for (code, expected) in advice {
            assert!(startup_advice(code).contains(expected), "{code}");
        }
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
