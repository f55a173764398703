// Digests of rows and of K and V (section 13): wrapping integer sums, free of order. One block of 256 a row.

#define THREADS 256

struct Sums {
    u32 a;
    u32 b;
};

__device__ __forceinline__ void mix(Sums& sums, float x, u32 column) {
    u32 bits = is_nan(x) ? 0x7fffffffu : __float_as_uint(x);
    u32 v = (bits ^ (column + 1) * 0x9e3779b1u) * 0x85ebca6bu;
    v ^= v >> 16;
    v *= 0xc2b2ae35u;
    v ^= v >> 13;
    sums.a += v;
    sums.b += (v * 0x27d4eb2fu) ^ (v >> 7);
}

__device__ __forceinline__ void finish(Sums sums, u64* to) {
    u32 a = block_reduce<THREADS>(sums.a, [](u32 x, u32 y) { return x + y; });
    u32 b = block_reduce<THREADS>(sums.b, [](u32 x, u32 y) { return x + y; });
    if (threadIdx.x == 0) *to = (u64)a | (u64)b << 32;
}

extern "C" __global__ void __launch_bounds__(THREADS) digest_rows(const float* x, u32 n, u64* digests) {
    const float* row = x + (u64)blockIdx.x * n;
    Sums sums = {0, 0};
    for (u32 i = threadIdx.x; i < n; i += THREADS) mix(sums, row[i], i);
    finish(sums, digests + blockIdx.x);
}

// Of 16-bit rows, widened.
extern "C" __global__ void __launch_bounds__(THREADS) digest_rows16(const u16* x, u32 n, u64* digests) {
    const u16* row = x + (u64)blockIdx.x * n;
    Sums sums = {0, 0};
    for (u32 i = threadIdx.x; i < n; i += THREADS) mix(sums, wide(row[i]), i);
    finish(sums, digests + blockIdx.x);
}

// blockIdx.x: position after `from`; blockIdx.y: K or V. The pool is [block][kv head][slot][dim] in a layer.
extern "C" __global__ void __launch_bounds__(THREADS)
digest_kv(const u16* k, const u16* v, const u32* blocks, u32 from, u32 size, u32 heads, u32 dim, u64* digests) {
    u32 position = from + blockIdx.x;
    u64 block = blocks[position / size];
    const u16* pool = blockIdx.y == 0 ? k : v;
    Sums sums = {0, 0};
    for (u32 i = threadIdx.x; i < heads * dim; i += THREADS) {
        u64 at = ((block * heads + i / dim) * size + position % size) * dim + i % dim;
        mix(sums, wide(pool[at]), i);
    }
    finish(sums, digests + 2 * (u64)blockIdx.x + blockIdx.y);
}
