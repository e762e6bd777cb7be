//! libtorch's words, sorted into the protocol's failures.

use iteragpu_lab::protocol::Failure;
use tch::TchError;

use crate::boundary::CudaResult;

/// CUDA's numbers that have a meaning of their own here.
const CUDA_OUT_OF_MEMORY: i32 = 2;
const CUDA_DEVICES_UNAVAILABLE: i32 = 46;
const CUDA_NO_DEVICE: i32 = 100;

/// A failure of tch.
pub fn of_tch(error: TchError) -> Failure {
    match error {
        TchError::Torch(words) => of_words(&words),
        other => Failure::Libtorch { words: other.to_string() },
    }
}

/// A failure from an exception's words, as PyTorch 2.11 writes them.
pub fn of_words(words: &str) -> Failure {
    // What follows is advice on allocator settings, or a list of C++ frames.
    let first_line = words.lines().next().unwrap_or_default();
    let first_line = first_line
        .split(" Including non-PyTorch memory")
        .next()
        .unwrap_or_default()
        .trim_matches([' ', '.'])
        .to_owned();
    if words.contains("CUDA out of memory") {
        Failure::OutOfGpuMemory { words: first_line }
    } else if words.contains("DefaultCPUAllocator") {
        Failure::OutOfHostMemory { words: first_line }
    } else {
        Failure::Libtorch { words: first_line }
    }
}

/// A failure from the result of starting CUDA or a device; none for success.
pub fn of_start(result: &CudaResult) -> Option<Failure> {
    match result.code {
        0 => None,
        CUDA_NO_DEVICE => Some(Failure::NoVisibleGpu),
        CUDA_DEVICES_UNAVAILABLE => Some(Failure::DeviceBusy { words: result.words.clone() }),
        CUDA_OUT_OF_MEMORY => Some(Failure::OutOfGpuMemory { words: result.words.clone() }),
        code => Some(Failure::CudaStartup { code, name: result.name.clone(), words: result.words.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_exhaustion_is_told_apart() {
        // First lines as PyTorch 2.11.0 wrote them on an H200 and on a CPU.
        let gpu = "CUDA out of memory. Tried to allocate 1.53 TiB. GPU 0 has a total capacity of 139.80 GiB \
                   of which 139.26 GiB is free. Including non-PyTorch memory, this process has 540.00 MiB memory in use.\nException raised";
        assert!(matches!(of_words(gpu), Failure::OutOfGpuMemory { words } if words.ends_with("139.26 GiB is free")));
        let host = "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 4000000000000 bytes.";
        assert!(matches!(of_words(host), Failure::OutOfHostMemory { .. }));
        assert!(matches!(of_words("mat1 and mat2 shapes cannot be multiplied"), Failure::Libtorch { .. }));
    }

    #[test]
    fn start_up_errors_keep_number_and_words() {
        let result = |code| CudaResult { code, name: "cudaErrorX".to_owned(), words: "x".to_owned() };
        assert!(of_start(&result(0)).is_none());
        assert!(matches!(of_start(&result(100)), Some(Failure::NoVisibleGpu)));
        assert!(matches!(of_start(&result(46)), Some(Failure::DeviceBusy { .. })));
        for code in [35, 802, 803] {
            let name = "cudaErrorX".to_owned();
            assert_eq!(of_start(&result(code)), Some(Failure::CudaStartup { code, name, words: "x".to_owned() }));
        }
    }
}
