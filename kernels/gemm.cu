// GEMM (section 2): y[m][n] = x[m][K] . W[n][K], W padded to whole 64-row tiles and 16-groups with +0.
//
// Skinny: the weights are the M operand, eight rows of x the N operand; operands go from global memory straight to
// fragments. Tiled: 64 x 64 tiles through shared memory, x the M operand. Walk: a block runs all chains of its
// tile and folds as it goes. Parallel: blockIdx.z is the split, partials go to a workspace, `gemm_fold` adds them in
// ascending order. The cuts are an argument.

#define SPLITS_MAX 8
#define TILE 64
#define CHUNK 64
// 16-byte rows an odd number of 16-byte units apart: ldmatrix without bank conflicts.
#define STRIDE (CHUNK + 8)

struct Cuts {
    u32 splits;
    u32 at[SPLITS_MAX + 1];
};

// Where y goes: r16(y), h + y, or y.
enum Mode { ROUND, RESIDUAL, STORE };

// `tap`, if there is one, gets what is rounded.
__device__ __forceinline__ void put(u32 mode, void* out, float* tap, u64 at, float y) {
    if (mode == ROUND) {
        ((u16*)out)[at] = r16(y);
        if (tap) tap[at] = y;
    } else if (mode == RESIDUAL) {
        ((float*)out)[at] = __fadd_rn(((float*)out)[at], y);
    } else {
        ((float*)out)[at] = y;
    }
}

// Elements k .. k+3 of a row of x; +0 past its end.
__device__ __forceinline__ uint2 load4(const u16* row, u32 k, u32 K, bool whole) {
    if (whole) return *(const uint2*)(row + k);
    u32 e[4];
#pragma unroll
    for (u32 i = 0; i < 4; i++) e[i] = k + i < K ? row[k + i] : 0;
    return make_uint2(e[0] | e[1] << 16, e[2] | e[3] << 16);
}

// c += W[16 rows at n][from, to) . x[8 rows at m][from, to). Lane (g, q) loads elements 4q .. 4q+3 of a group and
// uses them as k = 2q, 2q+1, 2q+8, 2q+9 on both sides: the order within a group is free.
__device__ __forceinline__ void skinny_chain(float (&c)[4], const u16* x, const u16* w, u32 m, u32 M, u32 K,
                                             u32 stride, u32 n, u32 from, u32 to) {
    u32 g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
    const u16* w0 = w + (u64)(n + g) * stride + 4 * q;
    const u16* w1 = w0 + (u64)8 * stride;
    bool row = m + g < M;
    const u16* xr = x + (u64)(row ? m + g : 0) * K;
    bool whole = K % 16 == 0;
#pragma unroll 4
    for (u32 k = from; k < to; k += 16) {
        uint2 a = *(const uint2*)(w0 + k);
        uint2 b = *(const uint2*)(w1 + k);
        uint2 e = row ? load4(xr, k + 4 * q, K, whole) : make_uint2(0, 0);
        mma16(c, a.x, b.x, a.y, b.y, e.x, e.y);
    }
}

