// Before every kernel file: types, the conversions and functions of the contract, the matrix unit, reductions.
// Header-free, since NVRTC finds no headers. `T16_BF16` or `T16_F16` comes from the contract, as do the other
// defines that a file names in its first lines.
//
// f32 arithmetic goes through __fadd_rn, __fsub_rn, __fmul_rn, __fmaf_rn, __fdiv_rn and __fsqrt_rn alone: a bare
// operator could be contracted. Integers are free.

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// Counters, one u32 each; the order is that of `device::cuda::counters`.
enum Counter {
    GEMM_SKINNY_WALK,
    GEMM_SKINNY_PARALLEL,
    GEMM_TILED_WALK,
    GEMM_TILED_PARALLEL,
    ATTENTION_WALK,
    ATTENTION_PARALLEL,
    NORM_FUSED,
    NORM_PLAIN,
    GEMM_FOLDS,
    ATTENTION_FOLDS,
    ATTENTION_TILE_BEFORE_CHUNK,
};

#define FULL_WARP 0xffffffffu
#define MINUS_INFINITY __uint_as_float(0xff800000u)
#define PLUS_INFINITY __uint_as_float(0x7f800000u)
#define MINUS_FLT_MAX __uint_as_float(0xff7fffffu)
#define NOT_A_NUMBER __uint_as_float(0x7fffffffu)
#define LOG2_E __uint_as_float(0x3fb8aa3bu)
#define MINUS_LOG2_E __uint_as_float(0xbfb8aa3bu)
#define LN_2 __uint_as_float(0x3f317218u)

__device__ __forceinline__ bool is_nan(float x) { return (__float_as_uint(x) & 0x7fffffffu) > 0x7f800000u; }

// r16: to nearest even; f16 overflow gives infinity, NaN gives 0x7fff.
__device__ __forceinline__ u16 r16(float x) {
    u16 y;
#if defined(T16_BF16)
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
#else
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
#endif
    return y;
}

// r16 of two values, the first in the low half.
__device__ __forceinline__ u32 r16x2(float low, float high) {
    u32 y;
#if defined(T16_BF16)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
#else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
#endif
    return y;
}

// w: exact widening.
__device__ __forceinline__ float wide(u16 x) {
#if defined(T16_BF16)
    return __uint_as_float((u32)x << 16);
#else
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
#endif
}

// The larger value; NaN if either is.
__device__ __forceinline__ float max_nan(float x, float y) {
    float z;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    return z;
}

// Section 7. NaN gives +0.
__device__ __forceinline__ float exp2c(float x) {
    const float rounder = 12582912.0f;
    x = x > -127.0f ? x : -127.0f;
    float t = __fadd_rn(x, rounder);
    float f = __fsub_rn(x, __fsub_rn(t, rounder));
    float p = __fmaf_rn(__uint_as_float(0x3aade2fcu), f, __uint_as_float(0x3c1e7652u));
    p = __fmaf_rn(p, f, __uint_as_float(0x3d635be7u));
    p = __fmaf_rn(p, f, __uint_as_float(0x3e75fcddu));
    p = __fmaf_rn(p, f, __uint_as_float(0x3f317214u));
    p = __fmaf_rn(p, f, 1.0f);
    return __uint_as_float(__float_as_uint(p) + (__float_as_uint(t) << 23));
}

// Section 8, normal x > 0.
__device__ __forceinline__ float log2c(float x) {
    int e = (int)(__float_as_uint(x) - 0x3f3504f3u) >> 23;
    float f = __uint_as_float(__float_as_uint(x) - ((u32)e << 23));
    float s = __fdiv_rn(__fsub_rn(f, 1.0f), __fadd_rn(f, 1.0f));
    float z = __fmul_rn(s, s);
    float q = __fmaf_rn(__uint_as_float(0x3edd0c73u), z, __uint_as_float(0x3f13a38eu));
    q = __fmaf_rn(q, z, __uint_as_float(0x3f763873u));
    q = __fmaf_rn(q, z, __uint_as_float(0x4038aa3bu));
    return __fmaf_rn(s, q, __int2float_rn(e));
}

