//! Keys of `config.json` and of the two files about a tokenizer.

use serde_json::{Map, Value};

use super::{Fate, Lists, Seen, Unless};
use crate::weights::quoted;

/// Top level of `config.json`.
pub(in crate::weights) const CONFIG: Lists = Lists {
    honoured: &[
        "bos_token_id",
        "dtype",
        "eos_token_id",
        "head_dim",
        "hidden_act",
        "hidden_size",
        "intermediate_size",
        "layer_types",
        "max_position_embeddings",
        "model_type",
        "num_attention_heads",
        "num_hidden_layers",
        "num_key_value_heads",
        "original_max_position_embeddings",
        "rms_norm_eps",
        "rope_parameters",
        "rope_scaling",
        "rope_theta",
        "sliding_window",
        "tie_word_embeddings",
        "torch_dtype",
        "use_sliding_window",
        "vocab_size",
    ],
    refused: &[
        ("add_cross_attention", Unless::Is(false)),
        ("attention_bias", Unless::Is(false)),
        ("attention_chunk_size", Unless::Never),
        ("attention_multiplier", Unless::Never),
        ("attention_out_bias", Unless::Is(false)),
        ("attention_scale", Unless::Never),
        ("attn_logit_softcapping", Unless::Never),
        ("chunk_size_feed_forward", Unless::Number(0.0)),
        ("compression_config", Unless::Never),
        ("cross_attention_hidden_size", Unless::Never),
        ("embedding_multiplier", Unless::Number(1.0)),
        ("final_logit_softcapping", Unless::Never),
        ("is_causal", Unless::Is(true)),
        ("is_encoder_decoder", Unless::Is(false)),
        ("logit_scale", Unless::Number(1.0)),
        ("logits_scaling", Unless::Number(1.0)),
        ("mlp_bias", Unless::Is(false)),
        ("no_rope_layers", Unless::Empty),
        ("num_experts", Unless::Number(0.0)),
        ("num_local_experts", Unless::Number(0.0)),
        ("num_nextn_predict_layers", Unless::Number(0.0)),
        ("partial_rotary_factor", Unless::Number(1.0)),
        ("pruned_heads", Unless::Empty),
        ("qkv_bias", Unless::Is(false)),
        ("quantization_config", Unless::Never),
        ("residual_multiplier", Unless::Number(1.0)),
        ("rope_interleave", Unless::Is(false)),
        ("rope_interleaved", Unless::Is(false)),
        ("rotary_pct", Unless::Number(1.0)),
        ("use_bidirectional_attention", Unless::Is(false)),
        ("use_qk_norm", Unless::Never),
    ],
    no_effect: &[
        "_attn_implementation",
        "_attn_implementation_autoset",
        "_name_or_path",
        "architectures",
        // Training only.
        "attention_dropout",
        "attn_implementation",
        "auto_map",
        "bad_words_ids",
        "decoder_start_token_id",
        "finetuning_task",
        "forced_bos_token_id",
        "forced_eos_token_id",
        "hidden_dropout",
        "id2label",
        "initializer_range",
        "is_decoder",
        "label2id",
        // Only where there is a window, which is refused.
        "max_window_layers",
        "num_labels",
        "output_attentions",
        "output_hidden_states",
        "pad_token_id",
        "prefix",
        // How products are cut over devices in training; the sums are the same.
        "pretraining_tp",
        "problem_type",
        "return_dict",
        "sep_token_id",
        "task_specific_params",
        "tf_legacy_loss",
        "tokenizer_class",
        "torchscript",
        "transformers_version",
        "use_bfloat16",
        "use_cache",
        "use_return_dict",
        // Defaults of a sampler, in files of older programs.
        "begin_suppress_tokens",
        "diversity_penalty",
        "do_sample",
        "early_stopping",
        "encoder_no_repeat_ngram_size",
        "exponential_decay_length_penalty",
        "length_penalty",
        "max_length",
        "min_length",
        "no_repeat_ngram_size",
        "num_beam_groups",
        "num_beams",
        "num_return_sequences",
        "output_scores",
        "remove_invalid_values",
        "repetition_penalty",
        "return_dict_in_generate",
        "suppress_tokens",
        "temperature",
        "tie_encoder_decoder",
        "top_k",
        "top_p",
        "typical_p",
    ],
};

/// Inside `rope_parameters` or `rope_scaling`. Which of them a scaling uses is the loader's to say; one that it does not use is
/// refused there.
pub(in crate::weights) const ROPE: Lists = Lists {
    honoured: &[
        "attention_factor",
        "beta_fast",
        "beta_slow",
        "factor",
        "high_freq_factor",
        "low_freq_factor",
        "mscale",
        "mscale_all_dim",
        "original_max_position_embeddings",
        "rope_theta",
        "rope_type",
        "truncate",
        "type",
    ],
    refused: &[
        ("long_factor", Unless::Never),
        ("long_mscale", Unless::Never),
        ("mrope_interleaved", Unless::Never),
        ("mrope_section", Unless::Never),
        ("partial_rotary_factor", Unless::Number(1.0)),
        ("short_factor", Unless::Never),
        ("short_mscale", Unless::Never),
    ],
    no_effect: &[],
};

