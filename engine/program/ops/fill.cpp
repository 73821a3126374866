#include "engine/program/ops/fill.hpp"

#include <algorithm>

#include "engine/program/ops/dispatch.hpp"

namespace harmonics::engine {

void fill_elements(DType dtype, void* to, int64_t count, double value) {
  visit_dtype(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    std::fill_n(static_cast<T*>(to), count, convert_element<T>(value));
  });
}

}  // namespace harmonics::engine
