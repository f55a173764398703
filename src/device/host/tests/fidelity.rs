//! GEMM and attention against plain f64 evaluation of the same 16-bit operands.
