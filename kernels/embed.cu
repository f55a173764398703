// h[m][hidden] = w(embedding[token]). One block a row.

extern "C" __global__ void embed(const u16* embedding, u32 stride, u32 hidden, const u32* tokens, float* h) {
    const u16* from = embedding + (u64)tokens[blockIdx.x] * stride;
    float* to = h + (u64)blockIdx.x * hidden;
    for (u32 i = threadIdx.x; i < hidden; i += blockDim.x) to[i] = wide(from[i]);
}
