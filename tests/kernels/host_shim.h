// CUDA's words for a CPU, as far as kernels.cuh uses them. A translation unit is this file, then kernels.cuh, then
// host_launch.h.
//
// With LANES = 1 a warp is one thread, and barriers and shuffles do nothing. With LANES = 32 it is 32 threads. A barrier
// is then one of the system, which ThreadSanitizer knows; a shuffle is made of relaxed atomic operations alone, so that, as
// on a GPU, it orders no memory and hides no missing barrier.

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#define __global__
#define __device__ static inline
#define __shared__

using std::fabs;
using std::sqrt;
using std::tanh;

struct Place {
    unsigned x;
};

static thread_local Place threadIdx{0}, blockIdx{0}, blockDim{1}, gridDim{1};

// The shared memory of the one block that runs, as much as every device grants.
double scratch[48 * 1024 / sizeof(double)];

static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fmul_rn(float a, float b) { return a * b; }

static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}

#if LANES > 1
static pthread_barrier_t warp_barrier;
static std::atomic<unsigned long long> shown[LANES];
static std::atomic<unsigned> arrived, generation;

static inline void __syncwarp() { pthread_barrier_wait(&warp_barrier); }

// Wait for all lanes without ordering what they did to memory.
static inline void meet() {
    const unsigned before = generation.load(std::memory_order_relaxed);
    if (arrived.fetch_add(1, std::memory_order_relaxed) == LANES - 1) {
        arrived.store(0, std::memory_order_relaxed);
        generation.store(before + 1, std::memory_order_relaxed);
    } else {
        while (generation.load(std::memory_order_relaxed) == before) sched_yield();
    }
}

template <class T>
static inline T __shfl_xor_sync(unsigned, T value, int distance) {
    unsigned long long bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    shown[threadIdx.x].store(bits, std::memory_order_relaxed);
    meet();
    bits = shown[threadIdx.x ^ distance].load(std::memory_order_relaxed);
    meet();
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
#else
static inline void __syncwarp() {}

template <class T>
static inline T __shfl_xor_sync(unsigned, T value, int) {
    return value;
}
#endif
