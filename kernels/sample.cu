// Argmax and sampling (section 11), one block a row. Everything that is summed is an integer, so no order matters;
// the histograms' shared atomics are integers too.

#define THREADS 512
#define NONE 0xffffffffu

struct Draw {
    // Smallest weight that min-p keeps.
    u64 floor;
    u32 row;
    u32 greedy;
    float temperature;
    float penalty;
    u32 top_k;
    // top-p in units of 2^-24; NONE keeps all.
    u32 share;
    // The row's part of `seen`.
    u32 seen_first;
    u32 seen_count;
    u32 key0;
    u32 key1;
    u32 position;
    u32 reserved;
};

// An order-preserving integer of an f32 that is not NaN.
__device__ __forceinline__ u32 order(float x) {
    u32 bits = __float_as_uint(x);
    return bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
}

__device__ __forceinline__ u64 key_of(float x, u32 id) { return (u64)order(x) << 32 | (0xffffffffu - id); }

// What is kept of a row, and the weights.
struct Kept {
    const float* x;
    u32 vocab;
    float max;
    float c;
    u64 floor;
    u64 key_min;

    __device__ __forceinline__ u64 weight(u32 id) const {
        return __float2ull_rz(__fmul_rn(exp2c(__fmul_rn(__fsub_rn(x[id], max), c)), 4294967296.0f));
    }
    __device__ __forceinline__ bool has(u32 id, u64 w) const { return w >= floor && key_of(x[id], id) >= key_min; }
};

// Sum over the kept ids: of their weights, or of ones.
__device__ __forceinline__ u64 mass(const Kept& kept, bool ones) {
    u64 sum = 0;
    for (u32 id = threadIdx.x; id < kept.vocab; id += THREADS) {
        u64 w = kept.weight(id);
        if (kept.has(id, w)) sum += ones ? 1 : w;
    }
    return block_reduce<THREADS>(sum, [](u64 x, u64 y) { return x + y; });
}

// The key at which the sum by descending key reaches `target`, which is neither zero nor more than the whole: a
// radix search, eight bits at a time.
__device__ __forceinline__ u64 reaching(const Kept& kept, bool ones, u64 target) {
    __shared__ u64 histogram[256];
    __shared__ u64 found[2];
    u64 prefix = 0;
    for (int shift = 56; shift >= 0; shift -= 8) {
        for (u32 i = threadIdx.x; i < 256; i += THREADS) histogram[i] = 0;
        __syncthreads();
        for (u32 id = threadIdx.x; id < kept.vocab; id += THREADS) {
            u64 w = kept.weight(id), key = key_of(kept.x[id], id);
            bool inside = shift == 56 || key >> (shift + 8) == prefix;
            if (inside && kept.has(id, w)) atomicAdd(histogram + (key >> shift & 255), ones ? 1 : w);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            u64 sum = 0;
            u32 digit = 255;
            while (digit > 0 && sum + histogram[digit] < target) sum += histogram[digit--];
            found[0] = digit;
            found[1] = sum;
        }
        __syncthreads();
        prefix = prefix << 8 | found[0];
        target -= found[1];
        __syncthreads();
    }
    return prefix;
}

__device__ __forceinline__ u64 philox(u32 position, u32 k0, u32 k1) {
    u32 x0 = position, x1 = 0, x2 = 0, x3 = 0;
    for (u32 round = 0; round < 10; round++) {
        if (round > 0) {
            k0 += 0x9e3779b9u;
            k1 += 0xbb67ae85u;
        }
        u64 p0 = (u64)0xd2511f53u * x0, p1 = (u64)0xcd9e8d57u * x2;
        x0 = (u32)(p1 >> 32) ^ x1 ^ k0;
        x1 = (u32)p1;
        x2 = (u32)(p0 >> 32) ^ x3 ^ k1;
        x3 = (u32)p0;
    }
    return (u64)x0 | (u64)x1 << 32;
}

// The first kept id, ascending, whose running sum exceeds `target`.
__device__ __forceinline__ void pick(const Kept& kept, u64 target, u32* to) {
    __shared__ u64 sums[THREADS];
    u32 chunk = (kept.vocab + THREADS - 1) / THREADS;
    u32 first = min(threadIdx.x * chunk, kept.vocab), last = min(first + chunk, kept.vocab);
    u64 sum = 0;
    for (u32 id = first; id < last; id++) {
        u64 w = kept.weight(id);
        if (kept.has(id, w)) sum += w;
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    u64 before = 0;
    for (u32 t = 0; t < threadIdx.x; t++) before += sums[t];
    if (before > target || before + sum <= target) return;
    for (u32 id = first; id < last; id++) {
        u64 w = kept.weight(id);
        if (!kept.has(id, w)) continue;
        before += w;
        if (before > target) {
            *to = id;
            return;
        }
    }
}

// `penalised`: [draw][vocab], used with a repetition penalty only.
extern "C" __global__ void __launch_bounds__(THREADS)
sample(const float* logits, u32 vocab, const Draw* draws, const u32* seen, float* penalised, u32* tokens) {
    Draw draw = draws[blockIdx.x];
    const float* x = logits + (u64)draw.row * vocab;
    if (draw.penalty != 1.0f) {
        float* own = penalised + (u64)blockIdx.x * vocab;
        for (u32 id = threadIdx.x; id < vocab; id += THREADS) own[id] = x[id];
        __syncthreads();
        for (u32 i = threadIdx.x; i < draw.seen_count; i += THREADS) {
            float& y = own[seen[draw.seen_first + i]];
            y = y > 0.0f ? __fdiv_rn(y, draw.penalty) : __fmul_rn(y, draw.penalty);
        }
        __syncthreads();
        x = own;
    }
    u32 largest = 0, exponent = 0;
    for (u32 id = threadIdx.x; id < vocab; id += THREADS) {
        largest = max(largest, order(x[id]));
        exponent = max(exponent, __float_as_uint(x[id]) & 0x7f800000u);
    }
    auto larger = [](u32 x, u32 y) { return max(x, y); };
    largest = block_reduce<THREADS>(largest, larger);
    exponent = block_reduce<THREADS>(exponent, larger);
    u32* to = tokens + blockIdx.x;
    if (threadIdx.x == 0) *to = NONE;
    __syncthreads();
    if (exponent == 0x7f800000u) return;
    if (draw.greedy) {
        u32 id = NONE;
        for (u32 i = threadIdx.x; i < vocab; i += THREADS) {
            if (order(x[i]) == largest) {
                id = i;
                break;
            }
        }
        id = block_reduce<THREADS>(id, [](u32 x, u32 y) { return min(x, y); });
        if (threadIdx.x == 0) *to = id;
        return;
    }
    Kept kept;
    kept.x = x;
    kept.vocab = vocab;
    kept.max = __uint_as_float(largest >> 31 ? largest ^ 0x80000000u : ~largest);
    kept.c = __fmul_rn(__fdiv_rn(1.0f, draw.temperature), LOG2_E);
    kept.floor = draw.floor;
    kept.key_min = 0;
    if (draw.top_k > 0 && draw.top_k < mass(kept, true)) kept.key_min = reaching(kept, true, draw.top_k);
    if (draw.share != NONE) {
        u64 sum = mass(kept, false);
        u64 share = draw.share;
        u64 tau = (sum >> 24) * share + (((sum & 0xffffffu) * share) >> 24);
        if (tau == 0) tau = 1;
        if (sum >= tau) kept.key_min = reaching(kept, false, tau);
    }
    u64 sum = mass(kept, false);
    pick(kept, __umul64hi(philox(draw.position, draw.key0, draw.key1), sum), to);
}
