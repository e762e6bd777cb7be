/* Stands before the CUDA runtime (LD_PRELOAD) and answers chosen calls with chosen numbers, so that
 * the real libtorch meets faults that no machine has at hand. CUDA_FAULTS lists them:
 *
 *   cudaSetDevice=46     every call answers 46, and nothing is called
 *   cudaMalloc@3=2       the third call and all later ones answer 2; those before go through
 *   cudaMalloc@3-3=2     the third call only
 *   devices=2            two devices that start, but hold no memory and compute nothing; 0 finds none
 *
 * CUDA_NOTES names a file that gets a line for each call that names a device. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GO_ON = -1, MEMORY = 1 << 30, OFFSET_OF_MEMORY_IN_PROPERTIES = 288 };

/* What CUDA_FAULTS gives for this call of `name`. */
static int given(const char* name, int call) {
  const char* faults = getenv("CUDA_FAULTS");
  const size_t length = strlen(name);
  for (const char* at = faults ? faults : ""; *at; at += strcspn(at, " "), at += strspn(at, " ")) {
    int first = 1, last = INT_MAX, answer = GO_ON;
    if (strncmp(at, name, length) == 0 &&
        (sscanf(at + length, "=%d", &answer) == 1 || sscanf(at + length, "@%d=%d", &first, &answer) == 2 ||
         sscanf(at + length, "@%d-%d=%d", &first, &last, &answer) == 3)) {
      return first <= call && call <= last ? answer : GO_ON;
    }
  }
  return GO_ON;
}

/* The answer to one more call of `name`; invented devices need no runtime. */
static int answer_to(const char* name, atomic_int* calls) {
  const int answer = given(name, atomic_fetch_add(calls, 1) + 1);
  return answer == GO_ON && given("devices", 1) != GO_ON ? 0 : answer;
}

static void note(const char* what, int device) {
  const char* notes = getenv("CUDA_NOTES");
  FILE* file = notes ? fopen(notes, "a") : NULL;
  if (file) {
    fprintf(file, "%s %d\n", what, device);
    fclose(file);
  }
}

static _Thread_local int current;

/* A function of the runtime, which returns its error as a number; `invented` runs where it answers
 * without being called. */
#define STAND_BEFORE(name, parameters, arguments, invented)                                 \
  int name parameters {                                                                     \
    static atomic_int calls;                                                                \
    const int answer = answer_to(#name, &calls);                                            \
    if (answer == GO_ON) {                                                                  \
      return ((int(*) parameters)dlsym(RTLD_NEXT, #name))arguments;                         \
    }                                                                                       \
    invented;                                                                               \
    return answer;                                                                          \
  }

STAND_BEFORE(cudaGetDeviceCount, (int* count), (count), *count = given("devices", 1) == GO_ON ? 0 : given("devices", 1))
STAND_BEFORE(cudaSetDevice, (int device), (device), (note("set", device), current = device))
STAND_BEFORE(cudaGetDevice, (int* device), (device), *device = current)
STAND_BEFORE(cudaFree, (void* memory), (memory), note(memory ? "free" : "start", current))
STAND_BEFORE(cudaMalloc, (void** memory, size_t size), (memory, size), (note("allocate", current), *memory = NULL))
STAND_BEFORE(cudaDeviceSynchronize, (void), (), note("synchronize", current))
STAND_BEFORE(cudaMemGetInfo, (size_t* unused, size_t* total), (unused, total), (*unused = 0, *total = MEMORY))
STAND_BEFORE(cudaGetLastError, (void), (), (void)0)
STAND_BEFORE(cudaStreamIsCapturing, (void* stream, int* is), (stream, is), *is = 0)
STAND_BEFORE(cudaDeviceGetStreamPriorityRange, (int* least, int* greatest), (least, greatest), *least = *greatest = 0)
STAND_BEFORE(cudaStreamBeginCapture, (void* stream, int mode), (stream, mode), (void)0)
STAND_BEFORE(cudaGraphInstantiateWithFlags, (void** ready, void* graph, unsigned long long flags), (ready, graph, flags),
             *ready = NULL)
STAND_BEFORE(cudaGraphLaunch, (void* ready, void* stream), (ready, stream), (void)0)
/* The other properties stay as they were: libtorch reads none of them here. */
STAND_BEFORE(cudaGetDeviceProperties, (char* properties, int device), (properties, device),
             memcpy(properties + OFFSET_OF_MEMORY_IN_PROPERTIES, &(size_t){MEMORY}, sizeof(size_t)))
