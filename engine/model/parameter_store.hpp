// The single owner of all mutable tensors of a model: weights, optimizer moments, running statistics.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/execution/device_memory.hpp"
#include "engine/execution/executable.hpp"
#include "engine/tensor/value.hpp"

namespace harmonics {

enum class Role { weight, frozen, state, moment };

struct StoredTensor {
  TensorType type;  // as declared and as files have it
  std::shared_ptr<Storage> storage;  // while `device` is set, to be read and written by way of data() and change()
  Role role = Role::weight;
  hx_init init{};
  bool transposed = false;  // two dimensions only: in memory rows and columns are exchanged
  bool asked = false;       // a program relies on how it lies
  bool on_host = false;     // a program of the host works on it
  std::shared_ptr<DeviceTensor> device = {};  // where a device with memory of its own works on it

  // The numbers as they lie in memory, brought here from the device that has newer ones.
  const void* data() const {
    if (device) device->fetch();
    return storage->data();
  }
  // Likewise, to be changed.
  void* change() {
    if (device) device->going_to_change();
    return storage->data();
  }
  TensorType type_in_memory() const { return transposed ? TensorType{type.dtype, Shape{type.shape[1], type.shape[0]}} : type; }
};

class ParameterStore : public TensorBinding {
 public:
  // For what is declared from now on, and all before it.
  void set_limits(const ModelLimits& limits);
  // Creates and initialises the tensor when it is new (keyed by seed and name: the same weights whatever the order);
  // another type for a known name is ErrorKind::Weights naming both.
  StoredTensor& declare(const std::string& name, const TensorType& type, Role role, const hx_init& init, uint64_t seed);
  StoredTensor* find(const std::string& name);
  const std::map<std::string, StoredTensor>& all() const { return tensors_; }
  void* parameter(const std::string& name, const TensorType& type) override;
  bool transposed(const std::string& name, const TensorType& type, bool preferred) override;
  std::shared_ptr<DeviceQueue> queue_on(const ItemPtr& device) override;
  std::shared_ptr<DeviceTensor> parameter_on(const std::shared_ptr<DeviceQueue>& queue, const std::string& name, const TensorType& type) override;
  // The numbers as declared: a view, or a copy of a transposed tensor.
  HTensor tensor(const std::string& name) const;
  // The numbers as declared, into memory of that size.
  void copy(const std::string& name, void* to) const;
  // Numbers for tensors that the graph will declare: under their name and type they are taken instead of first values. A
  // tensor that is declared already takes them now.
  void expect(std::map<std::string, HTensor> numbers);
  // What was expected and nobody has declared with that type.
  const std::map<std::string, HTensor>& expected() const { return expected_; }
  template <typename Predicate> void forget_expected(Predicate which) {
    std::erase_if(expected_, [&](const auto& entry) { return which(entry.first); });
  }
  // Takes over the numbers of a tensor of the declared type.
  void assign(const std::string& name, const HTensor& numbers);

 private:
  StoredTensor& checked(const std::string& name, const TensorType& type);  // as it lies

  std::map<std::string, StoredTensor> tensors_;
  std::map<std::string, HTensor> expected_;
  Budget bytes_ = ModelLimits().for_weights();
  std::shared_ptr<DeviceQueue> queue_;  // of the device that its tensors are on
};

// Philox-based initialisation keyed by (seed, name); documented in docs/numerics.md.
void initialise(void* data, const TensorType& type, const hx_init& init, uint64_t seed, const std::string& name);

}  // namespace harmonics
