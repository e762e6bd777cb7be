/* Starts the context of the chosen GPU in a thread of its own, while the loader still runs the
 * constructors of libtorch. Each of the two takes about 0.2 s; side by side they cost once.
 *
 * The executable's .preinit_array runs before the constructors of every library: this file is C,
 * and uses nothing but the C library, which is ready by then. Whatever fails here is left alone:
 * the program starts the device again in the ordinary way and reports what happens. */

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

extern char** environ;

static int device_index;

static void* start_context(void* unused) {
  (void)unused;
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == NULL) {
    return NULL;
  }
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
  int (*get)(int*, int) = (int (*)(int*, int))dlsym(driver, "cuDeviceGet");
  int (*retain)(void**, int) = (int (*)(void**, int))dlsym(driver, "cuDevicePrimaryCtxRetain");
  int device = 0;
  void* context = NULL;
  if (init && get && retain && init(0) == 0 && get(&device, device_index) == 0) {
    /* The runtime uses the same primary context, with the same default flags. */
    (void)retain(&context, device);
  }
  return NULL;
}

/* The only argument is the device, as in "cuda:0"; without it nothing is started early. */
static void early_start(int argc, char** argv, char** envp) {
  if (argc != 2 || strncmp(argv[1], "cuda:", 5) != 0) {
    return;
  }
  device_index = atoi(argv[1] + 5);
  /* The C library sets this a moment later; the driver must not miss CUDA_VISIBLE_DEVICES. */
  environ = envp;
  pthread_t thread;
  if (pthread_create(&thread, NULL, start_context, NULL) == 0) {
    pthread_detach(thread);
  }
}

__attribute__((section(".preinit_array"), used)) static void (*const entry)(int, char**, char**) = early_start;