/// `tokenizer_config.json`. What is added to a text, and how it is cut, `tokenizer.json` says; keys here that would change it are
/// refused unless they agree.
pub(in crate::weights) const TOKENIZER_CONFIG: Lists = Lists {
    honoured: &["add_bos_token", "add_prefix_space"],
    refused: &[
        ("add_eos_token", Unless::Is(false)),
        ("do_lower_case", Unless::Is(false)),
        ("fix_mistral_regex", Unless::Never),
        ("sanitize_control_tokens", Unless::Is(false)),
        ("split_special_tokens", Unless::Is(false)),
    ],
    no_effect: &[
        "_commit_hash",
        "added_tokens_decoder",
        "additional_special_tokens",
        "auto_map",
        "backend",
        "bos_token",
        "chat_control_tokens",
        "chat_template",
        // Of decoded text only.
        "clean_up_tokenization_spaces",
        "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output",
        "cls_token",
        "device_map",
        "eos_token",
        "errors",
        "extra_special_tokens",
        "from_slow",
        "init_inputs",
        "is_local",
        // How a tokenizer without tokenizer.json is converted into one.
        "legacy",
        "local_files_only",
        "mask_token",
        "max_length",
        "merges",
        "merges_file",
        "model_input_names",
        "model_max_length",
        "model_specific_special_tokens",
        "name_or_path",
        "pad_to_multiple_of",
        "pad_token",
        "pad_token_type_id",
        "padding_side",
        "processor_class",
        "response_schema",
        "response_template",
        "return_token_type_ids",
        "revision",
        "sep_token",
        "sp_model_kwargs",
        "spaces_between_special_tokens",
        "special_tokens_map_file",
        "stride",
        "subfolder",
        "tokenizer_class",
        "tokenizer_file",
        "tokenizer_object",
        "tokenizer_type",
        "truncation_side",
        "truncation_strategy",
        "trust_remote_code",
        "unk_token",
        "use_default_system_prompt",
        "use_fast",
        "verbose",
        "vocab",
        "vocab_file",
        "vocab_size",
    ],
};

/// Top level of `tokenizer.json`.
pub(in crate::weights) const TOKENIZER: Lists = Lists {
    honoured: &[
        "added_tokens",
        "decoder",
        "model",
        "normalizer",
        "post_processor",
        "pre_tokenizer",
        "version",
    ],
    refused: &[],
    // Switched off: a text is encoded whole, alone.
    no_effect: &["padding", "truncation"],
};

/// Which unknown keys are refused.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::weights) enum Unknown {
    /// Those whose names speak of rope or attention: `config.json` holds notes of all kinds.
    OfRopeAndAttention,
    /// All.
    All,
}

/// Refuses an object with a key that asks for what is not done, or that nobody here knows; says which.
pub(in crate::weights) fn check(
    object: &Map<String, Value>,
    lists: &Lists,
    unknown: Unknown,
    of: &str,
) -> Result<(), String> {
    for (key, value) in object {
        match lists.fate(key) {
            Some(Fate::Honoured | Fate::NoEffect) => {}
            Some(Fate::Refused(unless)) if unless.holds(seen(value)) => {}
            Some(Fate::Refused(_)) => {
                return Err(format!("{of}{key} {}", shown(value)));
            }
            None if value.is_null() => {}
            None if unknown == Unknown::All || of_rope_or_attention(key) => {
                return Err(format!("{of}key {}, which is not known here", quoted(key)));
            }
            None => {}
        }
    }
    Ok(())
}

fn of_rope_or_attention(key: &str) -> bool {
    ["rope", "rotary", "yarn", "attn", "attention", "head", "window", "causal"]
        .iter()
        .any(|word| key.contains(word))
}

fn seen(value: &Value) -> Seen<'_> {
    match value {
        Value::Null => Seen::Null,
        Value::Bool(b) => Seen::Bool(*b),
        Value::Number(n) => n.as_f64().map_or(Seen::Other, Seen::Number),
        Value::String(text) => Seen::Text(text),
        Value::Array(list) => Seen::List(list.len()),
        Value::Object(map) => Seen::List(map.len()),
    }
}

/// A value, fit for a message.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Array(list) => format!("is a list of {}", list.len()),
        Value::Object(map) => format!("is an object of {}", map.len()),
        value => format!("is {value}"),
    }
}
