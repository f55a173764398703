// RoPE, the optional q/k norm before it, and the write of K and V to their slots (section 5).
// blockIdx.x: row; blockIdx.y: head of [q;k;v]. Pairs are (i, i + dim/2). The taps, if there are any, get what is
// rounded to q and k: [row][head][dim].

#define THREADS 128

__device__ __forceinline__ u64 slot_of(Row row, u32 kv_heads, u32 head, u32 size, u32 dim) {
    return (((u64)row.block * kv_heads + head) * size + row.slot) * dim;
}

extern "C" __global__ void __launch_bounds__(THREADS)
rope_and_store(const u16* qkv, const Row* rows, u32 q_heads, u32 kv_heads, u32 dim, u32 size, const float* cos_table,
               const float* sin_table, const u16* q_norm, const u16* k_norm, float eps, u32 lanes, float scale,
               u16* q, u16* k, u16* v, float* q_tap, float* k_tap) {
    Row row = rows[blockIdx.x];
    u32 head = blockIdx.y;
    const u16* x = qkv + ((u64)blockIdx.x * (q_heads + 2 * kv_heads) + head) * dim;
    if (head >= q_heads + kv_heads) {
        u16* to = v + slot_of(row, kv_heads, head - q_heads - kv_heads, size, dim);
        for (u32 i = threadIdx.x; i < dim; i += THREADS) to[i] = x[i];
        return;
    }
    bool is_q = head < q_heads;
    const u16* weight = is_q ? q_norm : k_norm;
    float r = 1.0f;
    if (weight) {
        float s = lane_sum<THREADS>(dim, lanes, [&](float l, u32 i) { return __fmaf_rn(wide(x[i]), wide(x[i]), l); });
        r = norm_scale(s, dim, eps);
    }
    u16* to = is_q ? q + ((u64)blockIdx.x * q_heads + head) * dim
                   : k + slot_of(row, kv_heads, head - q_heads, size, dim);
    float* tap = nullptr;
    if (q_tap) {
        tap = is_q ? q_tap + ((u64)blockIdx.x * q_heads + head) * dim
                   : k_tap + ((u64)blockIdx.x * kv_heads + head - q_heads) * dim;
    }
    u32 half = dim / 2;
    const float* cosine = cos_table + (u64)row.position * half;
    const float* sine = sin_table + (u64)row.position * half;
    for (u32 i = threadIdx.x; i < half; i += THREADS) {
        float a = wide(x[i]), b = wide(x[i + half]);
        if (weight) {
            a = __fmul_rn(__fmul_rn(a, r), wide(weight[i]));
            b = __fmul_rn(__fmul_rn(b, r), wide(weight[i + half]));
        }
        float low = __fmaf_rn(a, cosine[i], -__fmul_rn(b, sine[i]));
        float high = __fmaf_rn(b, cosine[i], __fmul_rn(a, sine[i]));
        if (is_q) {
            low = __fmul_rn(low, scale);
            high = __fmul_rn(high, scale);
        }
        to[i] = r16(low);
        to[i + half] = r16(high);
        if (tap) {
            tap[i] = low;
            tap[i + half] = high;
        }
    }
}
