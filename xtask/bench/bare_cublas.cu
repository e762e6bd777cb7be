// The floor for a whole process: start CUDA, make one cuBLAS call, end. Build with
// nvcc -O2 -o bare_cublas bare_cublas.cu -lcublas
#include <cstdio>
#include <cublas_v2.h>
#include <cuda_runtime.h>

int main() {
  constexpr int width = 64, rows = 16;
  float *weights = nullptr, *inputs = nullptr, *outputs = nullptr;
  cublasHandle_t handle = nullptr;
  const float one = 1.0f, zero = 0.0f;
  const bool done = cudaMalloc(&weights, width * width * sizeof(float)) == cudaSuccess &&
      cudaMalloc(&inputs, rows * width * sizeof(float)) == cudaSuccess &&
      cudaMalloc(&outputs, rows * width * sizeof(float)) == cudaSuccess &&
      cudaMemset(weights, 0, width * width * sizeof(float)) == cudaSuccess &&
      cudaMemset(inputs, 0, rows * width * sizeof(float)) == cudaSuccess &&
      cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS &&
      cublasSgemm(handle, CUBLAS_OP_T, CUBLAS_OP_N, width, rows, width, &one, weights, width, inputs, width, &zero,
                  outputs, width) == CUBLAS_STATUS_SUCCESS &&
      cudaDeviceSynchronize() == cudaSuccess;
  std::puts(done ? "done" : "failed");
  return done ? 0 : 1;
}
