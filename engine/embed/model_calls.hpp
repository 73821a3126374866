// The C functions behind <harmonics/models.hpp>. hx_graph_api documents them.
#pragma once

#include <harmonics/graph_abi.h>

namespace harmonics::engine {

hx_status register_model(const char* name, const char* file);
hx_status model_names(const char* const** names, uint32_t* count);
hx_status model_config(const char* model, const char* const** names, const double** values, uint32_t* count);
hx_status model_block(const char* model, int64_t layer, hx_block_spec* out);

hx_status open_model(const char* name, const hx_model_options* options, hx_model** out);
void close_model(hx_model* model);
hx_status model_values(hx_model* model, hx_value* tokens, uint32_t all, const char* const** names,
                       hx_value* const** values, uint32_t* count);
hx_status opened_block(hx_model* model, int64_t layer, hx_block_spec* out);
hx_status model_layer(hx_model* model, int64_t layer, const char* precision, hx_value* hidden, hx_value** out);
hx_status open_sequence(hx_model* model, hx_sequence** out);
void close_sequence(hx_sequence* sequence);
hx_status append_tokens(hx_sequence* sequence, hx_value* tokens, hx_value** scores);
hx_status keep_tokens(hx_sequence* sequence, int64_t length);
hx_status sequence_length(hx_sequence* sequence, int64_t* out);

}  // namespace harmonics::engine
