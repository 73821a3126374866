// Helpers of the execution tests: parameters by name, and a compiled program's results as tensors.
#pragma once

#include <map>

#include "engine/execution/executable.hpp"
#include "tests/engine/passes/random_program.hpp"

namespace harmonics::engine::testing {

class MapBinding : public TensorBinding {
 public:
  explicit MapBinding(const std::map<std::string, HTensor>& numbers = {}) {
    for (const auto& [name, value] : numbers) {
      auto storage = std::make_shared<Storage>(type_of(value).bytes());
      std::memcpy(storage->data(), value.bytes(), storage->bytes());
      memory_[name] = storage;
    }
  }
  void* parameter(const std::string& name, const TensorType& type) override {
    auto& storage = memory_[name];
    if (!storage) storage = std::make_shared<Storage>(type.bytes());
    return storage->data();
  }
  HTensor tensor(const std::string& name, const TensorType& type) { return view_of(type, parameter(name, type)); }

 private:
  std::map<std::string, std::shared_ptr<Storage>> memory_;
};

inline std::vector<const void*> input_pointers(const Executable& executable,
                                               const std::map<std::string, HTensor>& numbers) {
  std::vector<const void*> pointers;
  for (const std::string& name : executable.input_names()) pointers.push_back(numbers.at(name).bytes());
  return pointers;
}

inline HTensor copy_of(const HTensor& t) { return HTensor(t.dtype(), t.shape(), t.bytes()); }

// Returns outputs, then updates, in the order of interpret().
inline Values run_compiled(const Program& program, const std::map<std::string, HTensor>& numbers, Executor& executor,
                           const CompileOptions& options) {
  MapBinding binding(numbers);
  const auto executable = compile(program, &binding, executor, options);
  executable->run(input_pointers(*executable, numbers).data());
  Values results;
  for (const NamedValue& v : program.outputs) results.push_back(copy_of(executable->output(v.name)));
  for (const NamedValue& v : program.updates) results.push_back(copy_of(binding.tensor(v.name, program.type(v.value))));
  return results;
}

// Returns teams of `threads` and `threads` + 1 threads.
inline std::vector<std::unique_ptr<Executor>> parallel_executors(int threads = 2) {
  std::vector<std::unique_ptr<Executor>> list;
  for (int more : {0, 1}) list.push_back(make_team_executor(threads + more));
  return list;
}

inline CompileOptions on(const std::string& device) {
  CompileOptions options;
  options.device = device;
  options.poison = true;
  return options;
}

}  // namespace harmonics::engine::testing
