//! Keys of GGUF metadata, those of the architecture without its name in front.

use std::io::{Read, Seek};

use super::{Fate, Lists, Seen, Unless};
use crate::weights::gguf::{Gguf, Value};
use crate::weights::{WeightsError, quoted};

/// Keys under the architecture's name: sizes, attention, rope. All must be known, whatever their group: each can be a number of
/// the forward pass.
pub(in crate::weights) const MODEL: Lists = Lists {
    honoured: &[
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.layer_norm_rms_epsilon",
        "attention.value_length",
        "block_count",
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "rope.dimension_count",
        "rope.freq_base",
        "rope.scale_linear",
        "rope.scaling.attn_factor",
        "rope.scaling.factor",
        "rope.scaling.original_context_length",
        "rope.scaling.type",
        "vocab_size",
    ],
    refused: &[
        ("activation.situ_beta", Unless::Never),
        ("activation.situ_linear_beta", Unless::Never),
        ("activation_sparsity_scale", Unless::Never),
        ("adapters.count", Unless::Number(0.0)),
        ("adapters.lora_rank", Unless::Never),
        ("adapters.router_gain", Unless::Never),
        ("adapters.token_ids_activate", Unless::Never),
        ("adapters.token_ids_substitute", Unless::Never),
        ("altup.active_idx", Unless::Never),
        ("altup.num_inputs", Unless::Never),
        ("attention.causal", Unless::Is(true)),
        ("attention.clamp_kqv", Unless::Number(0.0)),
        ("attention.compress_ratios", Unless::Never),
        ("attention.compress_rope_freq_base", Unless::Never),
        ("attention.decay_lora_rank", Unless::Never),
        ("attention.gate_lora_rank", Unless::Never),
        ("attention.group_norm_epsilon", Unless::Never),
        ("attention.group_norm_groups", Unless::Never),
        ("attention.iclr_lora_rank", Unless::Never),
        ("attention.indexer.block_size", Unless::Never),
        ("attention.indexer.head_count", Unless::Never),
        ("attention.indexer.key_length", Unless::Never),
        ("attention.indexer.kpool", Unless::Never),
        ("attention.indexer.kpool_select_tail", Unless::Never),
        ("attention.indexer.local_blocks", Unless::Never),
        ("attention.indexer.top_k", Unless::Never),
        ("attention.indexer.types", Unless::Never),
        ("attention.key_length_mla", Unless::Never),
        ("attention.key_length_mla_swa", Unless::Never),
        ("attention.key_length_swa", Unless::Never),
        ("attention.kv_lora_rank", Unless::Never),
        ("attention.kv_lora_rank_swa", Unless::Never),
        ("attention.layer_norm_epsilon", Unless::Never),
        ("attention.max_alibi_bias", Unless::Number(0.0)),
        ("attention.output_group_count", Unless::Never),
        ("attention.output_lora_rank", Unless::Never),
        ("attention.output_scale", Unless::Number(1.0)),
        ("attention.q_lora_rank", Unless::Never),
        ("attention.recurrent_layers", Unless::Never),
        ("attention.relative_buckets_count", Unless::Never),
        ("attention.rope_pattern", Unless::Never),
        ("attention.scale", Unless::Number(0.0)),
        ("attention.shared_kv_layers", Unless::Number(0.0)),
        ("attention.sliding_window", Unless::Number(0.0)),
        ("attention.sliding_window_pattern", Unless::Never),
        ("attention.temperature_length", Unless::Never),
        ("attention.temperature_scale", Unless::Never),
        ("attention.value_expert_count", Unless::Number(0.0)),
        ("attention.value_expert_used_count", Unless::Number(0.0)),
        ("attention.value_length_mla", Unless::Never),
        ("attention.value_length_mla_swa", Unless::Never),
        ("attention.value_length_swa", Unless::Never),
        ("attention.value_residual_mix_lora_rank", Unless::Never),
        ("attention.value_scale", Unless::Number(1.0)),
        ("attn_logit_softcapping", Unless::Number(0.0)),
        ("attn_res.block_size", Unless::Never),
        ("block_size", Unless::Never),
        ("conv_group_size", Unless::Never),
        ("conv_kernel_size", Unless::Never),
        ("convnext.block_count", Unless::Never),
        ("convnext.embedding_length", Unless::Never),
        ("decision.block_count", Unless::Never),
        ("decision.head_count", Unless::Never),
        ("decision.routing_block_count", Unless::Never),
        ("decoder_block_count", Unless::Never),
        ("decoder_start_token_id", Unless::Never),
        ("deepstack_mapping", Unless::Never),
        ("embedding_length_out", Unless::Never),
        ("embedding_length_per_layer_input", Unless::Never),
        ("embedding_scale", Unless::Number(1.0)),
        ("expert_chunk_feed_forward_length", Unless::Never),
        ("expert_count", Unless::Number(0.0)),
        ("expert_feed_forward_length", Unless::Never),
        ("expert_gating_func", Unless::Never),
        ("expert_group_count", Unless::Never),
        ("expert_group_scale", Unless::Never),
        ("expert_group_used_count", Unless::Never),
        ("expert_latent_length", Unless::Never),
        ("expert_shared_count", Unless::Number(0.0)),
        ("expert_shared_feed_forward_length", Unless::Never),
        ("expert_used_count", Unless::Number(0.0)),
        ("expert_weights_norm", Unless::Never),
        ("expert_weights_scale", Unless::Never),
        ("experts_per_group", Unless::Never),
        ("features_length", Unless::Never),
        ("final_logit_softcapping", Unless::Number(0.0)),
        ("full_attention_interval", Unless::Never),
        ("hash_layer_count", Unless::Never),
        ("hidden_activation", Unless::Text("silu")),
        ("hrm.h_cycles", Unless::Never),
        ("hrm.l_cycles", Unless::Never),
        ("hrm.layers_per_stack", Unless::Never),
        ("hrm.prefix_lm", Unless::Never),
        ("hyper_connection.count", Unless::Never),
        ("hyper_connection.epsilon", Unless::Never),
        ("hyper_connection.low_rank", Unless::Never),
        ("hyper_connection.magnitude", Unless::Never),
        ("hyper_connection.sinkhorn_iterations", Unless::Never),
        ("interleave_moe_layer_step", Unless::Never),
        ("kda.gate_lower_bound", Unless::Never),
        ("kda.head_dim", Unless::Never),
        ("kda.safe_gate", Unless::Never),
        ("leading_dense_block_count", Unless::Number(0.0)),
        ("logit_scale", Unless::Number(1.0)),
        ("moe_every_n_layers", Unless::Never),
        ("moe_latent_size", Unless::Never),
        ("n_deepstack_layers", Unless::Number(0.0)),
        ("nextn_predict_layers", Unless::Number(0.0)),
        ("norm_before_fc", Unless::Never),
        ("norm_before_residual", Unless::Never),
        ("num_loops", Unless::Number(1.0)),
        ("ple.conv_kernel", Unless::Never),
        ("ple.eos_token_id", Unless::Never),
        ("ple.head_offsets", Unless::Never),
        ("ple.head_vocab_sizes", Unless::Never),
        ("ple.heads_per_ngram", Unless::Never),
        ("ple.image_token_id", Unless::Never),
        ("ple.layer_multipliers", Unless::Never),
        ("ple.layers", Unless::Never),
        ("ple.ngram_size", Unless::Never),
        ("posnet.block_count", Unless::Never),
        ("posnet.embedding_length", Unless::Never),
        ("rescale_every_n_layers", Unless::Number(0.0)),
        ("residual_scale", Unless::Number(1.0)),
        ("rope.dimension_count_swa", Unless::Never),
        ("rope.dimension_sections", Unless::Never),
        ("rope.freq_base_swa", Unless::Never),
        ("rope.scaling.alpha", Unless::Number(0.0)),
        // llama.cpp reads these five for other architectures, or not at all; the values here are its defaults.
        ("rope.scaling.yarn_attn_factor", Unless::Number(1.0)),
        ("rope.scaling.yarn_beta_fast", Unless::Number(32.0)),
        ("rope.scaling.yarn_beta_slow", Unless::Number(1.0)),
        ("rope.scaling.yarn_ext_factor", Unless::Number(1.0)),
        ("rope.scaling.yarn_log_multiplier", Unless::Number(0.0)),
        ("router_logit_softcapping", Unless::Number(0.0)),
        ("selector_rank", Unless::Never),
        ("selector_top_k", Unless::Never),
        ("shortconv.l_cache", Unless::Never),
        ("skip_loop_final_norm", Unless::Never),
        ("ssm.conv_kernel", Unless::Never),
        ("ssm.dt_b_c_rms", Unless::Never),
        ("ssm.group_count", Unless::Never),
        ("ssm.inner_size", Unless::Never),
        ("ssm.state_size", Unless::Never),
        ("ssm.time_step_rank", Unless::Never),
        ("swiglu_clamp_exp", Unless::Never),
        ("swiglu_clamp_shexp", Unless::Never),
        ("swin_norm", Unless::Is(false)),
        ("target_hidden_size", Unless::Never),
        ("target_layers", Unless::Never),
        ("time_decay_extra_dim", Unless::Never),
        ("time_mix_extra_dim", Unless::Never),
        ("token_shift_count", Unless::Never),
        ("use_parallel_residual", Unless::Is(false)),
        ("wkv.head_size", Unless::Never),
    ],
    no_effect: &[
        // What is made of hidden states, after the forward pass, by programs that embed or classify.
        "classifier.*",
        "dense_2_feat_in",
        "dense_2_feat_out",
        "dense_3_feat_in",
        "dense_3_feat_out",
        "pooling_type",
        // Whether weights were trained further at the scaled length, and a note on where rows came from.
        "rope.scaling.finetuned",
        "tensor_data_layout",
    ],
};

