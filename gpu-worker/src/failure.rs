//! libtorch's words, sorted into the protocol's failures.

use iteragpu_lab::protocol::Failure;
use tch::TchError;

use crate::boundary::CudaResult;

/// CUDA's numbers that have a meaning of their own here.
const CUDA_DEVICES_UNAVAILABLE: i32 = 46;
const CUDA_NO_DEVICE: i32 = 100;

/// End of the sentence that says what was asked for and what the device has.
const FREE: &str = " is free";

/// A failure of tch.
pub fn of_tch(error: TchError) -> Failure {
    match error {
        TchError::Torch(words) => of_words(&words),
        other => Failure::Libtorch { words: other.to_string() },
    }
}

/// A failure from an exception's words, as PyTorch 2.11 writes them.
pub fn of_words(words: &str) -> Failure {
    // What follows is a list of C++ frames.
    let first_line = words.lines().next().unwrap_or_default().trim_matches([' ', '.']).to_owned();
    if words.contains("CUDA out of memory") {
        // What follows is about other processes, and advice on settings that a measurement must not have.
        let free = first_line.find(FREE).map_or(first_line.len(), |at| at + FREE.len());
        Failure::OutOfGpuMemory { words: first_line[..free].to_owned() }
    } else if words.contains("DefaultCPUAllocator") {
        Failure::OutOfHostMemory { words: first_line }
    } else {
        Failure::Libtorch { words: first_line.trim_end_matches('.').to_owned() }
    }
}

/// A failure from the result of starting CUDA or a device; none for success.
pub fn of_start(result: &CudaResult) -> Option<Failure> {
    match result.code {
        0 => None,
        CUDA_NO_DEVICE => Some(Failure::NoVisibleGpu),
        CUDA_DEVICES_UNAVAILABLE => Some(Failure::DeviceBusy { words: result.words.clone() }),
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
        // And without a driver that names the memory of processes.
        let gpu = "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 1 has a total capacity of 1024.00 MiB of which 0 bytes is free. \
                   Of the allocated memory 0 bytes is allocated by PyTorch. If reserved but unallocated memory is large try setting \
                   PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.";
        assert!(matches!(of_words(gpu), Failure::OutOfGpuMemory { words } if words.ends_with("0 bytes is free")));
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
        // Memory that is missing at the start is not a matter of the configuration.
        for code in [2, 35, 802, 803] {
            let name = "cudaErrorX".to_owned();
            assert_eq!(of_start(&result(code)), Some(Failure::CudaStartup { code, name, words: "x".to_owned() }));
        }
    }
}
