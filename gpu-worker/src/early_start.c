/* What must not wait for the constructors of libtorch, which take from a quarter of a second to
 * more than one. The executable's .preinit_array runs before the constructors of every library:
 * this file is C, and uses nothing but the C library, which is ready by then.
 *
 * One thread ends the process when the caller closes its side of the input, on purpose or by
 * dying: from the first moment on, nothing outlives the caller.
 *
 * Another starts the context of the chosen GPU. That takes about as long as the constructors;
 * side by side they cost once. Whatever fails there is left alone: the program starts the device
 * again in the ordinary way and reports what happens. */

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char** environ;

static void* leave_with_the_caller(void* unused) {
  (void)unused;
  /* No events: what there is to read stays for the program, only a hang-up ends the wait. */
  struct pollfd input = {.fd = STDIN_FILENO, .events = 0, .revents = 0};
  while (poll(&input, 1, -1) < 0 && (errno == EINTR || errno == EAGAIN)) {
  }
  _exit(1);
}

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

static int in_thread(void* (*task)(void*)) {
  pthread_t thread;
  return pthread_create(&thread, NULL, task, NULL) == 0 && pthread_detach(thread) == 0;
}

/* The only argument is the device, as in "cuda:0"; without it no device is started early. */
static void early_start(int argc, char** argv, char** envp) {
  if (!in_thread(leave_with_the_caller)) {
    /* Without the watch this process could outlive its caller on the GPU. */
    _exit(1);
  }
  if (argc != 2 || strncmp(argv[1], "cuda:", 5) != 0) {
    return;
  }
  device_index = atoi(argv[1] + 5);
  /* The C library sets this a moment later; the driver must not miss CUDA_VISIBLE_DEVICES. */
  environ = envp;
  (void)in_thread(start_context);
}

__attribute__((section(".preinit_array"), used)) static void (*const entry)(int, char**, char**) = early_start;