/// Keys of tokenizers. All must be known: each can change the ids of a text.
pub(in crate::weights) const TOKENIZER: Lists = Lists {
    honoured: &[
        "tokenizer.ggml.add_bos_token",
        "tokenizer.ggml.add_space_prefix",
        "tokenizer.ggml.bos_token_id",
        "tokenizer.ggml.eos_token_id",
        "tokenizer.ggml.eot_token_id",
        "tokenizer.ggml.merges",
        "tokenizer.ggml.model",
        "tokenizer.ggml.pre",
        "tokenizer.ggml.scores",
        "tokenizer.ggml.token_type",
        "tokenizer.ggml.tokens",
        "tokenizer.ggml.unknown_token_id",
    ],
    refused: &[
        ("tokenizer.ggml.add_eos_token", Unless::Is(false)),
        ("tokenizer.ggml.add_sep_token", Unless::Is(false)),
        ("tokenizer.ggml.normalizer.lowercase", Unless::Is(false)),
        ("tokenizer.ggml.normalizer.strip_accents", Unless::Is(false)),
        ("tokenizer.ggml.precompiled_charsmap", Unless::Empty),
        ("tokenizer.ggml.remove_extra_whitespaces", Unless::Is(false)),
        ("tokenizer.ggml.suppress_tokens", Unless::Empty),
        ("tokenizer.rwkv.world", Unless::Never),
    ],
    no_effect: &[
        "tokenizer.chat_template",
        "tokenizer.chat_template.*",
        "tokenizer.chat_templates",
        "tokenizer.ggml.cls_token_id",
        "tokenizer.ggml.eom_token_id",
        "tokenizer.ggml.fim_mid_token_id",
        "tokenizer.ggml.fim_pad_token_id",
        "tokenizer.ggml.fim_pre_token_id",
        "tokenizer.ggml.fim_rep_token_id",
        "tokenizer.ggml.fim_sep_token_id",
        "tokenizer.ggml.fim_suf_token_id",
        "tokenizer.ggml.mask_token_id",
        "tokenizer.ggml.middle_token_id",
        "tokenizer.ggml.padding_token_id",
        "tokenizer.ggml.prefix_token_id",
        // The format's own spelling, and that of files that know better.
        "tokenizer.ggml.seperator_token_id",
        "tokenizer.ggml.separator_token_id",
        "tokenizer.ggml.suffix_token_id",
        "tokenizer.ggml.token_type_count",
        // The same tokenizer once more, in another format; nobody reads it beside the first.
        "tokenizer.huggingface.json",
    ],
};

