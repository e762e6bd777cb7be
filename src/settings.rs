//! Settings that change what is measured, as libtorch uses them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::shortened;

/// What libtorch uses, and the names of what it cannot be asked. The sizes of the workspaces need
/// a GPU; without one they are `null`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RuntimeSettings {
    /// `native`, or `cudaMallocAsync`, which counts in another way.
    pub allocator_backend: String,
    /// Whether segments grow instead of staying as they are allocated.
    pub expandable_segments: bool,
    /// Size in bytes of the segments that hold blocks between 1 and 10 MiB.
    pub large_segment_bytes: u64,
    /// Blocks above this size in bytes are never split; `null` when every block may be.
    pub max_split_bytes: Option<u64>,
    /// How much larger than asked for a block may be that is not split, in bytes.
    pub max_non_split_rounding_bytes: u64,
    /// Steps between two powers of two to which sizes are rounded, for each range of sizes; empty
    /// when none is rounded.
    pub roundup_power2_divisions: Vec<u64>,
    /// Share of the memory above which unused blocks are given back; 0 is never.
    pub garbage_collection_threshold: f64,
    /// What libtorch allocates for cuBLAS at the first matrix product, in bytes.
    pub cublas_workspace_bytes: Option<u64>,
    /// The same for cuBLASLt.
    pub cublaslt_workspace_bytes: Option<u64>,
    /// Names out of [`UNREADABLE`] that the worker was started with; never their values.
    pub set_outside: Vec<String>,
}

/// Environment variables that change times, counters or results, and whose effect no function of
/// libtorch tells. `docs/fiabilite.md` has what each of them did on an H200.
pub const UNREADABLE: [&str; 11] = [
    "CUBLASLT_WORKSPACE_SIZE",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_FORCE_PTX_JIT",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "DISABLE_ADDMM_CUDA_LT",
    "NVIDIA_TF32_OVERRIDE",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "PYTORCH_TUNABLEOP_ENABLED",
    "TORCH_BLAS_PREFER_CUBLASLT",
    "TORCH_CUBLASLT_UNIFIED_WORKSPACE",
];

/// PyTorch 2.11 uses it for segments and, by default, for rounding without a split.
const LARGE_SEGMENT_BYTES: u64 = 20 << 20;

/// Characters that name settings to people: every setting there is, with an ordinary value.
const MAX_DIFFERENCES: usize = 600;

impl RuntimeSettings {
    /// What differs from the defaults of PyTorch 2.11, as `name=value`; a name alone is one out of
    /// [`UNREADABLE`], in quotes where it is blank.
    pub fn different_from_default(&self) -> Vec<String> {
        let max_split = self.max_split_bytes.map(|bytes| bytes.to_string()).unwrap_or_default();
        let rounding = self.roundup_power2_divisions.iter().map(u64::to_string).collect::<Vec<_>>().join("/");
        let readable = [
            ("allocator_backend", self.allocator_backend.clone(), self.allocator_backend != "native"),
            ("expandable_segments", self.expandable_segments.to_string(), self.expandable_segments),
            (
                "large_segment_bytes",
                self.large_segment_bytes.to_string(),
                self.large_segment_bytes != LARGE_SEGMENT_BYTES,
            ),
            ("max_split_bytes", max_split, self.max_split_bytes.is_some()),
            (
                "max_non_split_rounding_bytes",
                self.max_non_split_rounding_bytes.to_string(),
                self.max_non_split_rounding_bytes != LARGE_SEGMENT_BYTES,
            ),
            ("roundup_power2_divisions", rounding, !self.roundup_power2_divisions.is_empty()),
            (
                "garbage_collection_threshold",
                self.garbage_collection_threshold.to_string(),
                self.garbage_collection_threshold != 0.0,
            ),
        ];
        let readable = readable.into_iter().filter(|(_, _, differs)| *differs);
        let mut different: Vec<String> = readable.map(|(name, value, _)| format!("{name}={value}")).collect();
        different.extend(self.workspaces());
        // A file may hold names that nobody would see.
        let blank = |name: &String| name.trim().is_empty();
        let names = self.set_outside.iter();
        different.extend(names.map(|name| if blank(name) { format!("{name:?}") } else { name.clone() }));
        different
    }

    /// The same on one line for people, or none where nothing differs.
    pub(crate) fn differences(&self) -> Option<String> {
        let different = self.different_from_default();
        (!different.is_empty()).then(|| shortened(&different.join(", "), MAX_DIFFERENCES))
    }

