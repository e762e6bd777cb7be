//! The synthetic model `Linear(width, width) -> GELU -> Linear(width, width)`, drawn and run as
//! the original draws and runs it: the same numbers, bit for bit.

use iteragpu_lab::measure::Dtype;
use iteragpu_lab::protocol::Failure;
use sha2::{Digest, Sha256};
use tch::{Device, Kind, Tensor};

use crate::failure::of_tch;

/// Standard deviation of the weights.
const WEIGHT_DEVIATION: f64 = 0.02;

/// Weights of shape `[width, width]` and biases of shape `[width]`.
pub struct Model {
    first: Linear,
    second: Linear,
}

struct Linear {
    weight: Tensor,
    /// A view of `weight`, which owns no memory.
    transposed: Tensor,
    bias: Tensor,
}

impl Model {
    /// Draws both weight matrices on the CPU, first then second, from the default generator;
    /// biases are zero. Then moves each parameter to `device` and `kind` in one step.
    pub fn new(width: i64, kind: Kind, device: Device) -> Result<Self, Failure> {
        let layers = (|| Ok((Linear::drawn(width)?, Linear::drawn(width)?)))();
        let (first, second) = layers.map_err(of_tch)?;
        // The order weight, bias, weight, bias fixes the addresses, and with them the counters.
        let moved = (|| Ok(Self { first: first.moved(kind, device)?, second: second.moved(kind, device)? }))();
        moved.map_err(of_tch)
    }

    /// One pass over rows of shape `[batch * context, width]`. Each intermediate is freed as soon
    /// as the next one exists, as in a `Sequential`; keeping one longer would add an activation to
    /// the peak.
    pub fn forward(&self, inputs: &Tensor) -> Result<Tensor, Failure> {
        let output = (|| {
            let hidden = self.first.forward(inputs)?;
            let activated = hidden.f_gelu("none")?;
            drop(hidden);
            self.second.forward(&activated)
        })();
        output.map_err(of_tch)
    }

    /// Number of parameters and their bytes.
    pub fn size(&self) -> Result<(u64, u64), Failure> {
        let parameters = [&self.first.weight, &self.first.bias, &self.second.weight, &self.second.bias];
        let count: usize = parameters.iter().map(|parameter| parameter.numel()).sum();
        let bytes = self.first.weight.f_kind().map_err(of_tch)?.elt_size_in_bytes() * count;
        Ok((count as u64, bytes as u64))
    }

    /// The two weight matrices.
    pub fn weights(&self) -> [&Tensor; 2] {
        [&self.first.weight, &self.second.weight]
    }
}

impl Linear {
    fn drawn(width: i64) -> Result<Self, tch::TchError> {
        let options = (Kind::Float, Device::Cpu);
        let weight = Tensor::f_empty([width, width], options)?.f_normal_(0.0, WEIGHT_DEVIATION)?;
        Self::of(weight, Tensor::f_zeros([width], options)?)
    }

    fn of(weight: Tensor, bias: Tensor) -> Result<Self, tch::TchError> {
        Ok(Self { transposed: weight.f_tr()?, weight, bias })
    }

    fn moved(&self, kind: Kind, device: Device) -> Result<Self, tch::TchError> {
        let moved = |tensor: &Tensor| tensor.f_to_device_(device, kind, false, false);
        Self::of(moved(&self.weight)?, moved(&self.bias)?)
    }

    /// What `linear` itself calls for contiguous inputs, once it has flattened them and taken a
    /// view of the weights: the same kernel, the same bits, without making those views each time.
    fn forward(&self, rows: &Tensor) -> Result<Tensor, tch::TchError> {
        self.bias.f_addmm(rows, &self.transposed)
    }
}

/// Inputs of shape `[batch, context, width]`, drawn on `device` from its default generator.
pub fn inputs(shape: [i64; 3], kind: Kind, device: Device) -> Result<Tensor, Failure> {
    Tensor::f_randn(shape, (kind, device)).map_err(of_tch)
}

/// The inputs as rows of shape `[batch * context, width]`: a view, which owns no memory.
pub fn rows(inputs: &Tensor) -> Result<Tensor, Failure> {
    inputs.f_flatten(0, 1).map_err(of_tch)
}

/// libtorch's name of a number type.
pub fn kind(dtype: Dtype) -> Kind {
    match dtype {
        Dtype::Float32 => Kind::Float,
        Dtype::Float16 => Kind::Half,
        Dtype::Bfloat16 => Kind::BFloat16,
    }
}

/// SHA-256 of a tensor's raw bytes, contiguous and little endian, in hexadecimal.
pub fn digest(tensor: &Tensor) -> Result<String, Failure> {
    let bytes = (|| {
        let tensor = tensor.f_to(Device::Cpu)?.f_contiguous()?;
        let mut bytes = vec![0; tensor.numel() * tensor.f_kind()?.elt_size_in_bytes()];
        tensor.f_copy_data_u8(&mut bytes, tensor.numel())?;
        Ok(bytes)
    })();
    let digest = Sha256::digest(bytes.map_err(of_tch)?);
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::fs;

    use iteragpu_lab::measure::MeasureConfig;
    use serde_json::Value;

    use super::*;

    /// The weights are drawn on the CPU, so that a machine without a GPU can check them against
    /// the original's. One test, since all share the process's default generator.
    #[test]
    fn drawn_weights_are_the_originals_bit_for_bit() -> Result<(), Box<dyn Error>> {
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/h200_counters.json");
        let golden: Value = serde_json::from_str(&fs::read_to_string(golden)?)?;
        let cases = golden["cases"].as_array().ok_or("no cases")?;
        assert!(!cases.is_empty());
        for case in cases {
            let mut configuration = case["configuration"].clone();
            configuration["device"] = Value::from("cuda:0");
            let config: MeasureConfig = serde_json::from_value(configuration)?;
            tch::manual_seed(i64::try_from(config.seed)?);
            let model = Model::new(i64::try_from(config.width)?, kind(config.dtype), Device::Cpu)?;
            let [first, second] = model.weights();
            assert_eq!(digest(first)?, case["digests_sha256"]["w0"].as_str().unwrap_or_default(), "{config:?}");
            assert_eq!(digest(second)?, case["digests_sha256"]["w2"].as_str().unwrap_or_default(), "{config:?}");
        }
        // Another seed must be seen, or the comparison above could not fail.
        tch::manual_seed(1730);
        let other = Model::new(64, Kind::Float, Device::Cpu)?;
        assert_ne!(digest(other.weights()[0])?, cases[0]["digests_sha256"]["w0"].as_str().unwrap_or_default());
        Ok(())
    }

    #[test]
    fn a_huge_width_exhausts_memory_as_a_failure() {
        let refused = Model::new(1 << 30, Kind::Float, Device::Cpu).map(|_| ());
        assert!(matches!(refused, Err(Failure::OutOfHostMemory { .. })), "{refused:?}");
    }
}
