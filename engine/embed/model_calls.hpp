// The C functions behind <harmonics/models.hpp>; hx_graph_api describes them.
#pragma once

#include <harmonics/graph_abi.h>

namespace harmonics::engine {

hx_status register_model(const char* name, const char* file);
hx_status model_names(const char* const** names, uint32_t* count);
hx_status model_config(const char* model, const char* const** names, const double** values, uint32_t* count);
hx_status model_block(const char* model, int64_t layer, hx_block_spec* out);

}  // namespace harmonics::engine
