//! What of the simulation depends on the GPU.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::arguments::is_digits;
use crate::error::LabError;
use crate::measure::Measurement;

/// Sizes of the workspaces that PyTorch allocates for NVIDIA's libraries, and how they are known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocatorProfile {
    /// Architecture of the GPU, such as `hopper`.
    pub name: String,
    /// Workspace of cuBLAS in bytes.
    pub cublas_workspace_bytes: u64,
    /// Workspace of cuBLASLt in bytes.
    pub cublaslt_workspace_bytes: u64,
    /// How these sizes are known.
    pub evidence: Evidence,
}

/// How the sizes of a profile are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// Read from PyTorch 2.11 on an H200, and verified in counters.
    Measured,
    /// Told by PyTorch during the measurement that is compared.
    Told,
    /// PyTorch's default for this architecture; not verified here.
    Documented,
    /// The GPU is not known: the largest of the known defaults.
    Assumed,
}

/// Default of PyTorch 2.11.0 for compute capability 9.0, and for that one only; later versions have it for
/// Blackwell, too.
const LARGE_CUBLAS: u64 = 32 << 20;
/// Default of PyTorch 2.11 on other NVIDIA GPUs: two buffers of 4 MiB and eight of 16 KiB.
const SMALL_CUBLAS: u64 = 2 * (4 << 20) + 8 * (16 << 10);
/// Default of PyTorch 2.11 on every NVIDIA GPU.
const CUBLASLT: u64 = 1 << 20;

/// Names, compute capabilities and defaults of the architectures that PyTorch 2.11 tells apart.
const ARCHITECTURES: [(&str, &[&str], u64, Evidence); 6] = [
    ("hopper", &["9.0"], LARGE_CUBLAS, Evidence::Measured),
    ("blackwell", &["10.", "12."], SMALL_CUBLAS, Evidence::Documented),
    ("ada", &["8.9"], SMALL_CUBLAS, Evidence::Documented),
    ("ampere", &["8."], SMALL_CUBLAS, Evidence::Documented),
    ("turing", &["7.5"], SMALL_CUBLAS, Evidence::Documented),
    ("unknown", &[], LARGE_CUBLAS, Evidence::Assumed),
];

impl AllocatorProfile {
    /// NVIDIA H100, H200.
    pub fn hopper() -> Self {
        Self::at(0)
    }

    /// A GPU that is not known.
    pub fn unknown() -> Self {
        Self::at(ARCHITECTURES.len() - 1)
    }

    /// The profile of a compute capability such as `9.0`; [`AllocatorProfile::unknown`] for one that
    /// PyTorch 2.11 does not tell apart.
    ///
    /// # Errors
    /// [`LabError::InvalidArgument`] for another text, such as a GPU's name.
    pub fn of_compute_capability(capability: &str) -> Result<Self, LabError> {
        if !capability.split_once('.').is_some_and(|(major, minor)| is_digits(major) && is_digits(minor)) {
            let expected = "une capacité de calcul, comme 9.0";
            return Err(LabError::invalid("compute_capability", capability, expected));
        }
        let place =
            ARCHITECTURES.iter().position(|(_, starts, ..)| starts.iter().any(|start| capability.starts_with(start)));
        Ok(place.map_or_else(Self::unknown, Self::at))
    }

    /// The profile of a measurement's GPU, with the sizes that PyTorch told there, if it did. What a file
    /// says of the GPU that nobody understands leaves it unknown.
    pub fn of_measurement(measurement: &Measurement) -> Self {
        let environment = &measurement.environment;
        let capability = environment.selected_device_compute_capability.as_deref().unwrap_or_default();
        let profile = Self::of_compute_capability(capability).unwrap_or_else(|_| Self::unknown());
        let told = environment.runtime_settings.as_ref();
        match told.map(|told| (told.cublas_workspace_bytes, told.cublaslt_workspace_bytes)) {
            Some((Some(cublas_workspace_bytes), Some(cublaslt_workspace_bytes))) => {
                Self { cublas_workspace_bytes, cublaslt_workspace_bytes, evidence: Evidence::Told, ..profile }
            }
            _ => profile,
        }
    }

    fn at(place: usize) -> Self {
        let (name, _, cublas_workspace_bytes, evidence) = ARCHITECTURES[place];
        Self { name: name.to_owned(), cublas_workspace_bytes, cublaslt_workspace_bytes: CUBLASLT, evidence }
    }
}

impl FromStr for AllocatorProfile {
    type Err = LabError;

    fn from_str(text: &str) -> Result<Self, LabError> {
        let place = ARCHITECTURES.iter().position(|(name, ..)| *name == text);
        place.map(Self::at).ok_or_else(|| {
            let names: Vec<&str> = ARCHITECTURES.iter().map(|(name, ..)| *name).collect();
            LabError::invalid("profile", text, names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the code of PyTorch 2.11.0 has it: one value for compute capability 9.0, another for the rest.
    #[test]
    fn only_compute_capability_9_0_has_the_large_workspace() -> Result<(), LabError> {
        let cases = [
            ("9.0", "hopper", 33_554_432),
            ("8.0", "ampere", 8_519_680),
            ("8.6", "ampere", 8_519_680),
            ("8.9", "ada", 8_519_680),
            ("7.5", "turing", 8_519_680),
            ("10.0", "blackwell", 8_519_680),
            ("12.0", "blackwell", 8_519_680),
        ];
        for (capability, name, bytes) in cases {
            let profile = AllocatorProfile::of_compute_capability(capability)?;
            assert_eq!((profile.name.as_str(), profile.cublas_workspace_bytes), (name, bytes), "{capability}");
            assert_ne!(profile.evidence, Evidence::Assumed);
        }
        for unknown in ["9.1", "7.0", "100.0", "99999999999999999999.0"] {
            assert_eq!(AllocatorProfile::of_compute_capability(unknown)?, AllocatorProfile::unknown(), "{unknown}");
        }
        Ok(())
    }

    #[test]
    fn a_name_is_no_compute_capability() {
        for text in ["", "A100", "8", "8.", ".0", "8.x", "9.0a", "sm_90", "9,0", " 9.0", "9.0.1", "8.-1", "٩.٠"] {
            let refused = AllocatorProfile::of_compute_capability(text);
            assert!(matches!(&refused, Err(LabError::InvalidArgument { .. })), "{text}: {refused:?}");
        }
    }
}
