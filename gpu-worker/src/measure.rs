//! The measured phases: `model_load`, `inputs`, `cold_forward`, `warmup`, then one `warm_forward`
//! a repetition.
//!
//! What a phase disturbs and does not see: each is bracketed by a synchronisation of the device;
//! peaks are reset before it; its time is the host's, launch and synchronisation included; its
//! counters are those of this process's caching allocator alone.

use std::time::Instant;

use iteragpu_lab::measure::{Digests, Dtype, Extras, MeasureConfig, PhaseRow, SyntheticModel};
use iteragpu_lab::protocol::{Bfloat16Support, Failure, Message, WorkerEnvironment};
use tch::{Device, Kind, Tensor};

use crate::boundary::{self, InferenceMode};
use crate::device_time;
use crate::environment::add_workspaces;
use crate::failure::of_tch;
use crate::model::{self, Model};
use crate::output::Output;

/// Measures on the current device, sends each row, and returns the last message.
pub fn measure(
    index: i32,
    config: &MeasureConfig,
    extras: Extras,
    mut environment: WorkerEnvironment,
    output: &mut Output,
) -> Result<Message, Failure> {
    let mut recorder = Recorder { index, output };
    let (device, kind) = (Device::Cuda(index as usize), model::kind(config.dtype));
    let shape = [size(config.batch)?, size(config.context)?, size(config.width)?];

    boundary::synchronize(index)?;
    check_bfloat16(config.dtype, device, &environment)?;
    boundary::use_highest_matmul_precision()?;
    // One seed for both: a fresh process draws weights on the CPU and inputs on the GPU, each
    // from the start of its own default generator.
    tch::manual_seed(i64::try_from(config.seed).map_err(|_| too_large(config.seed))?);
    let _inference_mode = InferenceMode::enter();

    let model = recorder.record("model_load", 0, None, || Model::new(shape[2], kind, device))?;
    let inputs = recorder.record("inputs", 0, None, || model::inputs(shape, kind, device))?;
    let rows = model::rows(&inputs)?;
    drop(recorder.record("cold_forward", 0, None, || model.forward(&rows))?);
    recorder.record("warmup", 0, Some(config.warmup), || {
        (0..config.warmup).try_for_each(|_| model.forward(&rows).map(drop))
    })?;
    let mut last_output = None;
    for run in 1..=config.repeats {
        // The previous output is freed before the baseline is read.
        drop(last_output.take());
        last_output = Some(recorder.record("warm_forward", run, None, || model.forward(&rows))?);
    }

    let digests_sha256 = match last_output.filter(|_| extras.digest) {
        Some(output) => Some(digests(&model, &inputs, &output)?),
        None => None,
    };
    let device_time = match extras.device_passes {
        Some(passes) => Some(Box::new(device_time::observe(index, &model, &rows, passes)?)),
        None => None,
    };
    add_workspaces(&mut environment);
    let (parameter_count, parameter_bytes) = model.size()?;
    Ok(Message::Measured {
        environment,
        synthetic_model: SyntheticModel {
            definition: "Linear(width,width), GELU, Linear(width,width)".to_owned(),
            parameter_count,
            parameter_bytes,
        },
        digests_sha256,
        device_time,
    })
}

struct Recorder<'a> {
    index: i32,
    output: &'a mut Output,
}

impl Recorder<'_> {
    /// Runs one phase. Its result is still alive when the end counters are read.
    fn record<T>(
        &mut self,
        phase: &str,
        run_index: u64,
        iterations: Option<u64>,
        operation: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        boundary::synchronize(self.index)?;
        let baseline = boundary::counters(self.index)?;
        boundary::reset_peaks(self.index)?;
        let start = Instant::now();
        let result = operation()?;
        boundary::synchronize(self.index)?;
        let elapsed_seconds = start.elapsed().as_secs_f64();
        let end = boundary::counters(self.index)?;
        // With the caching allocator switched off the counters stay at zero, like a real result.
        if end.allocated == 0 {
            return Err(Failure::CachingAllocatorOff);
        }
        let row = PhaseRow {
            phase: phase.to_owned(),
            run_index,
            elapsed_seconds,
            baseline_allocated_bytes: baseline.allocated,
            baseline_reserved_bytes: baseline.reserved,
            end_allocated_bytes: end.allocated,
            end_reserved_bytes: end.reserved,
            peak_allocated_bytes: end.peak_allocated,
            peak_reserved_bytes: end.peak_reserved,
            iterations,
        };
        self.output.send(&Message::Phase { row });
        Ok(result)
    }
}

/// An older device emulates bfloat16; one that refuses such a tensor does not take it at all.
fn check_bfloat16(dtype: Dtype, device: Device, environment: &WorkerEnvironment) -> Result<(), Failure> {
    let support = environment.selected_device.as_ref().map(|device| device.bfloat16);
    if dtype != Dtype::Bfloat16 || support == Some(Bfloat16Support::Native) {
        return Ok(());
    }
    match Tensor::f_ones([1], (Kind::BFloat16, device)).map_err(of_tch) {
        Ok(_) => Ok(()),
        // A device that fails says nothing about bfloat16.
        Err(Failure::Libtorch { words }) if !words.starts_with("CUDA ") => Err(Failure::Bfloat16NotDeclared { words }),
        Err(failure) => Err(failure),
    }
}

fn digests(model: &Model, inputs: &Tensor, output: &Tensor) -> Result<Digests, Failure> {
    let [first, second] = model.weights();
    Ok(Digests {
        w0: model::digest(first)?,
        w2: model::digest(second)?,
        inputs: model::digest(inputs)?,
        output: model::digest(output)?,
    })
}

fn size(value: u64) -> Result<i64, Failure> {
    i64::try_from(value).map_err(|_| too_large(value))
}

fn too_large(value: u64) -> Failure {
    Failure::BadRequest { words: format!("{value} > 2^63 - 1") }
}