/// All other keys. What no list has is another program's note, and is left alone.
pub(in crate::weights) const GENERAL: Lists = Lists {
    honoured: &[
        "general.alignment",
        "general.architecture",
        "split.count",
        "split.no",
        "split.tensors.count",
    ],
    refused: &[
        ("diffusion.shift_logits", Unless::Never),
        ("general.type", Unless::Text("model")),
        ("xielu.alpha_n", Unless::Never),
        ("xielu.alpha_p", Unless::Never),
        ("xielu.beta", Unless::Never),
        ("xielu.eps", Unless::Never),
    ],
    // An adapter or a vision tower in a file of its own is told by `general.type`; here these are notes.
    no_effect: &["adapter.*", "clip.*", "general.*", "imatrix.*", "quantize.*"],
};

/// Refuses a file with a key that asks for what is not done, or that nobody here knows.
pub(in crate::weights) fn check<R: Read + Seek>(
    gguf: &Gguf<R>,
    arch: &str,
) -> Result<(), WeightsError> {
    check_tokenizer(gguf)?;
    for (key, value) in gguf.keys().filter(|(key, _)| !key.starts_with("tokenizer.")) {
        if let Some(rest) = key.strip_prefix(arch).and_then(|rest| rest.strip_prefix('.')) {
            known(gguf, &MODEL, key, rest, value)?;
        } else if let Some(Fate::Refused(unless)) = GENERAL.fate(key) {
            unless_harmless(gguf, key, unless, value)?;
        }
    }
    Ok(())
}