// The matrix unit: d = a . b + d over a 16-group. a: rows g and g + 8 of 16 x 16; b: column g of 16 x 8; d: rows g
// and g + 8, columns 2q and 2q + 1, where g = lane / 4 and q = lane % 4.
__device__ __forceinline__ void mma16(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
#if defined(T16_BF16)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
#else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
#endif
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ u32 shared_address(const void* p) {
    u64 address;
    asm("cvta.to.shared.u64 %0, %1;" : "=l"(address) : "l"(p));
    return (u32)address;
}

// Four 8 x 8 matrices; lane i gives the address of row i % 8 of matrix i / 8.
__device__ __forceinline__ void ldmatrix4(u32 (&r)[4], const void* p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(p))
                 : "memory");
}

// Two 8 x 8 matrices; lanes 0 to 15 give the addresses.
__device__ __forceinline__ void ldmatrix2(u32& r0, u32& r1, const void* p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                 : "=r"(r0), "=r"(r1)
                 : "r"(shared_address(p))
                 : "memory");
}

// The same, transposed.
__device__ __forceinline__ void ldmatrix2_trans(u32& r0, u32& r1, const void* p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                 : "=r"(r0), "=r"(r1)
                 : "r"(shared_address(p))
                 : "memory");
}

// TREE over LANES(n, lanes) in a block of THREADS: `add(sum, i)` replaces the sum of lane i mod lanes, ascending i.
// Thread t owns neighbouring lanes: the tree runs in the thread, then between neighbours of a warp, then between
// neighbouring warps. `lanes` is a power of two up to 4 * THREADS; every thread gets the result.
template <int THREADS, class Add>
__device__ __forceinline__ float lane_sum(u32 n, u32 lanes, Add add) {
    __shared__ float warps[THREADS / 32];
    u32 per = lanes / THREADS > 1 ? lanes / THREADS : 1;
    u32 first = threadIdx.x * per;
    float l[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (first < lanes) {
        for (u32 base = first; base < n; base += lanes) {
#pragma unroll
            for (u32 j = 0; j < 4; j++) {
                if (j < per && base + j < n) l[j] = add(l[j], base + j);
            }
        }
    }
    float v = l[0];
    if (per >= 2) v = __fadd_rn(l[0], l[1]);
    if (per == 4) v = __fadd_rn(v, __fadd_rn(l[2], l[3]));
    u32 owners = lanes / per;
    for (u32 mask = 1; mask < 32 && mask < owners; mask *= 2) {
        v = __fadd_rn(v, __shfl_xor_sync(FULL_WARP, v, mask));
    }
    u32 count = owners / 32;
    __syncthreads();
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = v;
    __syncthreads();
    if (count <= 1) return warps[0];
    float x[THREADS / 32];
#pragma unroll
    for (u32 i = 0; i < THREADS / 32; i++) x[i] = warps[i];
#pragma unroll
    for (u32 len = THREADS / 64; len >= 1; len /= 2) {
#pragma unroll
        for (u32 i = 0; i < len; i++) x[i] = __fadd_rn(x[2 * i], x[2 * i + 1]);
        count /= 2;
        if (count == 1) break;
    }
    return x[0];
}

// The largest value of a block of THREADS; NaN if one is. Free of order.
template <int THREADS>
__device__ __forceinline__ float block_max_nan(float v) {
    __shared__ float warps[THREADS / 32];
    for (u32 mask = 1; mask < 32; mask *= 2) v = max_nan(v, __shfl_xor_sync(FULL_WARP, v, mask));
    __syncthreads();
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = v;
    __syncthreads();
    v = warps[0];
    for (u32 i = 1; i < THREADS / 32; i++) v = max_nan(v, warps[i]);
    return v;
}

// Integer reductions of a block of THREADS: free of order.
template <int THREADS, class T, class Op>
__device__ __forceinline__ T block_reduce(T v, Op op) {
    __shared__ T warps[THREADS / 32];
    for (u32 mask = 1; mask < 32; mask *= 2) v = op(v, (T)__shfl_xor_sync(FULL_WARP, v, mask));
    __syncthreads();
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = v;
    __syncthreads();
    v = warps[0];
    for (u32 i = 1; i < THREADS / 32; i++) v = op(v, warps[i]);
    return v;
}

// 1/sqrt(s/n + eps) of section 4.
__device__ __forceinline__ float norm_scale(float s, u32 n, float eps) {
    return __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(s, __uint2float_rn(n)), eps)));
}

// Row `row` of a step: its position, and where its K and V go.
struct Row {
    u32 position;
    u32 block;
    u32 slot;
    u32 sequence;
};
