// Log-softmax (section 10). A block reduces `block` consecutive ids of a row; a second kernel folds the blocks of a
// row in ascending order; a third reads the ids that were asked for.

#define THREADS 256

struct Sum {
    float max;
    float sum;
};

// blockIdx.x: block of ids; blockIdx.y: index into `rows`.
extern "C" __global__ void __launch_bounds__(THREADS)
logprob_blocks(const float* logits, const u32* rows, u32 vocab, u32 block, u32 lanes, Sum* sums) {
    u32 first = blockIdx.x * block;
    const float* x = logits + (u64)rows[blockIdx.y] * vocab + first;
    u32 n = min(block, vocab - first);
    float m = MINUS_INFINITY;
    for (u32 i = threadIdx.x; i < n; i += THREADS) m = max_nan(m, x[i]);
    m = block_max_nan<THREADS>(m);
    float s = lane_sum<THREADS>(n, lanes, [&](float l, u32 i) {
        return __fadd_rn(l, exp2c(__fmul_rn(__fsub_rn(x[i], m), LOG2_E)));
    });
    if (threadIdx.x == 0) sums[(u64)blockIdx.y * gridDim.x + blockIdx.x] = {m, s};
}

// One thread a row: its maximum and lnZ.
extern "C" __global__ void logprob_fold(const Sum* sums, u32 rows, u32 blocks, Sum* folded) {
    u32 row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const Sum* from = sums + (u64)row * blocks;
    float m = MINUS_INFINITY, z = 0.0f;
    for (u32 b = 0; b < blocks; b++) m = max_nan(m, from[b].max);
    for (u32 b = 0; b < blocks; b++) {
        z = __fmaf_rn(from[b].sum, exp2c(__fmul_rn(__fsub_rn(from[b].max, m), LOG2_E)), z);
    }
    folded[row] = {m, __fmul_rn(log2c(z), LN_2)};
}

// One thread a question: `index` of the row in `rows`, and an id.
extern "C" __global__ void logprob_read(const float* logits, const u32* rows, u32 vocab, const Sum* folded,
                                        const u32* index, const u32* ids, u32 count, float* out) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    Sum z = folded[index[i]];
    float x = logits[(u64)rows[index[i]] * vocab + ids[i]];
    out[i] = __fsub_rn(__fsub_rn(x, z.max), z.sum);
}