/// The same for the tokenizer alone, which can be opened without its model.
pub(crate) fn check_tokenizer<R: Read + Seek>(gguf: &Gguf<R>) -> Result<(), WeightsError> {
    gguf.keys()
        .filter(|(key, _)| key.starts_with("tokenizer."))
        .try_for_each(|(key, value)| known(gguf, &TOKENIZER, key, key, value))
}

/// A key of a group in which all must be known.
fn known<R: Read + Seek>(
    gguf: &Gguf<R>,
    lists: &Lists,
    key: &str,
    name: &str,
    value: &Value,
) -> Result<(), WeightsError> {
    match lists.fate(name) {
        Some(Fate::Honoured | Fate::NoEffect) => Ok(()),
        Some(Fate::Refused(unless)) => unless_harmless(gguf, key, unless, value),
        None => {
            let what = format!("metadata key {}, which is not known here", quoted(key));
            Err(gguf.origin().unsupported(what))
        }
    }
}

fn unless_harmless<R: Read + Seek>(
    gguf: &Gguf<R>,
    key: &str,
    unless: Unless,
    value: &Value,
) -> Result<(), WeightsError> {
    let (seen, shown) = match value {
        Value::Unsigned(n) => (Seen::Number(*n as f64), n.to_string()),
        Value::Signed(n) => (Seen::Number(*n as f64), n.to_string()),
        Value::Float(x) => (Seen::Number(*x), x.to_string()),
        Value::Bool(b) => (Seen::Bool(*b), b.to_string()),
        Value::Text(text) => (Seen::Text(text), quoted(text)),
        Value::Array(list) => (Seen::List(list.len()), format!("a list of {}", list.len())),
    };
    match unless.holds(seen) {
        true => Ok(()),
        false => Err(gguf.origin().unsupported(format!("metadata key {} is {shown}", quoted(key)))),
    }
}
