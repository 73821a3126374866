#include "engine/model/parameter_store.hpp"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include <harmonics/ops.hpp>

#include "engine/base/spelling.hpp"

namespace harmonics::engine {

namespace {

// Transposes columns [first, end) tile by tile through a buffer, so that both sides are accessed by whole cache lines:
// rows a power of two apart map to few cache sets. Prefetches the next tile, because its rows are too short for the
// hardware prefetcher.
template <typename T>
void exchange(const T* from, T* to, int64_t rows, int64_t columns, int64_t first, int64_t end) {
  constexpr int64_t kTile = sizeof(T) > 4 ? 32 : 64, kLine = 64 / sizeof(T);
  T tile[kTile][kTile];
  for (int64_t i = 0; i < rows; i += kTile)
    for (int64_t j = first; j < end; j += kTile) {
      const int64_t height = std::min(kTile, rows - i), width = std::min(kTile, end - j),
                    ahead = std::min(kTile, end - j - width);
      for (int64_t r = 0; r < height; ++r) {
        const T* row = from + (i + r) * columns + j;
        for (int64_t c = 0; c < ahead; c += kLine) __builtin_prefetch(row + kTile + c);
        for (int64_t c = 0; c < width; ++c) tile[c][r] = row[c];
      }
      for (int64_t c = 0; c < width; ++c) {
        T* column = to + (j - first + c) * rows + i;
        for (int64_t r = 0; c < ahead && r < height; r += kLine) __builtin_prefetch(column + kTile * rows + r, 1);
        std::memcpy(column, tile[c], static_cast<size_t>(height) * sizeof(T));
      }
    }
}

// Transposes the columns from `first` to `end`; `type` is that of `from`.
void exchange(const void* from, void* to, const TensorType& type, int64_t first, int64_t end) {
  const int64_t rows = type.shape[0], columns = type.shape[1];
  const size_t bytes = element_bytes(type.dtype);
  switch (bytes) {
    case 1:
      return exchange(static_cast<const uint8_t*>(from), static_cast<uint8_t*>(to), rows, columns, first, end);
    case 2:
      return exchange(static_cast<const uint16_t*>(from), static_cast<uint16_t*>(to), rows, columns, first, end);
    case 4:
      return exchange(static_cast<const uint32_t*>(from), static_cast<uint32_t*>(to), rows, columns, first, end);
    case 8:
      return exchange(static_cast<const uint64_t*>(from), static_cast<uint64_t*>(to), rows, columns, first, end);
    default:
      throw Error(ErrorKind::Internal, "elements of " + std::to_string(bytes) + " bytes cannot be transposed");
  }
}
void exchange(const void* from, void* to, const TensorType& type) { exchange(from, to, type, 0, type.shape[1]); }

// Pieces are whole rows of the transposed matrix, about the size of an L2 cache.
Packing transposing(const TensorType& type) {
  constexpr int64_t kTile = 64, kPieceBytes = int64_t{1} << 20;
  const int64_t columns = type.shape[1],
                row_bytes = std::max<int64_t>(1, type.shape[0] * static_cast<int64_t>(element_bytes(type.dtype))),
                width = std::max<int64_t>(1, kPieceBytes / row_bytes / kTile) * kTile;
  return {"transposed/1", type.bytes(), static_cast<uint64_t>(width * row_bytes),
          [=](const void* from, uint64_t piece, void* to) {
            const int64_t first = static_cast<int64_t>(piece) * width;
            exchange(from, to, type, first, std::min(first + width, columns));
          }};
}

// Smaller tensors are copied, because kernels gain from alignment and copies cost little memory. The limit is lower for
// quantized blocks, which are never aligned.
constexpr size_t kLeastMapped = size_t{1} << 20, kLeastMappedBlocks = size_t{1} << 16;

// Returns whether the tensor is a large enough read-only view of the file.
bool stays_mapped(const HTensor& numbers, const std::shared_ptr<const MappedFile>& file) {
  const Storage& storage = *numbers.raw()->storage;
  const size_t least = is_stored(numbers.dtype()) ? kLeastMappedBlocks : kLeastMapped;
  return file && !storage.owned() && !storage.writable() && storage.bytes() >= least;
}

bool holds(const StoredTensor& stored, const HTensor& numbers) {
  const void* wanted = numbers.bytes();
  std::unique_ptr<Storage> turned;
  if (stored.layout == Layout::transposed) {
    turned = std::make_unique<Storage>(stored.type.bytes());
    exchange(wanted, turned->data(), stored.type);
    wanted = turned->data();
  }
  const void* now = stored.data();
  return now == wanted || std::memcmp(now, wanted, stored.type.bytes()) == 0;
}

Error other_type(const std::string& name, const TensorType& given, const TensorType& needed) {
  return Error(ErrorKind::Weights, "'" + name + "' is " + given.str() + " in the given weights, but the graph needs " +
                                       needed.str() + "; give it weights of that " +
                                       (given.shape == needed.shape ? "type" : "shape") + " or change the layer back");
}

Error unknown_parameter(const std::string& name) {
  return Error(ErrorKind::Weights, "there is no parameter '" + name + "'");
}

}  // namespace

bool is_convertible(const TensorType& given, const TensorType& needed) {
  return given.shape == needed.shape && is_float(needed.dtype) && (is_float(given.dtype) || is_stored(given.dtype));
}

void StoredTensor::own() {
  if (users.use_count() > 1)
    throw Error(ErrorKind::Internal,
                "a tensor of type " + type.str() + " is to change, but a compiled program reads it in a shared place");
  const void* from = data();
  auto mine = std::make_shared<Storage>(type.bytes());
  std::memcpy(mine->data(), from, type.bytes());
  storage = std::move(mine);
  packed = std::make_shared<PackedForms>();
  file = nullptr;
  if (device) device->replace_host(storage->data());
}

void ParameterStore::set_limits(const ModelLimits& limits) {
  const uint64_t used = bytes_.used();
  bytes_ = limits.for_weights();
  bytes_.take(used, "the graph", "its weights");
}

void ParameterStore::keep_packed(std::shared_ptr<PackedFiles> kept) {
  kept_ = std::move(kept);
  for (auto& [name, stored] : tensors_)
    if (stored.file) stored.packed = std::make_shared<PackedForms>(kept_);
}

// Only for tensors that no program uses.
void ParameterStore::convert(const std::string& name, StoredTensor& given, const TensorType& type) {
  bytes_.take(type.bytes(), "'" + name + "'", type.str());
  bytes_.give_back(given.type.bytes());
  const HTensor now = cast(view_of(given.type, const_cast<void*>(given.data()), given.storage), type.dtype);
  given.type = type;
  given.storage = now.raw()->storage;
  given.file = nullptr;
  given.packed = std::make_shared<PackedForms>();
}

StoredTensor& ParameterStore::declare(const std::string& name, const TensorType& type, Role role, const hx_init& init,
                                      uint64_t seed) {
  StoredTensor* known = find(name);
  if (known && known->type != type && known->role == Role::moment && role == Role::moment) {
    bytes_.give_back(known->type.bytes());  // of a cycle that is over, whose optimizer had moments of another type
    tensors_.erase(name);
    known = nullptr;
  }
  if (known) {
    if (known->type != type && known->given && known->users.use_count() == 1 && is_convertible(known->type, type))
      convert(name, *known, type);
    if (known->type != type) throw other_type(name, known->type, type);
    known->given = false;
    return *known;
  }
  if (reserves_)
    return tensors_.emplace(name, StoredTensor{type, Storage::reserved(type.bytes()), role, init}).first->second;
  bytes_.take(type.bytes(), "'" + name + "'", type.str());
  auto storage = std::make_shared<Storage>(type.bytes());
  const auto expected = expected_.find(name);
  if (expected != expected_.end() && type_of(expected->second) == type) {
    std::memcpy(storage->data(), expected->second.bytes(), type.bytes());
    expected_.erase(expected);
  } else {
    initialise(storage->data(), type, init, seed, name);
  }
  return tensors_.emplace(name, StoredTensor{type, std::move(storage), role, init}).first->second;
}

StoredTensor& ParameterStore::adopt(const std::string& name, const HTensor& numbers,
                                    const std::shared_ptr<const MappedFile>& file, Role role, const hx_init& init) {
  const TensorType type = type_of(numbers);
  StoredTensor* known = find(name);
  if (known && known->type != type && known->given && known->users.use_count() == 1) {
    bytes_.give_back(known->type.bytes());
    tensors_.erase(name);
    known = nullptr;
  }
  if (known) {
    if (known->type != type && (known->given || !is_convertible(type, known->type)))
      throw other_type(name, type, known->type);
    assign(name, known->type == type ? numbers : cast(numbers, known->type.dtype));
    return *known;
  }
  bytes_.take(type.bytes(), "'" + name + "'", type.str());
  StoredTensor stored{type, nullptr, role, init};
  stored.given = true;
  if (stays_mapped(numbers, file)) {
    stored.storage = numbers.raw()->storage;
    stored.file = file;
    if (kept_) stored.packed = std::make_shared<PackedForms>(kept_);
  } else {
    stored.storage = std::make_shared<Storage>(type.bytes());
    std::memcpy(stored.storage->data(), numbers.bytes(), type.bytes());
  }
  return tensors_.emplace(name, std::move(stored)).first->second;
}

StoredTensor& ParameterStore::share(const std::string& name, const StoredTensor& fixed) {
  StoredTensor mine{fixed.type, fixed.storage, fixed.role, fixed.init, fixed.layout};
  mine.asked = mine.fixed = true;
  mine.file = fixed.file;
  mine.packed = fixed.packed;
  return tensors_.emplace(name, std::move(mine)).first->second;
}

// Tensors that change have no packed forms, so none are shared.
StoredTensor& ParameterStore::borrow(const std::string& name, const StoredTensor& of) {
  if (of.fixed) return share(name, of);
  of.data();  // fetches newer elements from the device
  StoredTensor mine{of.type, of.storage, of.role, of.init, of.layout};
  mine.asked = true;
  return tensors_.emplace(name, std::move(mine)).first->second;
}

std::vector<std::shared_ptr<const MappedFile>> ParameterStore::files() const {
  std::vector<std::shared_ptr<const MappedFile>> all;
  const auto add = [&](const std::shared_ptr<const MappedFile>& file) {
    if (file && std::find(all.begin(), all.end(), file) == all.end()) all.push_back(file);
  };
  for (const auto& [name, stored] : tensors_) {
    add(stored.file);
    for (const auto& file : stored.packed->files()) add(file);
  }
  return all;
}

StoredTensor* ParameterStore::find(const std::string& name) {
  const auto at = tensors_.find(name);
  return at == tensors_.end() ? nullptr : &at->second;
}

StoredTensor& ParameterStore::checked(const std::string& name, const TensorType& type) {
  StoredTensor* stored = find(name);
  if (!stored) {
    std::vector<std::string> known;
    for (const auto& [other, tensor] : tensors_) known.push_back(other);
    Error error = unknown_parameter(name);
    if (const auto n = nearest(name, known)) error.note("did you mean '" + *n + "'?");
    throw error;
  }
  if (stored->type_in_memory() != type)
    throw Error(ErrorKind::Weights, "parameter '" + name + "' is " + stored->type_in_memory().str() +
                                        ", the program expects " + type.str() +
                                        "; compile the program again for these weights");
  return *stored;
}

void ParameterStore::will_change(const std::string& name) {
  StoredTensor* stored = find(name);
  if (!stored) return;
  if (stored->is_shared()) stored->own();
  stored->fixed = false;
}

std::shared_ptr<const void> ParameterStore::user_of(const std::string& name) {
  const StoredTensor* stored = find(name);
  return stored && (stored->fixed || !stored->storage->writable()) ? stored->users : nullptr;
}

// Host programs change the memory without notifying the device mirror. Tensors that may change are copied out of shared
// memory first, because the address must stay valid when another program changes the tensor.
void* ParameterStore::parameter(const std::string& name, const TensorType& type) {
  StoredTensor& stored = checked(name, type);
  if (!stored.fixed && stored.is_shared()) stored.own();
  if (stored.device) stored.device->share();
  stored.on_host = true;
  return stored.storage->data();
}

std::shared_ptr<DeviceQueue> ParameterStore::queue_on(const ItemPtr& device) {
  if (queue_ && &queue_->device() == device.get()) return queue_;
  const auto queue = std::make_shared<DeviceQueue>(device);
  return queue_ ? queue : queue_ = queue;
}

// A second device has its own mirrors, which are synchronised with those of the first through the host.
std::shared_ptr<DeviceTensor> ParameterStore::parameter_on(const std::shared_ptr<DeviceQueue>& queue,
                                                           const std::string& name, const TensorType& type) {
  if (queue != queue_) return TensorBinding::parameter_on(queue, name, type);
  StoredTensor& stored = checked(name, type);
  if (!stored.fixed && stored.is_shared()) stored.own();
  if (!stored.device) {
    stored.device = std::make_shared<DeviceTensor>(queue, stored.storage->data(), type.bytes());
    if (stored.on_host) stored.device->share();
  }
  return stored.device;
}

Layout ParameterStore::layout(const std::string& name, const TensorType& type, Layout preferred) {
  StoredTensor* stored = find(name);
  if (!stored || stored->type != type || type.shape.rank() != 2 || is_stored(type.dtype)) return Layout::natural;
  if (!stored->asked && preferred == Layout::transposed && reserves_) {
    stored->layout = Layout::transposed;
  } else if (!stored->asked && preferred == Layout::transposed) {
    const Packing turning = transposing(type);
    // Only tensors that no program changes may share a packed file.
    const bool keeps = stored->fixed && stored->file;
    PackedForms of_no_file;
    const PackedForms::Request request{keeps ? stored->packed.get() : &of_no_file,
                                       {&turning, type, stored->data()},
                                       keeps ? stored->file.get() : nullptr};
    PackedForm turned = std::move(PackedForms::take({&request, 1}).front());
    stored->storage = std::move(turned.storage);
    stored->file = std::move(turned.file);
    stored->device = nullptr;
    stored->layout = Layout::transposed;
    stored->packed = std::make_shared<PackedForms>(stored->file ? kept_ : nullptr);
  }
  stored->asked = true;
  return stored->layout;
}

bool ParameterStore::is_constant(const std::string& name) {
  const StoredTensor* stored = find(name);
  return stored && stored->fixed && (!is_stored(stored->type.dtype) || (stored->file && keeps_stored_types()));
}

// Kernels can also multiply weights of stored types unpacked, so packing only pays off if packed forms are mapped from
// files that are kept. Forms that exceed the limit together would evict each other.
bool ParameterStore::keeps_stored_types() const {
  if (!kept_) return false;
  uint64_t bytes = 0;
  for (const auto& [name, stored] : tensors_)
    if (is_stored(stored.type.dtype)) bytes += stored.type.bytes();
  return bytes <= kept_->most_bytes() / 2;
}

// Holds the locks of all tensors, in the order of their addresses, so that no other thread packs the same forms.
std::vector<PackedForm> PackedForms::take(std::span<const Request> requests) {
  std::set<PackedForms*> tensors;
  for (const Request& request : requests) tensors.insert(request.of);
  std::vector<std::unique_lock<std::mutex>> locks;
  for (PackedForms* tensor : tensors) locks.emplace_back(tensor->mutex_);

  std::vector<PackedForm> forms(requests.size());
  // What is packed into files: by file, the requests.
  std::map<std::pair<PackedFiles*, const MappedFile*>, std::vector<size_t>> kept;
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto& [of, source, file] = requests[i];
    Known& known = of->known_[source.packing->name];
    if (auto ready = known.storage.lock()) {
      forms[i] = {ready, known.file.lock()};
    } else if (of->kept_ && file) {
      kept[{of->kept_.get(), file}].push_back(i);
    } else {
      forms[i].storage = std::make_shared<Storage>(source.packing->bytes);
      source.packing->pack_all(source.elements, forms[i].storage->data());
      known = {forms[i].storage, {}};
    }
  }
  for (const auto& [files, members] : kept) {
    std::vector<PackedSource> sources;
    for (const size_t i : members) sources.push_back(requests[i].source);
    std::vector<PackedForm> made = files.first->take(sources, *files.second);
    for (size_t i = 0; i < members.size(); ++i) {
      const Request& request = requests[members[i]];
      request.of->known_[request.source.packing->name] = {made[i].storage, made[i].file};
      forms[members[i]] = std::move(made[i]);
    }
  }
  return forms;
}

