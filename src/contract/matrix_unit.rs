//! placeholder: being written

/// placeholder
pub fn detected_path() -> &'static str {
    "portable"
}
