//! What this process can tell about libtorch, the driver and the chosen GPU.

use std::thread::{self, JoinHandle};
use std::{env, fs};

use iteragpu_lab::protocol::{Bfloat16Support, Failure, SelectedDevice, WorkerEnvironment};
use iteragpu_lab::settings::{RuntimeSettings, UNREADABLE};
use nvml_wrapper::Nvml;

use crate::boundary::{self, Device};
use crate::failure;

/// Version of the binding, which fixes the version of libtorch.
pub const TCH_VERSION: &str = "0.24.0";

/// Version of the libtorch whose headers this program was compiled with.
const BUILT_FOR: &str = env!("ITERAGPU_TORCH_VERSION");

/// The driver's version, read beside everything else.
pub struct DriverVersion(Option<JoinHandle<Option<String>>>);

impl DriverVersion {
    /// Starts reading. NVML takes tens of milliseconds and needs nothing from libtorch.
    pub fn start_reading() -> Self {
        let reader = thread::Builder::new().spawn(|| {
            // The name without a number exists only where development files are installed.
            let library = ["libnvidia-ml.so.1", "libnvidia-ml.so"].into_iter();
            let nvml = library.map(|name| Nvml::builder().lib_path(name.as_ref()).init()).find_map(Result::ok)?;
            nvml.sys_driver_version().ok()
        });
        Self(reader.ok())
    }

    fn wait(self) -> Option<String> {
        self.0?.join().ok().flatten()
    }
}

/// Describes libtorch and the chosen GPU, which becomes the current device when it can be used.
pub fn environment(device_index: u32, driver: DriverVersion) -> Result<WorkerEnvironment, Failure> {
    let build = |name: &str| boundary::build_option(name).map(|value| Some(value).filter(|value| !value.is_empty()));
    let mut found = WorkerEnvironment {
        tch_version: TCH_VERSION.to_owned(),
        torch_version: torch_version()?,
        cuda_build_version: build("CUDA_VERSION")?,
        hip_build_version: build("HIP_VERSION")?,
        ..WorkerEnvironment::default()
    };
    match select_device(device_index, &mut found.visible_device_count) {
        Ok(device) => found.selected_device = Some(described(device)),
        Err(failure) => found.failure = Some(failure),
    }
    match runtime_settings() {
        Ok(settings) => found.runtime_settings = Some(settings),
        // PyTorch would refuse to allocate with a setting that it does not know.
        Err(failure) => found.failure = found.failure.or(Some(failure)),
    }
    found.driver_version = driver.wait();
    Ok(found)
}

fn runtime_settings() -> Result<RuntimeSettings, Failure> {
    let is_set = |name: &&str| env::var_os(name).is_some();
    let set_outside = UNREADABLE.into_iter().filter(is_set).map(str::to_owned).collect();
    Ok(RuntimeSettings { set_outside, ..boundary::allocator_settings()? })
}

/// Adds the sizes of the workspaces of the current device. Apart from the rest: the question
/// initializes what the first matrix product would otherwise initialize.
pub fn add_workspaces(found: &mut WorkerEnvironment) {
    if let (Some(settings), Ok((cublas, cublaslt))) = (&mut found.runtime_settings, boundary::workspaces()) {
        settings.cublas_workspace_bytes = Some(cublas);
        settings.cublaslt_workspace_bytes = Some(cublaslt);
    }
}

fn select_device(device_index: u32, visible: &mut u32) -> Result<Device, Failure> {
    let loaded = boundary::build_option("TORCH_VERSION")?;
    if loaded != BUILT_FOR {
        return Err(Failure::LibtorchVersion { loaded, expected: BUILT_FOR.to_owned() });
    }
    if !boundary::has_gpu_backend()? {
        return Err(Failure::GpuBackendMissing);
    }
    let (count, result) = boundary::device_count()?;
    if let Some(failure) = failure::of_start(&result) {
        return Err(failure);
    }
    *visible = count;
    let out_of_range = Failure::DeviceIndexOutOfRange { index: device_index, visible: count };
    match i32::try_from(device_index) {
        _ if count == 0 => Err(Failure::NoVisibleGpu),
        Ok(index) if device_index < count => {
            let result = boundary::select_device(index)?;
            failure::of_start(&result).map_or_else(|| boundary::describe_device(index), Err)
        }
        _ => Err(out_of_range),
    }
}

fn described(device: Device) -> SelectedDevice {
    SelectedDevice {
        name: device.name,
        pci_bus_id: device.pci_bus_id,
        total_bytes: device.total_bytes,
        compute_capability: format!("{}.{}", device.capability_major, device.capability_minor),
        bfloat16: Bfloat16Support::of_compute_capability(device.capability_major),
    }
}

/// The version inside the loaded library, with the build's suffix (`+cu130`) where the files
/// beside that library name it for the same version.
fn torch_version() -> Result<String, Failure> {
    let inside = boundary::build_option("TORCH_VERSION")?;
    let library = boundary::libtorch_path()?;
    let root = library.parent().and_then(|lib| lib.parent());
    // A Python package has version.py, a libtorch archive build-version.
    let named = root.and_then(|root| {
        let python = fs::read_to_string(root.join("version.py")).ok();
        let quoted =
            python.as_deref().and_then(|text| text.lines().find_map(|line| line.strip_prefix("__version__ = ")));
        let archive = || fs::read_to_string(root.join("build-version")).ok();
        quoted.map(|text| text.trim_matches(['\'', '"']).to_owned()).or_else(archive)
    });
    let named = named.map(|version| version.trim().to_owned());
    Ok(named.filter(|version| version.split('+').next() == Some(&inside)).unwrap_or(inside))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binding_in_the_lock_file_is_the_one_reported() -> Result<(), std::io::Error> {
        let lock = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.lock"))?;
        assert!(lock.contains(&format!("name = \"tch\"\nversion = \"{TCH_VERSION}\"")));
        Ok(())
    }
}
