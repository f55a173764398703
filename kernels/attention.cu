// Split attention over the paged KV pool (section 6). Defines: TILE (positions), DIM (elements a head).
//
// A block has 64 packed rows of one sequence and kv head: packed row r is position start + r / group, query head
// r % group of the kv head. A warp has 16 of them. K and V tiles are gathered through the block table to shared
// memory; positions not yet written are +0 there. S and P stay in the warp's fragments: the score fragments of
// eight positions 2i and 2i + 1 are the probability fragment of group i. Walk folds splits in registers; Parallel
// (blockIdx.z is the split) parks them, and `attention_fold` folds in ascending order. `tap`, if there is one, gets
// what is rounded to out.

#define WARPS 4
#define ROWS (16 * WARPS)
// 16-byte rows an odd number of 16-byte units apart: ldmatrix without bank conflicts.
#define STRIDE (DIM + 8)
#define COLUMNS (DIM / 8)
#define PANELS (TILE / 8)

struct Sequence {
    u32 start;
    u32 len;
    u32 row;
    u32 table;
};

struct Work {
    u32 sequence;
    u32 first;
};

struct Pool {
    const u16* k;
    const u16* v;
    const u32* tables;
    u32 size;
    u32 heads;
};

// Running state of a split: this thread's two rows, columns 2q and 2q + 1 of each panel.
struct State {
    float m[2];
    float l[2][2];
    float acc[COLUMNS][4];
};

__device__ __forceinline__ void reset(State& s) {
    s.m[0] = s.m[1] = MINUS_FLT_MAX;
#pragma unroll
    for (u32 i = 0; i < 4; i++) s.l[i / 2][i % 2] = 0.0f;
#pragma unroll
    for (u32 i = 0; i < COLUMNS * 4; i++) s.acc[i / 4][i % 4] = 0.0f;
}

__device__ __forceinline__ void load_tile(u16* ks, u16* vs, Pool pool, Sequence sequence, u32 head, u32 start) {
    u32 written = sequence.start + sequence.len;
    for (u32 i = threadIdx.x; i < TILE * (DIM / 8); i += 32 * WARPS) {
        u32 row = i / (DIM / 8), at = i % (DIM / 8) * 8, position = start + row;
        uint4 k = make_uint4(0, 0, 0, 0), v = k;
        if (position < written) {
            u64 block = pool.tables[sequence.table + position / pool.size];
            u64 from = ((block * pool.heads + head) * pool.size + position % pool.size) * DIM + at;
            k = *(const uint4*)(pool.k + from);
            v = *(const uint4*)(pool.v + from);
        }
        *(uint4*)(ks + row * STRIDE + at) = k;
        *(uint4*)(vs + row * STRIDE + at) = v;
    }
}