    /// The workspaces' default depends on the GPU: their sizes tell something only beside a variable
    /// that changes them.
    fn workspaces(&self) -> impl Iterator<Item = String> {
        let sizes = [
            ("cublas_workspace_bytes", self.cublas_workspace_bytes),
            ("cublaslt_workspace_bytes", self.cublaslt_workspace_bytes),
        ];
        let changed = self.set_outside.iter().any(|name| name.contains("WORKSPACE"));
        let known = sizes.into_iter().filter(move |_| changed);
        known.filter_map(|(name, bytes)| bytes.map(|bytes| format!("{name}={bytes}")))
    }

    /// Whether measurements under these settings compare with others, in French.
    pub(crate) fn note(&self) -> String {
        match self.differences() {
            None => "Réglages par défaut de PyTorch.".to_owned(),
            Some(different) => format!(
                "Réglages différents de ceux par défaut : {different}. Compteurs et durées ne se comparent qu'à ceux d'une mesure aux mêmes réglages."
            ),
        }
    }
}

/// One cell of a results file: `default`, or what differs from it.
impl fmt::Display for RuntimeSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let different = self.different_from_default();
        if different.is_empty() { f.write_str("default") } else { f.write_str(&different.join(" ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As PyTorch 2.11.0 reported them on an H200 without any setting.
    fn defaults() -> RuntimeSettings {
        RuntimeSettings {
            allocator_backend: "native".to_owned(),
            large_segment_bytes: 20_971_520,
            max_non_split_rounding_bytes: 20_971_520,
            cublas_workspace_bytes: Some(33_554_432),
            cublaslt_workspace_bytes: Some(1_048_576),
            ..RuntimeSettings::default()
        }
    }

    type Change = fn(&mut RuntimeSettings);

    #[test]
    fn each_setting_that_differs_is_named_with_its_value() {
        assert_eq!(defaults().to_string(), "default");
        assert_eq!(defaults().note(), "Réglages par défaut de PyTorch.");
        let cases: [(&str, Change); 11] = [
            ("allocator_backend=cudaMallocAsync", |s| s.allocator_backend = "cudaMallocAsync".to_owned()),
            ("expandable_segments=true", |s| s.expandable_segments = true),
            ("large_segment_bytes=41943040", |s| s.large_segment_bytes = 41_943_040),
            ("max_split_bytes=33554432", |s| s.max_split_bytes = Some(33_554_432)),
            ("max_non_split_rounding_bytes=0", |s| s.max_non_split_rounding_bytes = 0),
            ("roundup_power2_divisions=1/2/8", |s| s.roundup_power2_divisions = vec![1, 2, 8]),
            ("garbage_collection_threshold=0.5", |s| s.garbage_collection_threshold = 0.5),
            ("CUDA_LAUNCH_BLOCKING", |s| s.set_outside = vec!["CUDA_LAUNCH_BLOCKING".to_owned()]),
            (r#""" "\u{a0}""#, |s| s.set_outside = vec![String::new(), "\u{a0}".to_owned()]),
            ("cublas_workspace_bytes=131072 cublaslt_workspace_bytes=131072 CUBLAS_WORKSPACE_CONFIG", |s| {
                (s.cublas_workspace_bytes, s.cublaslt_workspace_bytes) = (Some(131_072), Some(131_072));
                s.set_outside = vec!["CUBLAS_WORKSPACE_CONFIG".to_owned()];
            }),
            ("expandable_segments=true max_split_bytes=1", |s| {
                (s.expandable_segments, s.max_split_bytes) = (true, Some(1));
            }),
        ];
        for (expected, change) in cases {
            let mut settings = defaults();
            change(&mut settings);
            assert_eq!(settings.to_string(), expected);
            assert!(settings.note().contains(&expected.replace(' ', ", ")), "{}", settings.note());
        }
    }

    #[test]
    fn a_long_setting_does_not_hide_what_is_said_of_it() {
        let settings = RuntimeSettings { allocator_backend: "A".repeat(1 << 20), ..defaults() };
        let note = settings.note();
        assert!(note.chars().count() < 1000 && note.ends_with("aux mêmes réglages."), "{} bytes", note.len());
        assert!(settings.to_string().len() > 1 << 20, "a results file keeps all of it");
    }
}
