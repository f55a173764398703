//! Models from files: what is read, and that nothing damaged is.

mod fields;
mod gguf;
mod gguf_writer;
mod in_place;
mod rope;
mod safetensors;