extern "C" __global__ void __launch_bounds__(128)
gemm_skinny_walk(const u16* x, const u16* w, u32 M, u32 N, u32 K, u32 stride, Cuts cuts, u32 mode, void* out,
                 float* tap, u32* counts) {
    u32 g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
    u32 n = blockIdx.x * 64 + threadIdx.x / 32 * 16, m = blockIdx.y * 8;
    float s[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (u32 i = 0; i < cuts.splits; i++) {
        float c[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        skinny_chain(c, x, w, m, M, K, stride, n, cuts.at[i], cuts.at[i + 1]);
#pragma unroll
        for (u32 j = 0; j < 4; j++) s[j] = __fadd_rn(s[j], c[j]);
        if (i == 1 && blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) atomicAdd(counts + GEMM_FOLDS, 1);
    }
#pragma unroll
    for (u32 j = 0; j < 4; j++) {
        u32 row = m + 2 * q + j % 2, column = n + g + j / 2 * 8;
        if (row < M && column < N) put(mode, out, tap, (u64)row * N + column, s[j]);
    }
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) atomicAdd(counts + GEMM_SKINNY_WALK, 1);
}

extern "C" __global__ void __launch_bounds__(128)
gemm_skinny_parallel(const u16* x, const u16* w, u32 M, u32 N, u32 K, u32 stride, Cuts cuts, float* partials,
                     u32* counts) {
    u32 g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
    u32 n = blockIdx.x * 64 + threadIdx.x / 32 * 16, m = blockIdx.y * 8;
    float c[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    skinny_chain(c, x, w, m, M, K, stride, n, cuts.at[blockIdx.z], cuts.at[blockIdx.z + 1]);
#pragma unroll
    for (u32 j = 0; j < 4; j++) {
        u32 row = m + 2 * q + j % 2, column = n + g + j / 2 * 8;
        if (row < M && column < N) partials[((u64)blockIdx.z * M + row) * N + column] = c[j];
    }
    if (blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0 && threadIdx.x == 0) {
        atomicAdd(counts + GEMM_SKINNY_PARALLEL, 1);
    }
}

// c += x[64 rows at m][from, to) . W[64 rows at n][from, to); a warp has 16 rows of x and all 64 of W.
__device__ __forceinline__ void tiled_chain(float (&c)[8][4], const u16* x, const u16* w, u32 m, u32 M, u32 K,
                                            u32 stride, u32 n, u32 from, u32 to) {
    __shared__ __align__(16) u16 xs[TILE * STRIDE];
    __shared__ __align__(16) u16 ws[TILE * STRIDE];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    bool whole = K % 16 == 0;
    for (u32 k = from; k < to; k += CHUNK) {
        u32 len = to - k < CHUNK ? to - k : CHUNK;
        __syncthreads();
        for (u32 i = threadIdx.x; i < TILE * CHUNK / 8; i += 128) {
            u32 row = i / (CHUNK / 8), at = i % (CHUNK / 8) * 8;
            if (at >= len) continue;
            *(uint4*)(ws + row * STRIDE + at) = *(const uint4*)(w + (u64)(n + row) * stride + k + at);
            uint4 e = make_uint4(0, 0, 0, 0);
            if (m + row < M) {
                const u16* xr = x + (u64)(m + row) * K;
                if (whole) {
                    e = *(const uint4*)(xr + k + at);
                } else {
                    uint2 low = load4(xr, k + at, K, false), high = load4(xr, k + at + 4, K, false);
                    e = make_uint4(low.x, low.y, high.x, high.y);
                }
            }
            *(uint4*)(xs + row * STRIDE + at) = e;
        }
        __syncthreads();
        for (u32 group = 0; group < len; group += 16) {
            u32 a[4];
            ldmatrix4(a, xs + (warp * 16 + lane % 16) * STRIDE + group + lane / 16 * 8);
#pragma unroll
            for (u32 j = 0; j < 8; j += 2) {
                u32 b[4];
                ldmatrix4(b, ws + (j * 8 + lane % 8 + lane / 16 * 8) * STRIDE + group + lane / 8 % 2 * 8);
                mma16(c[j], a[0], a[1], a[2], a[3], b[0], b[1]);
                mma16(c[j + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(128)
gemm_tiled_walk(const u16* x, const u16* w, u32 M, u32 N, u32 K, u32 stride, Cuts cuts, u32 mode, void* out,
                float* tap, u32* counts) {
    u32 g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
    u32 n = blockIdx.x * TILE, m = blockIdx.y * TILE;
    float s[8][4];
#pragma unroll
    for (u32 j = 0; j < 32; j++) s[j / 4][j % 4] = 0.0f;
    for (u32 i = 0; i < cuts.splits; i++) {
        float c[8][4];
#pragma unroll
        for (u32 j = 0; j < 32; j++) c[j / 4][j % 4] = 0.0f;
        tiled_chain(c, x, w, m, M, K, stride, n, cuts.at[i], cuts.at[i + 1]);
#pragma unroll
        for (u32 j = 0; j < 32; j++) s[j / 4][j % 4] = __fadd_rn(s[j / 4][j % 4], c[j / 4][j % 4]);
        if (i == 1 && blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) atomicAdd(counts + GEMM_FOLDS, 1);
    }
#pragma unroll
    for (u32 j = 0; j < 32; j++) {
        u32 row = m + threadIdx.x / 32 * 16 + g + j % 4 / 2 * 8, column = n + j / 4 * 8 + 2 * q + j % 2;
        if (row < M && column < N) put(mode, out, tap, (u64)row * N + column, s[j / 4][j % 4]);
    }
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) atomicAdd(counts + GEMM_TILED_WALK, 1);
}

extern "C" __global__ void __launch_bounds__(128)
gemm_tiled_parallel(const u16* x, const u16* w, u32 M, u32 N, u32 K, u32 stride, Cuts cuts, float* partials,
                    u32* counts) {
    u32 g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
    u32 n = blockIdx.x * TILE, m = blockIdx.y * TILE;
    float c[8][4];
#pragma unroll
    for (u32 j = 0; j < 32; j++) c[j / 4][j % 4] = 0.0f;
    tiled_chain(c, x, w, m, M, K, stride, n, cuts.at[blockIdx.z], cuts.at[blockIdx.z + 1]);
#pragma unroll
    for (u32 j = 0; j < 32; j++) {
        u32 row = m + threadIdx.x / 32 * 16 + g + j % 4 / 2 * 8, column = n + j / 4 * 8 + 2 * q + j % 2;
        if (row < M && column < N) partials[((u64)blockIdx.z * M + row) * N + column] = c[j / 4][j % 4];
    }
    if (blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0 && threadIdx.x == 0) {
        atomicAdd(counts + GEMM_TILED_PARALLEL, 1);
    }
}

// The second pass over parallel splits: from +0, ascending. One thread an element of y.
extern "C" __global__ void __launch_bounds__(256)
gemm_fold(const float* partials, u32 splits, u32 M, u32 N, u32 mode, void* out, float* tap,
          u32* counts) {
    u64 count = (u64)M * N;
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float s = 0.0f;
    for (u32 split = 0; split < splits; split++) {
        s = __fadd_rn(s, partials[split * count + i]);
        if (split == 1 && i == 0) atomicAdd(counts + GEMM_FOLDS, 1);
    }
    put(mode, out, tap, i, s);
}
