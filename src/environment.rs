//! What GPU runtime can be reached, and the reason when none can.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::arguments::parse_device;
use crate::error::LabError;
use crate::json;
use crate::protocol::{Bfloat16Support, Request, VERSION, WorkerEnvironment};
use crate::settings::RuntimeSettings;
use crate::worker::{Answer, OnRow, Recorded, WorkerProgram};

/// The environment of one chosen GPU. What could not be learnt is `null`, with the cause in
/// `reason` or `driver_note`. `Display` prints it as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EnvironmentReport {
    /// Version of this library.
    pub lab_version: String,
    /// Version of the Rust binding that the worker uses.
    pub tch_version: Option<String>,
    /// Operating system, such as `Linux`.
    pub platform: String,
    /// The GPU asked for, such as `cuda:0`.
    pub requested_device: String,
    /// Whether PyTorch's library (libtorch) could be loaded.
    pub torch_importable: bool,
    /// Version of the libtorch that was loaded, such as `2.11.0+cu130`.
    pub torch_version: Option<String>,
    /// CUDA version that libtorch was built for; not the driver's version.
    pub cuda_build_version: Option<String>,
    /// HIP version that libtorch was built for.
    pub hip_build_version: Option<String>,
    /// Whether libtorch sees at least one GPU.
    pub gpu_available: bool,
    /// How many it sees; `null` when libtorch could not be asked.
    pub visible_device_count: Option<u32>,
    /// Whether the GPU asked for can be used.
    pub selected_device_available: bool,
    /// Its name.
    pub selected_device_name: Option<String>,
    /// Its memory in bytes, as the runtime announces it.
    pub selected_device_total_bytes: Option<u64>,
    /// Where the card sits, such as `0000:3B:00.0`: the same card whatever its index.
    pub selected_device_pci_bus_id: Option<String>,
    /// Its compute capability, such as `9.0`.
    pub selected_device_compute_capability: Option<String>,
    /// Whether it computes bfloat16 natively or through emulation.
    pub selected_device_bfloat16: Option<Bfloat16Support>,
    /// Version of the vendor's driver, read through NVML.
    pub driver_version: Option<String>,
    /// Where `driver_version` comes from, or why it is absent, in French.
    pub driver_note: String,
    /// Settings of libtorch that change what is measured; absent when it could not be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_settings: Option<RuntimeSettings>,
    /// Whether measurements under these settings compare with others, in French.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_settings_note: Option<String>,
    /// Why no measurement is possible, in French; absent when one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

const DRIVER_READ: &str = "Version lue par NVML, la bibliothèque de surveillance du fournisseur ; \
     elle est distincte de la version CUDA pour laquelle PyTorch est construit.";
const DRIVER_UNREAD: &str = "Version non lue : NVML n'a pas pu être chargé ou interrogé. Relevez-la avec l'outil du fournisseur et conservez-la avec l'essai.";
const DRIVER_UNASKED: &str = "Version non lue, faute de programme de mesure. Relevez-la avec l'outil du fournisseur et conservez-la avec l'essai.";

/// Reports the environment of `device` (`cuda:0`, `cuda:1`, …), from a fresh worker process.
///
/// A missing worker, libtorch, driver or GPU is not an error here but the report's `reason`.
///
/// # Errors
/// [`LabError::InvalidArgument`] when `device` has another form.
///
/// # Examples
/// ```
/// let report = iteragpu_lab::environment_report("cuda:0")?;
/// assert_eq!(report.selected_device_available, report.reason.is_none());
/// # Ok::<(), iteragpu_lab::LabError>(())
/// ```
pub fn environment_report(device: &str) -> Result<EnvironmentReport, LabError> {
    environment_report_with(WorkerProgram::locate(), device)
}

/// The same, with a chosen worker (or the reason why there is none).
///
/// # Errors
/// As [`environment_report`].
pub fn environment_report_with(
    worker: Result<WorkerProgram, LabError>,
    device: &str,
) -> Result<EnvironmentReport, LabError> {
    environment_by(|request, on_row| worker.and_then(|worker| worker.ask(request, on_row)), device)
}

/// The same from what a worker once wrote.
///
/// # Errors
/// As [`environment_report`].
#[doc(hidden)]
pub fn environment_recorded(
    mut worker: Recorded<impl std::io::Read>,
    device: &str,
) -> Result<EnvironmentReport, LabError> {
    environment_by(|request, on_row| worker.ask(request, on_row), device)
}