// Advances the warp's rows at positions p over the tile at `start`.
__device__ __forceinline__ void walk_tile(State& state, const u32 (&qf)[DIM / 16][4], const u16* ks, const u16* vs,
                                          const int (&p)[2], u32 start) {
    u32 lane = threadIdx.x % 32, q = lane % 4;
    float s[PANELS][4];
#pragma unroll
    for (u32 j = 0; j < PANELS; j++) {
        s[j][0] = s[j][1] = s[j][2] = s[j][3] = 0.0f;
#pragma unroll
        for (u32 i = 0; i < DIM / 16; i++) {
            u32 b0, b1;
            ldmatrix2(b0, b1, ks + (j * 8 + lane % 8) * STRIDE + i * 16 + lane / 8 % 2 * 8);
            mma16(s[j], qf[i][0], qf[i][1], qf[i][2], qf[i][3], b0, b1);
        }
    }
#pragma unroll
    for (u32 r = 0; r < 2; r++) {
        float n = state.m[r];
#pragma unroll
        for (u32 i = 0; i < PANELS * 2; i++) {
            float& x = s[i / 2][2 * r + i % 2];
            if ((int)(start + i / 2 * 8 + 2 * q + i % 2) > p[r]) x = MINUS_INFINITY;
            n = max_nan(n, x);
        }
        n = max_nan(n, __shfl_xor_sync(FULL_WARP, n, 1));
        n = max_nan(n, __shfl_xor_sync(FULL_WARP, n, 2));
        float alpha = exp2c(__fsub_rn(state.m[r], n));
        if (alpha != 1.0f) {
            // The addition turns a -0 into +0, which the matrix unit may be given.
#pragma unroll
            for (u32 i = 0; i < COLUMNS * 2; i++) {
                float& x = state.acc[i / 2][2 * r + i % 2];
                x = __fadd_rn(__fmul_rn(x, alpha), 0.0f);
            }
            state.l[r][0] = __fmul_rn(state.l[r][0], alpha);
            state.l[r][1] = __fmul_rn(state.l[r][1], alpha);
        }
        state.m[r] = n;
#pragma unroll
        for (u32 i = 0; i < PANELS * 2; i++) {
            float& x = s[i / 2][2 * r + i % 2];
            x = exp2c(__fsub_rn(x, n));
            state.l[r][i % 2] = __fadd_rn(state.l[r][i % 2], x);
        }
    }
#pragma unroll
    for (u32 i = 0; i < TILE / 16; i++) {
        u32 a0 = r16x2(s[2 * i][0], s[2 * i][1]), a1 = r16x2(s[2 * i][2], s[2 * i][3]);
        u32 a2 = r16x2(s[2 * i + 1][0], s[2 * i + 1][1]), a3 = r16x2(s[2 * i + 1][2], s[2 * i + 1][3]);
#pragma unroll
        for (u32 c = 0; c < COLUMNS; c++) {
            u32 b0, b1;
            ldmatrix2_trans(b0, b1, vs + (i * 16 + lane % 16) * STRIDE + c * 8);
            mma16(state.acc[c], a0, a1, a2, a3, b0, b1);
        }
    }
}

// TREE over the eight lanes of l: one addition in the thread, two between neighbours.
__device__ __forceinline__ float tree(const float (&l)[2]) {
    float x = __fadd_rn(l[0], l[1]);
    x = __fadd_rn(x, __shfl_xor_sync(FULL_WARP, x, 1));
    return __fadd_rn(x, __shfl_xor_sync(FULL_WARP, x, 2));
}

// A row's fold so far, apart from its output.
struct Fold {
    float m;
    float l;
    u32 kept;
    bool marked;
};

// What the next split does to a row: nothing, become its output, or be merged by a and b.
enum Step { SKIP, COPY, MERGE };

__device__ __forceinline__ Step next(Fold& fold, float m, float l, float& a, float& b) {
    if (is_nan(m) || m == PLUS_INFINITY) {
        fold.marked = true;
        return SKIP;
    }
    if (l == 0.0f) return SKIP;
    if (++fold.kept == 1) {
        fold.m = m;
        fold.l = l;
        return COPY;
    }
    float u = m > fold.m ? m : fold.m;
    a = exp2c(__fsub_rn(fold.m, u));
    b = exp2c(__fsub_rn(m, u));
    fold.l = __fmaf_rn(l, b, __fmul_rn(fold.l, a));
    fold.m = u;
    return MERGE;
}

// What a warp needs to know of its rows.
struct Rows {
    // Of this thread's two rows: position, -1 where there is none; and index among [row][q head].
    int p[2];
    u64 at[2];
    // Last position of the warp and of the block.
    int warp_last;
    int block_last;
};

__device__ __forceinline__ Rows rows_of(Sequence sequence, Work work, u32 q_heads, u32 kv_heads, u32 head) {
    u32 group = q_heads / kv_heads, count = sequence.len * group;
    u32 warp_first = work.first + threadIdx.x / 32 * 16;
    Rows rows;
    u32 last = min(work.first + ROWS, count) - 1;
    rows.block_last = sequence.start + last / group;
    rows.warp_last = warp_first < count ? (int)(sequence.start + min(warp_first + 15, count - 1) / group) : -1;
#pragma unroll
    for (u32 i = 0; i < 2; i++) {
        u32 r = warp_first + threadIdx.x % 32 / 4 + 8 * i;
        rows.p[i] = r < count ? (int)(sequence.start + r / group) : -1;
        rows.at[i] = (u64)(sequence.row + r / group) * q_heads + head * group + r % group;
    }
    return rows;
}

