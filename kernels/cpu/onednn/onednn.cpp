#include "onednn.hpp"

namespace harmonics::cpu {

const dnnl::engine& cpu_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

Execution::Execution(dnnl::primitive primitive, std::initializer_list<std::pair<int, dnnl::memory::desc>> arguments)
    : primitive_(std::move(primitive)), stream_(cpu_engine()) {
  for (const auto& [id, desc] : arguments) {
    memories_.emplace_back(desc, cpu_engine(), nullptr);
    arguments_.push_back({id, memories_.back().get()});
  }
}

void Execution::run(std::initializer_list<const void*> pointers) const {
  size_t i = 0;
  for (const void* p : pointers) dnnl_memory_set_data_handle(memories_[i++].get(), const_cast<void*>(p));
  dnnl_primitive_execute(primitive_.get(), stream_.get(), static_cast<int>(arguments_.size()), arguments_.data());
}

}  // namespace harmonics::cpu
