"""Writes slangpy_rt/backends/cuda/ffi.py: the CUDA driver functions that the backend calls, as cffi tables.

Development only. With ready tables a process that opens a CUDA device does not import cffi's parser of C, which
takes 15 ms (50 where Python keeps no bytecode). Run it after changing the declarations below; a test checks that
running it changes nothing.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from cffi import FFI

TARGET = Path(__file__).parents[2] / "slangpy_rt" / "backends" / "cuda" / "ffi.py"

# Handles are declared as integers because a backend only passes them on. cuda.h renames the plain names to
# those with _v2 since CUDA 4.0 (primary context: 11.0), so every 12.x and 13.x driver has the latter.
DECLARATIONS = """
int cuInit(unsigned int flags);
int cuGetErrorName(int status, const char **name);
int cuDeviceGetCount(int *count);
int cuDeviceGet(int *device, int ordinal);
int cuDeviceGetName(char *name, int length, int device);
int cuDeviceGetAttribute(int *value, int attribute, int device);
int cuDeviceTotalMem_v2(size_t *nbytes, int device);
int cuDevicePrimaryCtxRetain(uintptr_t *context, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuDevicePrimaryCtxGetState(int device, unsigned int *flags, int *active);
int cuCtxGetCurrent(uintptr_t *context);
int cuCtxSetCurrent(uintptr_t context);
int cuCtxSynchronize(void);
int cuStreamCreate(uintptr_t *stream, unsigned int flags);
int cuStreamDestroy_v2(uintptr_t stream);
int cuStreamSynchronize(uintptr_t stream);
int cuStreamGetCtx(uintptr_t stream, uintptr_t *context);
int cuStreamIsCapturing(uintptr_t stream, int *status);
int cuThreadExchangeStreamCaptureMode(int *mode);
int cuStreamWaitEvent(uintptr_t stream, uintptr_t event, unsigned int flags);
int cuEventCreate(uintptr_t *event, unsigned int flags);
int cuEventDestroy_v2(uintptr_t event);
int cuEventRecord(uintptr_t event, uintptr_t stream);
int cuEventSynchronize(uintptr_t event);
int cuEventQuery(uintptr_t event);
int cuEventElapsedTime(float *milliseconds, uintptr_t start, uintptr_t end);
int cuMemGetInfo_v2(size_t *free, size_t *total);
int cuMemAlloc_v2(uintptr_t *address, size_t nbytes);
int cuMemFree_v2(uintptr_t address);
int cuMemHostAlloc(uintptr_t *address, size_t nbytes, unsigned int flags);
int cuMemFreeHost(uintptr_t address);
int cuMemHostGetDevicePointer_v2(uintptr_t *device, uintptr_t host, unsigned int flags);
int cuMemcpyHtoDAsync_v2(uintptr_t device, uintptr_t host, size_t nbytes, uintptr_t stream);
int cuMemcpyDtoHAsync_v2(uintptr_t host, uintptr_t device, size_t nbytes, uintptr_t stream);
int cuMemcpyAsync(uintptr_t dst, uintptr_t src, size_t nbytes, uintptr_t stream);
int cuMemsetD8Async(uintptr_t device, unsigned char value, size_t count, uintptr_t stream);
int cuModuleLoadData(uintptr_t *module, const char *image);
int cuModuleGetFunction(uintptr_t *function, uintptr_t module, const char *name);
int cuFuncGetAttribute(int *value, int attribute, uintptr_t function);
int cuFuncSetAttribute(uintptr_t function, int attribute, int value);
int cuModuleUnload(uintptr_t module);
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *groups, uintptr_t function, int threads, size_t shared_bytes);
int cuTensorMapEncodeTiled(void *map, int type, unsigned int rank, uintptr_t address, const unsigned long long *sizes,
                           const unsigned long long *strides, const unsigned int *box, const unsigned int *steps,
                           int interleave, int swizzle, int promotion, int outside);
typedef struct {
    size_t width, height, depth;
    int format;
    unsigned int channels, flags;
} CUDA_ARRAY3D_DESCRIPTOR;
typedef struct {
    int type;
    union { uintptr_t handle; int reserved[32]; } of;
    unsigned int flags;
} CUDA_RESOURCE_DESC;
typedef struct {
    int wraps[3], filter;
    unsigned int flags, anisotropy;
    int mip_filter;
    float bias, least, most, border[4];
    int reserved[12];
} CUDA_TEXTURE_DESC;
typedef struct {
    int format;
    size_t width, height, depth;
    unsigned int first_level, last_level, first_layer, last_layer, reserved[16];
} CUDA_RESOURCE_VIEW_DESC;
typedef struct {
    size_t x, y, z, lod;
    int type;
    uintptr_t host, device, array, reserved;
    size_t pitch, height;
} CUmemcpyPlace;
typedef struct {
    CUmemcpyPlace src, dst;
    size_t nbytes, height, depth;
} CUDA_MEMCPY3D;
int cuMipmappedArrayCreate(uintptr_t *array, const CUDA_ARRAY3D_DESCRIPTOR *told, unsigned int levels);
int cuMipmappedArrayGetLevel(uintptr_t *level, uintptr_t array, unsigned int number);
int cuMipmappedArrayDestroy(uintptr_t array);
int cuTexObjectCreate(unsigned long long *object, const CUDA_RESOURCE_DESC *what, const CUDA_TEXTURE_DESC *how,
                      const void *view);
