// Models of the Llama family (Touvron et al. 2023), from metadata and tensors named as in GGUF.
#pragma once

#include "engine/model/model.hpp"

namespace harmonics::engine {

// Fills entries, states, context and vocabulary of a model whose metadata and parameters are there: "prefill" and
// "decode" as Decoder needs them; "loss", without caches, of the inputs "tokens" and "targets" i32 [batch, tokens]:
// the mean cross entropy of the scores after each token and its target. "value:blk.N" are the blocks' results.
// Pre-normalised blocks of grouped-query attention with rotary positions and SwiGLU;
// the head may share the embedding's weight. Reads `general.architecture` and `ARCHITECTURE.block_count`,
// `.embedding_length`, `.attention.head_count`, `.attention.head_count_kv`, `.feed_forward_length`, `.context_length`,
// `.attention.layer_norm_rms_epsilon`, `.rope.freq_base`, `.rope.pairing` ("half" or "interleaved"). Throws
// ErrorKind::Weights naming the key or tensor that is missing or does not fit. Matrices may be of any type that
// `linear` takes as its weight; `cache`: type of the keys and values of tokens, f32, f16 or q8_0.
void add_llama_entries(Model& model, DType cache = DType::F32);

}  // namespace harmonics::engine
