// Synthetic weights (section 12): each element is a function of its own index. One block a row.

// The first word of Philox4x32-10.
__device__ __forceinline__ u32 philox(u32 x0, u32 x1, u32 x2, u32 x3, u32 k0, u32 k1) {
#pragma unroll
    for (u32 round = 0; round < 10; round++) {
        u32 low0 = 0xd2511f53u * x0, high0 = __umulhi(0xd2511f53u, x0);
        u32 low1 = 0xcd9e8d57u * x2, high1 = __umulhi(0xcd9e8d57u, x2);
        x0 = high1 ^ x1 ^ k0;
        x1 = low1;
        x2 = high0 ^ x3 ^ k1;
        x3 = low0;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return x0;
}

// Rows of `stride` elements; row i of the matrix is row `rows[i]` of the tensor, or row i where `rows` is null.
extern "C" __global__ void __launch_bounds__(256)
weights(u16* out, u32 n, u32 k, u32 stride, u32 t, float scale, u32 norm, u32 key0, u32 key1, const u32* rows) {
    u32 row = blockIdx.x;
    if (row >= n) return;
    u64 first = (u64)(rows ? rows[row] : row) * k;
    u16* to = out + (u64)row * stride;
    for (u32 i = threadIdx.x; i < k; i += 256) {
        u64 e = first + i;
        u32 x0 = philox((u32)e, (u32)(e >> 32), t, 0, key0, key1);
        float value = __fmul_rn(__int2float_rn((int)x0 >> 8), scale);
        to[i] = r16(norm ? __fadd_rn(1.0f, value) : value);
    }
}
