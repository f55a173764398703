// z[m][f] = r16(silu(gate) * up) from [gate;up] (section 9). One thread an element; `tap`, if there
// is one, gets what is rounded.

extern "C" __global__ void swiglu(u32 m, u32 f, const u16* gate_up, u16* z, float* tap) {
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (u64)m * f) return;
    const u16* row = gate_up + i / f * 2 * f;
    float g = wide(row[i % f]);
    float up = wide(row[f + i % f]);
    float e = exp2c(__fmul_rn(__uint_as_float(__float_as_uint(g) & 0x7fffffffu), MINUS_LOG2_E));
    float sigmoid = __fdiv_rn(g >= 0.0f ? 1.0f : e, __fadd_rn(1.0f, e));
    float y = __fmul_rn(__fmul_rn(g, sigmoid), up);
    z[i] = r16(y);
    if (tap) tap[i] = y;
}
