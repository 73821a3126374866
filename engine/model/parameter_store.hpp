// Owns all tensors of a model: weights, optimizer moments, running statistics. Weights of a file are read-only views of
// its mapping, and are copied when a program or the host first changes them.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
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

// Packed forms of a tensor that no program changes. They live while a plan uses them, and are shared by all stores that
// share the tensor.
class PackedForms {
 public:
  // `kept`: cache on disk for packed forms of tensors in mapped files; null: none.
  explicit PackedForms(std::shared_ptr<PackedFiles> kept = nullptr) : kept_(std::move(kept)) {}
  // A form of the elements of `of`; `file`: mapped file with the elements, null: in memory.
  struct Request {
    PackedForms* of;
    PackedSource source;
    const MappedFile* file;
  };
  // Returns the packed forms in order, packing elements if necessary. Forms of one file are kept together.
  static std::vector<PackedForm> take(std::span<const Request> requests);
  bool in_use();
  // Returns the mapped files of the forms in use.
  std::vector<std::shared_ptr<const MappedFile>> files();

 private:
  struct Known {
    std::weak_ptr<Storage> storage;
    std::weak_ptr<const MappedFile> file;
  };
  std::shared_ptr<PackedFiles> kept_;
  std::mutex mutex_;
  std::map<std::string, Known> known_;  // by packing name
};

struct StoredTensor {
  TensorType type;                   // as declared, and as stored in files
  std::shared_ptr<Storage> storage;  // if `device` is set, access it only through data() and change()
  Role role = Role::weight;
  hx_init init{};
  Layout layout = Layout::natural;            // transposed: two dimensions only
  bool asked = false;                         // the layout can no longer change, since a program relies on it
  bool on_host = false;                       // used by a host program
  std::shared_ptr<DeviceTensor> device = {};  // set if used by a device with its own memory
  // No program changes the tensor: programs read its storage directly, and snapshots share it.
  bool fixed = false;
  bool of_model = false;  // loaded from a model file named in a flow; not saved again while `fixed`
  bool given = false;     // from a file, and not declared since; its type may still be converted
  std::shared_ptr<const MappedFile> file = {};                      // set while `storage` is a view of it
  std::shared_ptr<const char> users = std::make_shared<char>('u');  // also owned by plans that use the address
  std::shared_ptr<PackedForms> packed = std::make_shared<PackedForms>();

  // Returns the stored elements, after fetching newer ones from the device.
  const void* data() const {
    if (device) device->fetch();
    return storage->data();
  }
  // Like data(), for writing. First copies elements that are mapped from a file or shared; throws ErrorKind::Internal
  // if a compiled program still reads the original.
  void* change() {
    if (is_shared()) own();
    if (device) device->going_to_change();
    return storage->data();
  }
  bool is_shared() const { return !storage->writable() || (fixed && (storage.use_count() > 1 || packed->in_use())); }
  // Copies the elements to memory that this tensor owns alone.
  void own();
  TensorType type_in_memory() const {
    return layout == Layout::transposed ? TensorType{type.dtype, Shape{type.shape[1], type.shape[0]}} : type;
  }
};

// Returns whether weights of a file may be converted to the type that a program needs.
bool is_convertible(const TensorType& given, const TensorType& needed);