bool PackedForms::in_use() {
  const std::lock_guard lock(mutex_);
  return std::any_of(known_.begin(), known_.end(), [](const auto& form) { return !form.second.storage.expired(); });
}

std::vector<std::shared_ptr<const MappedFile>> PackedForms::files() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<const MappedFile>> all;
  for (const auto& [name, form] : known_)
    if (auto file = form.file.lock()) all.push_back(std::move(file));
  return all;
}

// Releases the file's pages of the tensors, because kernels read the packed forms instead. A form that several
// operands read is requested once.
std::vector<std::shared_ptr<const Storage>> ParameterStore::packed(std::span<const PackedParameter> parameters) {
  std::vector<std::shared_ptr<const Storage>> result(parameters.size());
  std::map<std::pair<PackedForms*, std::string>, size_t> known;
  std::vector<PackedForms::Request> requests;
  std::vector<size_t> request_of(parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, packing] = parameters[i];
    const StoredTensor* stored = find(name);
    if (!stored || !stored->fixed) return result;
    if (reserves_) {
      result[i] = Storage::reserved(packing.bytes);
      continue;
    }
    const auto [at, is_new] = known.emplace(std::pair(stored->packed.get(), packing.name), requests.size());
    request_of[i] = at->second;
    if (is_new)
      requests.push_back(
          {stored->packed.get(), {&packing, stored->type_in_memory(), stored->data()}, stored->file.get()});
  }
  if (reserves_) return result;
  const std::vector<PackedForm> forms = PackedForms::take(requests);
  for (size_t i = 0; i < parameters.size(); ++i) {
    result[i] = forms[request_of[i]].storage;
    const StoredTensor* stored = find(parameters[i].name);
    if (stored->file) stored->file->let_go(stored->storage->data(), stored->type.bytes());
  }
  return result;
}