fn environment_by(
    ask: impl FnOnce(&Request, OnRow<'_>) -> Result<Answer, LabError>,
    device: &str,
) -> Result<EnvironmentReport, LabError> {
    let device_index = parse_device("device", device)?;
    Ok(match ask(&Request::Environment { device_index }, &mut |_| Ok(())) {
        Ok(Answer::Environment(environment)) if environment.is_consistent() => {
            EnvironmentReport::of_worker(device, environment)
        }
        Ok(Answer::Environment(_)) => EnvironmentReport::without_libtorch(
            device,
            &LabError::not_the_protocol("un environnement sans GPU visible ni raison"),
        ),
        Ok(Answer::Measured { .. }) => EnvironmentReport::without_libtorch(
            device,
            &LabError::not_the_protocol("une mesure au lieu de l'environnement"),
        ),
        Err(error) => EnvironmentReport::without_libtorch(device, &error),
    })
}

/// The environment of a GPU that can be measured on, or the reason why there is none.
#[cfg(feature = "explore")]
pub(crate) fn usable_environment(worker: &WorkerProgram, device: &str) -> Result<EnvironmentReport, LabError> {
    let device_index = parse_device("device", device)?;
    match worker.ask(&Request::Environment { device_index }, &mut |_| Ok(()))? {
        Answer::Environment(WorkerEnvironment { failure: Some(failure), .. }) => Err(LabError::Unavailable(failure)),
        Answer::Environment(found) if found.is_consistent() => Ok(EnvironmentReport::of_worker(device, found)),
        _ => Err(LabError::not_the_protocol("un environnement sans GPU visible ni raison")),
    }
}

impl EnvironmentReport {
    /// The report of a worker that ran.
    pub(crate) fn of_worker(device: &str, found: WorkerEnvironment) -> Self {
        let selected = found.selected_device;
        let driver_note = if found.driver_version.is_some() { DRIVER_READ } else { DRIVER_UNREAD };
        Self {
            lab_version: VERSION.to_owned(),
            tch_version: Some(found.tch_version),
            platform: platform(),
            requested_device: device.to_owned(),
            torch_importable: true,
            torch_version: Some(found.torch_version),
            cuda_build_version: found.cuda_build_version,
            hip_build_version: found.hip_build_version,
            gpu_available: found.visible_device_count > 0,
            visible_device_count: Some(found.visible_device_count),
            selected_device_available: selected.is_some() && found.failure.is_none(),
            selected_device_name: selected.as_ref().map(|device| device.name.clone()),
            selected_device_total_bytes: selected.as_ref().map(|device| device.total_bytes),
            selected_device_pci_bus_id: selected.as_ref().map(|device| device.pci_bus_id.clone()),
            selected_device_compute_capability: selected.as_ref().map(|device| device.compute_capability.clone()),
            selected_device_bfloat16: selected.as_ref().map(|device| device.bfloat16),
            driver_version: found.driver_version,
            driver_note: driver_note.to_owned(),
            runtime_settings_note: found.runtime_settings.as_ref().map(RuntimeSettings::note),
            runtime_settings: found.runtime_settings,
            reason: found.failure.map(|failure| LabError::Unavailable(failure).to_string()),
        }
    }

    /// The report when no worker could tell anything.
    fn without_libtorch(device: &str, error: &LabError) -> Self {
        Self {
            lab_version: VERSION.to_owned(),
            tch_version: None,
            platform: platform(),
            requested_device: device.to_owned(),
            torch_importable: false,
            torch_version: None,
            cuda_build_version: None,
            hip_build_version: None,
            gpu_available: false,
            visible_device_count: None,
            selected_device_available: false,
            selected_device_name: None,
            selected_device_total_bytes: None,
            selected_device_pci_bus_id: None,
            selected_device_compute_capability: None,
            selected_device_bfloat16: None,
            driver_version: None,
            driver_note: DRIVER_UNASKED.to_owned(),
            runtime_settings: None,
            runtime_settings_note: None,
            reason: Some(error.to_string()),
        }
    }
}

impl fmt::Display for EnvironmentReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", json::Pretty(self))
    }
}

/// The operating system's name as the original writes it, with a capital.
fn platform() -> String {
    match std::env::consts::OS {
        "linux" => "Linux".to_owned(),
        "macos" => "Darwin".to_owned(),
        "windows" => "Windows".to_owned(),
        other => other.to_owned(),
    }
}
