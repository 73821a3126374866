#include "engine/model/parameter_store.hpp"

#include "engine/base/spelling.hpp"

namespace harmonics {

StoredTensor& ParameterStore::declare(const std::string& name, const TensorType& type, Role role, const hx_init& init,
                                      uint64_t seed) {
  if (StoredTensor* known = find(name)) {
    if (known->type != type)
      throw Error(ErrorKind::Weights, "'" + name + "' is " + known->type.str() +
                                          " in the weights at hand, the graph needs " + type.str() +
                                          "; give it weights of that shape or change the layer back");
    return *known;
  }
  auto storage = std::make_shared<Storage>(type.bytes());
  initialise(storage->data(), type, init, seed, name);
  return tensors_.emplace(name, StoredTensor{type, std::move(storage), role, init}).first->second;
}

StoredTensor* ParameterStore::find(const std::string& name) {
  const auto at = tensors_.find(name);
  return at == tensors_.end() ? nullptr : &at->second;
}

void* ParameterStore::parameter(const std::string& name, const TensorType& type) {
  StoredTensor* stored = find(name);
  if (!stored) {
    std::vector<std::string> known;
    for (const auto& [other, tensor] : tensors_) known.push_back(other);
    Error error(ErrorKind::Weights, "there is no parameter '" + name + "'");
    if (const auto n = nearest(name, known)) error.note("did you mean '" + *n + "'?");
    throw error;
  }
  if (stored->type != type)
    throw Error(ErrorKind::Weights, "parameter '" + name + "' is " + stored->type.str() + ", the program wants " +
                                        type.str() + "; compile the program again for these weights");
  return stored->storage->data();
}

HTensor ParameterStore::tensor(const std::string& name) {
  const StoredTensor* stored = find(name);
  if (!stored) throw Error(ErrorKind::Weights, "there is no parameter '" + name + "'");
  return view_of(stored->type, stored->storage->data(), stored->storage);
}

}  // namespace harmonics