int cuTexObjectDestroy(unsigned long long object);
int cuSurfObjectCreate(unsigned long long *object, const CUDA_RESOURCE_DESC *what);
int cuSurfObjectDestroy(unsigned long long object);
int cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *told, uintptr_t stream);
typedef struct {
    unsigned int gx, gy, gz, bx, by, bz, shared_bytes;
    uintptr_t stream;
    void *attributes;
    unsigned int attribute_count;
} CUlaunchConfig;
int cuLaunchKernelEx(const CUlaunchConfig *config, uintptr_t function, void **params, void **extra);
typedef struct {
    uintptr_t function;
    unsigned int gx, gy, gz, bx, by, bz, shared_bytes;
    void **params, **extra;
    uintptr_t kernel, context;
} CUDA_KERNEL_NODE_PARAMS;
int cuGraphCreate(uintptr_t *graph, unsigned int flags);
int cuGraphDestroy(uintptr_t graph);
int cuGraphAddKernelNode_v2(uintptr_t *node, uintptr_t graph, const uintptr_t *before, size_t count,
                            const CUDA_KERNEL_NODE_PARAMS *params);
int cuGraphInstantiateWithFlags(uintptr_t *executable, uintptr_t graph, unsigned long long flags);
int cuGraphExecDestroy(uintptr_t executable);
int cuGraphExecKernelNodeSetParams_v2(uintptr_t executable, uintptr_t node,
                                      const CUDA_KERNEL_NODE_PARAMS *params);
int cuDeviceGetUuid_v2(unsigned char *uuid, int device);
int cuDeviceGetLuid(char *luid, unsigned int *mask, int device);
typedef union { int fd; struct { void *handle; const void *name; } win32; } CUexternalHandle;
typedef struct {
    int type;
    CUexternalHandle handle;
    unsigned long long size;
    unsigned int flags, reserved[16];
} CUDA_EXTERNAL_MEMORY_HANDLE_DESC;
typedef struct {
    unsigned long long offset, size;
    unsigned int flags, reserved[16];
} CUDA_EXTERNAL_MEMORY_BUFFER_DESC;
typedef struct {
    int type;
    CUexternalHandle handle;
    unsigned int flags, reserved[16];
} CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC;
typedef struct { unsigned long long value; } CUexternalFence;
typedef struct {
    struct {
        CUexternalFence fence;
        unsigned long long sync, key;
        unsigned int reserved[12];
    } params;
    unsigned int flags, reserved[16];
} CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS;
typedef struct {
    struct {
        CUexternalFence fence;
        unsigned long long sync;
        struct { unsigned long long key; unsigned int timeout_ms; } mutex;
        unsigned int reserved[10];
    } params;
    unsigned int flags, reserved[16];
} CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS;
int cuImportExternalMemory(uintptr_t *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *told);
int cuExternalMemoryGetMappedBuffer(uintptr_t *address, uintptr_t memory,
                                    const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *part);
int cuDestroyExternalMemory(uintptr_t memory);
int cuImportExternalSemaphore(uintptr_t *semaphore, const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *told);
int cuSignalExternalSemaphoresAsync(const uintptr_t *semaphores, const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *params,
                                    unsigned int count, uintptr_t stream);
int cuWaitExternalSemaphoresAsync(const uintptr_t *semaphores, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params,
                                  unsigned int count, uintptr_t stream);
int cuDestroyExternalSemaphore(uintptr_t semaphore);
int cuGraphLaunch(uintptr_t executable, uintptr_t stream);
int cuLaunchKernel(uintptr_t function, unsigned int gx, unsigned int gy, unsigned int gz,
                   unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared_bytes,
                   uintptr_t stream, void **params, void **extra);
"""


def generate() -> str:
    """Return the text of the module."""
    ffi = FFI()
    ffi.cdef(DECLARATIONS)
    ffi.set_source("slangpy_rt.backends.cuda.ffi", None)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "module.py"
        ffi.emit_python_code(str(path))
        text = path.read_text(encoding="utf-8")
    return text.replace("# auto-generated file", "# Generated by codegen/tools/gen_cuda_ffi.py.")


if __name__ == "__main__":
    TARGET.write_text(generate(), encoding="utf-8")