__device__ __forceinline__ void load_q(u32 (&qf)[DIM / 16][4], const u16* q, const Rows& rows) {
    u32 column = threadIdx.x % 4 * 2;
#pragma unroll
    for (u32 i = 0; i < DIM / 16; i++) {
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            u32 r = j % 2;
            qf[i][j] = rows.p[r] < 0 ? 0 : *(const u32*)(q + rows.at[r] * DIM + i * 16 + j / 2 * 8 + column);
        }
    }
}

// Walks the tiles of a split that the block's rows can see.
__device__ __forceinline__ void walk_split(State& state, const u32 (&qf)[DIM / 16][4], u16* ks, u16* vs, Pool pool,
                                           Sequence sequence, u32 head, const Rows& rows, u32 from, u32 split,
                                           u32* counts, bool counting) {
    reset(state);
    for (u32 start = from; start < from + split && (int)start <= rows.block_last; start += TILE) {
        __syncthreads();
        load_tile(ks, vs, pool, sequence, head, start);
        __syncthreads();
        if ((int)start <= rows.warp_last) walk_tile(state, qf, ks, vs, rows.p, start);
        // The chunk's first row lies inside this tile, not at its start.
        if (counting && start < sequence.start && sequence.start < start + TILE && threadIdx.x == 0) {
            atomicAdd(counts + ATTENTION_TILE_BEFORE_CHUNK, 1);
        }
    }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
attention_walk(const u16* q, Pool pool, const Sequence* sequences, const Work* works, u32 q_heads, u32 split,
               u16* out, float* tap, u32* counts) {
    __shared__ __align__(16) u16 ks[TILE * STRIDE];
    __shared__ __align__(16) u16 vs[TILE * STRIDE];
    Work work = works[blockIdx.x];
    Sequence sequence = sequences[work.sequence];
    u32 head = blockIdx.y;
    Rows rows = rows_of(sequence, work, q_heads, pool.heads, head);
    u32 qf[DIM / 16][4];
    load_q(qf, q, rows);
    bool counting = head == 0 && work.first == 0;
    Fold fold[2] = {{0.0f, 0.0f, 0, false}, {0.0f, 0.0f, 0, false}};
    float o[COLUMNS][4];
#pragma unroll
    for (u32 i = 0; i < COLUMNS * 4; i++) o[i / 4][i % 4] = 0.0f;
    for (u32 from = 0; (int)from <= rows.block_last; from += split) {
        State state;
        walk_split(state, qf, ks, vs, pool, sequence, head, rows, from, split, counts, counting);
#pragma unroll
        for (u32 r = 0; r < 2; r++) {
            float l = tree(state.l[r]), a, b;
            Step step = next(fold[r], state.m[r], l, a, b);
#pragma unroll
            for (u32 i = 0; i < COLUMNS * 2; i++) {
                float& x = o[i / 2][2 * r + i % 2];
                float acc = state.acc[i / 2][2 * r + i % 2];
                if (step == COPY) x = acc;
                if (step == MERGE) x = __fmaf_rn(acc, b, __fmul_rn(x, a));
            }
        }
    }
    u32 folds = 0;
#pragma unroll
    for (u32 r = 0; r < 2; r++) {
        bool merged = rows.p[r] >= 0 && fold[r].kept > 1 && threadIdx.x % 4 == 0;
        folds += __popc(__ballot_sync(FULL_WARP, merged));
        if (rows.p[r] < 0) continue;
        bool none = fold[r].marked || fold[r].kept == 0;
        float inverse = __fdiv_rn(1.0f, fold[r].l);
        u32* to = (u32*)(out + rows.at[r] * DIM + threadIdx.x % 4 * 2);
#pragma unroll
        for (u32 c = 0; c < COLUMNS; c++) {
            float low = none ? NOT_A_NUMBER : __fmul_rn(o[c][2 * r], inverse);
            float high = none ? NOT_A_NUMBER : __fmul_rn(o[c][2 * r + 1], inverse);
            to[c * 4] = r16x2(low, high);
            if (tap) {
                u64 at = rows.at[r] * DIM + c * 8 + threadIdx.x % 4 * 2;
                tap[at] = low;
                tap[at + 1] = high;
            }
        }
    }
    if (folds > 0 && threadIdx.x % 32 == 0) atomicAdd(counts + ATTENTION_FOLDS, folds);
    if (blockIdx.x == 0 && head == 0 && threadIdx.x == 0) atomicAdd(counts + ATTENTION_WALK, 1);
}

// Parks m, l and acc of each (row, q head, split) as DIM + 2 floats.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
attention_parallel(const u16* q, Pool pool, const Sequence* sequences, const Work* works, u32 q_heads, u32 split,
                   u32 splits, float* parked, u32* counts) {
    __shared__ __align__(16) u16 ks[TILE * STRIDE];
    __shared__ __align__(16) u16 vs[TILE * STRIDE];
    Work work = works[blockIdx.x];
    Sequence sequence = sequences[work.sequence];
    u32 head = blockIdx.y, from = blockIdx.z * split;
    Rows rows = rows_of(sequence, work, q_heads, pool.heads, head);
    if ((int)from > rows.block_last) return;
    u32 qf[DIM / 16][4];
    load_q(qf, q, rows);
    State state;
    bool counting = head == 0 && work.first == 0;
    walk_split(state, qf, ks, vs, pool, sequence, head, rows, from, split, counts, counting);
#pragma unroll
    for (u32 r = 0; r < 2; r++) {
        float l = tree(state.l[r]);
        if (rows.p[r] < (int)from) continue;
        float* to = parked + (rows.at[r] * splits + blockIdx.z) * (DIM + 2);
        if (threadIdx.x % 4 == 0) {
            to[0] = state.m[r];
            to[1] = l;
        }
#pragma unroll
        for (u32 c = 0; c < COLUMNS; c++) {
            to[2 + c * 8 + threadIdx.x % 4 * 2] = state.acc[c][2 * r];
            to[3 + c * 8 + threadIdx.x % 4 * 2] = state.acc[c][2 * r + 1];
        }
    }
}

// The second pass. blockIdx.x: row; blockIdx.y: q head; a thread per element.
extern "C" __global__ void __launch_bounds__(DIM)
attention_fold(const float* parked, const Row* rows, u32 q_heads, u32 split, u32 splits, u16* out, float* tap,
               u32* counts) {
    u64 at = (u64)blockIdx.x * q_heads + blockIdx.y;
    Fold fold = {0.0f, 0.0f, 0, false};
    float o = 0.0f;
    for (u32 j = 0; j <= rows[blockIdx.x].position / split; j++) {
        const float* from = parked + (at * splits + j) * (DIM + 2);
        float a, b;
        Step step = next(fold, from[0], from[1], a, b);
        if (step == COPY) o = from[2 + threadIdx.x];
        if (step == MERGE) o = __fmaf_rn(from[2 + threadIdx.x], b, __fmul_rn(o, a));
    }
    bool none = fold.marked || fold.kept == 0;
    float y = none ? NOT_A_NUMBER : __fmul_rn(o, __fdiv_rn(1.0f, fold.l));
    out[at * DIM + threadIdx.x] = r16(y);
    if (tap) tap[at * DIM + threadIdx.x] = y;
    if (fold.kept > 1 && threadIdx.x == 0) atomicAdd(counts + ATTENTION_FOLDS, 1);
    if (at == 0 && threadIdx.x == 0) atomicAdd(counts + ATTENTION_PARALLEL, 1);
}
