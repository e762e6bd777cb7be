/* A driver without any card: two devices, described by CUDA_CAPABILITY (75 when unset). It writes
 * down in CUDA_NOTES what it is asked, and stands before the real driver, if there is one. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int note(const char* what, int value) {
  const char* notes = getenv("CUDA_NOTES");
  FILE* file = notes ? fopen(notes, "a") : NULL;
  if (file) {
    fprintf(file, "%s %d\n", what, value);
    fclose(file);
  }
  return 0;
}

static int copy(const char* text, char* to, int size) {
  snprintf(to, (size_t)size, "%s", text);
  return 0;
}

int cuInit(unsigned flags) {
  return note("init", (int)flags);
}

int cuDeviceGet(int* device, int index) {
  *device = 100 + index;
  return index < 2 ? note("get", index) : 101;
}

int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = NULL;
  return note("retain", device);
}

int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  (void)device;
  *flags = 0;
  *active = 0;
  return 0;
}

int cuDeviceGetName(char* name, int size, int device) {
  return copy(device == 100 ? "First invented GPU" : "Second invented GPU", name, size);
}

int cuDeviceGetPCIBusId(char* bus, int size, int device) {
  return copy(device == 100 ? "0000:01:00.0" : "0000:02:00.0", bus, size);
}

int cuDeviceTotalMem_v2(size_t* bytes, int device) {
  *bytes = (size_t)(device - 99) << 34;
  return 0;
}

/* 75 and 76 are the compute capability's two parts. */
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  (void)device;
  const char* capability = getenv("CUDA_CAPABILITY");
  const int both = capability ? atoi(capability) : 75;
  *value = attribute == 75 ? both / 10 : both % 10;
  return 0;
}
