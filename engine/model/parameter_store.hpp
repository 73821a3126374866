// Owner of all tensors of a model: weights, optimizer moments, running statistics. Weights of a file stay in its
// mapping, read-only, until a program or the host changes them; then they are copied.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/base/file.hpp"
#include "engine/execution/device_memory.hpp"
#include "engine/execution/executable.hpp"
#include "engine/model/packed_files.hpp"
#include "engine/tensor/value.hpp"

namespace harmonics::engine {

enum class Role { weight, frozen, state, moment };

class ParameterStore;

// Packed forms of a tensor that no program changes, kept while a plan uses them; shared by all stores that share the
// tensor.
class PackedForms {
 public:
  // `kept`: cache on disk for packed forms of tensors in mapped files; null: none.
  explicit PackedForms(std::shared_ptr<PackedFiles> kept = nullptr) : kept_(std::move(kept)) {}
  // `file`: the mapped file that holds the elements; null: in memory.
  PackedForm take(const Packing& packing, const TensorType& type, const void* elements, const MappedFile* file);
  bool in_use();
  // The mapped files of the forms in use.
  std::vector<std::shared_ptr<const MappedFile>> files();

 private:
  struct Known {
    std::weak_ptr<Storage> storage;
    std::weak_ptr<const MappedFile> file;
  };
  std::shared_ptr<PackedFiles> kept_;
  std::mutex mutex_;
  std::map<std::string, Known> known_;  // by name of the packing
};

struct StoredTensor {
  TensorType type;                   // as declared, and as stored in files
  std::shared_ptr<Storage> storage;  // if `device` is set, access it only through data() and change()
  Role role = Role::weight;
  hx_init init{};
  Layout layout = Layout::natural;            // transposed: two dimensions only
  bool asked = false;                         // a program relies on the layout
  bool on_host = false;                       // a host program uses it
  std::shared_ptr<DeviceTensor> device = {};  // set if it is used by a device with its own memory
  // No program changes it: programs read its storage directly, and snapshots share it.
  bool fixed = false;
  bool of_model = false;  // loaded from a model file that a flow names: not saved again while `fixed`
  std::shared_ptr<const MappedFile> file = {};                      // set while `storage` is a view into it
  std::shared_ptr<const char> users = std::make_shared<char>('u');  // held by plans that have its address
  std::shared_ptr<PackedForms> packed = std::make_shared<PackedForms>();

  // The stored elements, updated from the device if it has newer ones.
  const void* data() const {
    if (device) device->fetch();
    return storage->data();
  }
  // Like data(), for writing. Copies the elements first if they lie in a file or others share them; throws
  // ErrorKind::Internal if a compiled program still reads them there.
  void* change() {
    if (is_shared()) own();
    if (device) device->going_to_change();
    return storage->data();
  }
  bool is_shared() const { return !storage->writable() || (fixed && (storage.use_count() > 1 || packed->in_use())); }
  // Moves the elements to memory of its own.
  void own();
  TensorType type_in_memory() const {
    return layout == Layout::transposed ? TensorType{type.dtype, Shape{type.shape[1], type.shape[0]}} : type;
  }
};

class ParameterStore : public TensorBinding {
 public:
  // Limits for all tensors, declared already or later.
  void set_limits(const ModelLimits& limits);
  // Keeps packed and transposed forms of tensors that no program changes on disk, if the tensors lie in mapped files.
  // Of tensors declared already or later; null: keeps none.
  void keep_packed(std::shared_ptr<PackedFiles> kept);
  // Tensors that are declared from now on have addresses, but neither memory nor values, and count to no limit: for
  // plans that do not run.
  void reserve_only() { reserves_ = true; }
  // Creates and initialises a new tensor, by seed and name, so that the order of declarations does not matter. Throws
  // ErrorKind::Weights with both types if the name has another type.
  StoredTensor& declare(const std::string& name, const TensorType& type, Role role, const hx_init& init, uint64_t seed);
  // Declares a tensor whose elements are in `file`, which may be null. Large tensors stay in the mapping; others are
  // copied, so that they are aligned for vectors. A tensor that is declared already takes the elements as by assign().
  StoredTensor& adopt(const std::string& name, const HTensor& numbers, const std::shared_ptr<const MappedFile>& file,
                      Role role, const hx_init& init);
  // Declares a tensor of another store that no program changes; both use its storage.
  StoredTensor& share(const std::string& name, const StoredTensor& fixed);
  // Declares a tensor of another store and reads its elements there, also after they have changed. For programs that
  // change no tensor and run while no other program does; `of` must outlive them at the same address.
  StoredTensor& borrow(const std::string& name, const StoredTensor& of);
  // The mapped files that elements or their packed forms lie in. Programs that read them check afterwards that the
  // files are whole.
  std::vector<std::shared_ptr<const MappedFile>> files() const;
  StoredTensor* find(const std::string& name);
  const std::map<std::string, StoredTensor>& all() const { return tensors_; }
  void* parameter(const std::string& name, const TensorType& type) override;
  Layout layout(const std::string& name, const TensorType& type, Layout preferred) override;
  // False for weights of stored types, which kernels can multiply unpacked, unless they are in a mapped file and all of
  // them together take at most half of the limit of keep_packed().
  bool is_constant(const std::string& name) override;
  std::shared_ptr<const Storage> packed(const std::string& name, const Packing& packing) override;
  void will_change(const std::string& name) override;
  std::shared_ptr<const void> user_of(const std::string& name) override;
  std::shared_ptr<DeviceQueue> queue_on(const ItemPtr& device) override;
  // Programs on this queue's device use it, so that stores can share one. Call it before the store has a queue.
  void use_queue(std::shared_ptr<DeviceQueue> queue) { queue_ = std::move(queue); }
  std::shared_ptr<DeviceTensor> parameter_on(const std::shared_ptr<DeviceQueue>& queue, const std::string& name,
                                             const TensorType& type) override;
  // The elements in declared layout: a view, or a copy if stored transposed.
  HTensor tensor(const std::string& name) const;
  // Copies the elements in declared layout to `to`.
  void copy(const std::string& name, void* to) const;
  // Provides values for tensors: used instead of initial values when a tensor of this name and type is declared, or now
  // if it is declared already.
  void expect(std::map<std::string, HTensor> numbers);
  // Expected values that no declaration has taken.
  const std::map<std::string, HTensor>& expected() const { return expected_; }
  template <typename Predicate>
  void forget_expected(Predicate which) {
    std::erase_if(expected_, [&](const auto& entry) { return which(entry.first); });
  }
  // Copies values of the declared type to a tensor.
  void assign(const std::string& name, const HTensor& numbers);

 private:
  StoredTensor& checked(const std::string& name, const TensorType& type);  // with its stored type
  // The known tensor of that name; null: none. Throws if its type is another.
  StoredTensor* declared(const std::string& name, const TensorType& type);
  bool keeps_stored_types() const;

  std::map<std::string, StoredTensor> tensors_;
  std::map<std::string, HTensor> expected_;
  Budget bytes_ = ModelLimits().for_weights();
  std::shared_ptr<DeviceQueue> queue_;  // of the device that has its tensors
  std::shared_ptr<PackedFiles> kept_;
  bool reserves_ = false;
};

// Philox-based initial values by (seed, name), as documented in docs/numerics.md.
void initialise(void* data, const TensorType& type, const hx_init& init, uint64_t seed, const std::string& name);

}  // namespace harmonics::engine
