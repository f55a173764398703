// RMS norm (section 4). One block of 256 threads a row. Fused: a row is summed and scaled in one go. Plain: the
// scales of all rows first, then a second kernel applies them.

#define THREADS 256

__device__ __forceinline__ float row_scale(const float* x, u32 n, u32 lanes, float eps) {
    float s = lane_sum<THREADS>(n, lanes, [&](float l, u32 i) { return __fmaf_rn(x[i], x[i], l); });
    return norm_scale(s, n, eps);
}

// Row `row` of x; `tap`, if there is one, gets what is rounded.
__device__ __forceinline__ void apply(const float* h, float r, const u16* weight, u32 n, u32 row, u16* x, float* tap) {
    u64 at = (u64)row * n;
    for (u32 i = threadIdx.x; i < n; i += THREADS) {
        float y = __fmul_rn(__fmul_rn(h[at + i], r), wide(weight[i]));
        x[at + i] = r16(y);
        if (tap) tap[at + i] = y;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
norm_fused(const float* h, const u16* weight, u32 n, u32 lanes, float eps, u16* x, float* tap,
           u32* counts) {
    float r = row_scale(h + (u64)blockIdx.x * n, n, lanes, eps);
    apply(h, r, weight, n, blockIdx.x, x, tap);
    if (blockIdx.x == 0 && threadIdx.x == 0) atomicAdd(counts + NORM_FUSED, 1);
}

extern "C" __global__ void __launch_bounds__(THREADS)
norm_scales(const float* h, u32 n, u32 lanes, float eps, float* scales) {
    float r = row_scale(h + (u64)blockIdx.x * n, n, lanes, eps);
    if (threadIdx.x == 0) scales[blockIdx.x] = r;
}

extern "C" __global__ void __launch_bounds__(THREADS)
norm_apply(const float* h, const float* scales, const u16* weight, u32 n, u16* x, float* tap, u32* counts) {
    apply(h, scales[blockIdx.x], weight, n, blockIdx.x, x, tap);
    if (blockIdx.x == 0 && threadIdx.x == 0) atomicAdd(counts + NORM_PLAIN, 1);
}