class ParameterStore : public TensorBinding {
 public:
  // Sets limits for all tensors, including existing ones.
  void set_limits(const ModelLimits& limits);
  // Caches packed and transposed forms on disk, for tensors in mapped files that no program changes. Applies to
  // existing and later tensors. Null: no cache.
  void keep_packed(std::shared_ptr<PackedFiles> kept);
  // Tensors declared after this call have addresses, but neither memory nor values, and no limits apply. For plans that
  // do not run.
  void reserve_only() { reserves_ = true; }
  // Creates a tensor unless it exists. Initial values depend on seed and name, not on the order of declarations.
  // Converts a tensor of a file from another float type or a stored type; otherwise throws ErrorKind::Weights, with
  // both types, if the tensor exists with another type.
  StoredTensor& declare(const std::string& name, const TensorType& type, Role role, const hx_init& init, uint64_t seed);
  // Declares a tensor whose elements are in `file`, which may be null. Large tensors remain views of the mapping;
  // others are copied, which aligns them for vector instructions. Assigns the elements, converted as by declare(), if
  // the tensor exists and a program uses it; replaces a tensor of an earlier file.
  StoredTensor& adopt(const std::string& name, const HTensor& numbers, const std::shared_ptr<const MappedFile>& file,
                      Role role, const hx_init& init);
  // Declares a tensor that shares the storage of another store's tensor, which no program may change.
  StoredTensor& share(const std::string& name, const StoredTensor& fixed);
  // Declares a tensor that reads the elements of another store's tensor, including later changes. Only for programs
  // that change no tensors and do not run concurrently with others; `of` must outlive them at the same address.
  StoredTensor& borrow(const std::string& name, const StoredTensor& of);
  // Returns the mapped files that contain elements or packed forms. After a run, callers check that these files were
  // not truncated.
  std::vector<std::shared_ptr<const MappedFile>> files() const;
  StoredTensor* find(const std::string& name);
  const std::map<std::string, StoredTensor>& all() const { return tensors_; }
  void* parameter(const std::string& name, const TensorType& type) override;
  Layout layout(const std::string& name, const TensorType& type, Layout preferred) override;
  // Returns false for weights of stored types, which kernels can multiply unpacked, unless they are in a mapped file
  // and all of them together need at most half of the limit of keep_packed().
  bool is_constant(const std::string& name) override;
  std::vector<std::shared_ptr<const Storage>> packed(std::span<const PackedParameter> parameters) override;
  void will_change(const std::string& name) override;
  std::shared_ptr<const void> user_of(const std::string& name) override;
  std::shared_ptr<DeviceQueue> queue_on(const ItemPtr& device) override;
  // Makes programs on the queue's device use this queue, so that stores can share it. Must be called before the store
  // has a queue.
  void use_queue(std::shared_ptr<DeviceQueue> queue) { queue_ = std::move(queue); }
  std::shared_ptr<DeviceTensor> parameter_on(const std::shared_ptr<DeviceQueue>& queue, const std::string& name,
                                             const TensorType& type) override;
  // Returns the elements in declared layout: a view, or a copy if stored transposed.
  HTensor tensor(const std::string& name) const;
  // Copies the elements in declared layout to `to`.
  void copy(const std::string& name, void* to) const;
  // Provides values that replace the initial values of tensors with this name and type, both existing and declared
  // later.
  void expect(std::map<std::string, HTensor> numbers);
  // Returns the expected values that are still unused.
  const std::map<std::string, HTensor>& expected() const { return expected_; }
  template <typename Predicate>
  void forget_expected(Predicate which) {
    std::erase_if(expected_, [&](const auto& entry) { return which(entry.first); });
  }
  // Copies values of the declared type into a tensor.
  void assign(const std::string& name, const HTensor& numbers);

 private:
  StoredTensor& checked(const std::string& name, const TensorType& type);  // `type`: the stored type
  void convert(const std::string& name, StoredTensor& given, const TensorType& type);
  bool keeps_stored_types() const;

  std::map<std::string, StoredTensor> tensors_;
  std::map<std::string, HTensor> expected_;
  Budget bytes_ = ModelLimits().for_weights();
  std::shared_ptr<DeviceQueue> queue_;  // of the device that mirrors the tensors
  std::shared_ptr<PackedFiles> kept_;
  bool reserves_ = false;
};

// Writes Philox-based initial values by (seed, name), as documented in docs/numerics.md.
void initialise(void* data, const TensorType& type, const hx_init& init, uint64_t seed, const std::string& name);

}  // namespace harmonics::engine