void ParameterStore::copy(const std::string& name, void* to) const {
  const auto at = tensors_.find(name);
  if (at == tensors_.end()) throw unknown_parameter(name);
  const StoredTensor& stored = at->second;
  if (stored.layout == Layout::transposed)
    exchange(stored.data(), to, stored.type_in_memory());
  else
    std::memcpy(to, stored.data(), stored.type.bytes());
}

void ParameterStore::expect(std::map<std::string, HTensor> numbers) {
  expected_ = std::move(numbers);
  for (auto& [name, stored] : tensors_) {
    const auto at = expected_.find(name);
    if (at == expected_.end() || type_of(at->second) != stored.type) continue;
    assign(name, at->second);
    expected_.erase(at);
  }
}

HTensor ParameterStore::tensor(const std::string& name) const {
  const auto at = tensors_.find(name);
  if (at == tensors_.end()) throw unknown_parameter(name);
  const StoredTensor& stored = at->second;
  if (stored.layout == Layout::natural) return view_of(stored.type, const_cast<void*>(stored.data()), stored.storage);
  const auto natural = std::make_shared<Storage>(stored.type.bytes());
  exchange(stored.data(), natural->data(), stored.type_in_memory());
  return make_value(stored.type, natural);
}

void ParameterStore::assign(const std::string& name, const HTensor& numbers) {
  StoredTensor* stored = find(name);
  if (!stored) throw unknown_parameter(name);
  if (stored->type != type_of(numbers))
    throw Error(ErrorKind::Weights,
                "'" + name + "' is " + stored->type.str() + ", the numbers are " + type_of(numbers).str());
  if (stored->is_shared() && holds(*stored, numbers)) return;  // other stores still read it
  stored->of_model = false;
  if (stored->layout == Layout::transposed)
    exchange(numbers.bytes(), stored->change(), stored->type);
  else
    std::memcpy(stored->change(), numbers.bytes(), stored->type.bytes());
}

}  // namespace harmonics::engine
