// What X1 asks the machine beyond the operators: points of the contract that nobody had measured, and the controls
// that must differ.

// Tiles of 16 x 8: d = chain over `steps` groups of a[tile][step][16][16] . b[tile][step][8][16], from c[tile][16][8].
extern "C" __global__ void probe_chain(const u16* a, const u16* b, const float* c, u32 steps, float* d) {
    u32 lane = threadIdx.x, g = lane / 4, q = lane % 4;
    u64 tile = blockIdx.x;
    float s[4];
    for (u32 j = 0; j < 4; j++) s[j] = c[tile * 128 + (g + j / 2 * 8) * 8 + 2 * q + j % 2];
    for (u32 i = 0; i < steps; i++) {
        const u16* ap = a + (tile * steps + i) * 256 + g * 16 + 2 * q;
        const u16* bp = b + (tile * steps + i) * 128 + g * 16 + 2 * q;
        mma16(s, *(const u32*)ap, *(const u32*)(ap + 128), *(const u32*)(ap + 8), *(const u32*)(ap + 136),
              *(const u32*)bp, *(const u32*)(bp + 8));
    }
    for (u32 j = 0; j < 4; j++) d[tile * 128 + (g + j / 2 * 8) * 8 + 2 * q + j % 2] = s[j];
}

// y[m][n] as a chain of f32 fma over ascending k: must differ from the matrix unit nearly everywhere.
extern "C" __global__ void control_fma(const u16* x, const u16* w, u32 M, u32 N, u32 K, u32 stride, float* y) {
    u32 n = blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y;
    if (n >= N || m >= M) return;
    float s = 0.0f;
    for (u32 k = 0; k < K; k++) s = __fmaf_rn(wide(x[(u64)m * K + k]), wide(w[(u64)n * stride + k]), s);
    y[(u64)m * N + n] = s;
}

// y[m][n] as a chain of k8 instructions: must differ from k16 in most places. M and N are multiples of 16 and 8.
extern "C" __global__ void control_k8(const u16* x, const u16* w, u32 N, u32 K, u32 stride, float* y) {
    u32 g = threadIdx.x / 4, q = threadIdx.x % 4, n = blockIdx.x * 8, m = blockIdx.y * 16;
    float d[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (u32 k = 0; k < K; k += 8) {
        u32 a0 = *(const u32*)(x + (u64)(m + g) * K + k + 2 * q);
        u32 a1 = *(const u32*)(x + (u64)(m + g + 8) * K + k + 2 * q);
        u32 b0 = *(const u32*)(w + (u64)(n + g) * stride + k + 2 * q);
#if defined(T16_BF16)
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
#else
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
#endif
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a0), "r"(a1), "r"(b0));
    }
    for (u32 j = 0; j < 4; j++) y[(u64)(m + g + j / 2 * 8) * N + n + 2 * q + j % 2] = d[j];
}

// Writes where nothing is: an error from which a context does not recover.
extern "C" __global__ void probe_fault(u32* nowhere) { *nowhere = 1; }

// Scalar functions of x, one array after the other: max.NaN with 1 on either side, x + 0, exp2, log2 (bits), then
// r16, and r16 in either half of the packed conversion.
extern "C" __global__ void probe_scalars(const float* x, u32 n, u32* out) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    u64 stride = n;
    out[i] = __float_as_uint(max_nan(x[i], 1.0f));
    out[stride + i] = __float_as_uint(max_nan(1.0f, x[i]));
    out[2 * stride + i] = __float_as_uint(__fadd_rn(x[i], 0.0f));
    out[3 * stride + i] = __float_as_uint(exp2c(x[i]));
    out[4 * stride + i] = __float_as_uint(log2c(x[i]));
    out[5 * stride + i] = r16(x[i]);
    out[6 * stride + i] = r16x2(x[i], 1.0f) & 0xffff;
    out[7 * stride + i] = r16x2(1.0f, x[i]) >> 16;
}
