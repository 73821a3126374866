#include "producers/file/safetensors.hpp"

#include <simdjson.h>

#include <algorithm>

#include "producers/file/select.hpp"

namespace harmonics {
namespace {

constexpr size_t length_bytes = 8, longest_header = 100'000'000;

struct SafetensorsType {
  const char* name;
  DType dtype;
};
constexpr SafetensorsType safetensors_types[] = {
    {"BOOL", DType::Bool}, {"U8", DType::U8},     {"I8", DType::I8},   {"I16", DType::I16}, {"U16", DType::U16},
    {"F16", DType::F16},   {"BF16", DType::BF16}, {"I32", DType::I32}, {"U32", DType::U32}, {"F32", DType::F32},
    {"F64", DType::F64},   {"I64", DType::I64},   {"U64", DType::U64}};

struct Tensor {
  std::string name;
  DType dtype = DType::F32;
  std::vector<uint64_t> dims;
  uint64_t begin = 0, end = 0;  // inside the data
};

class Header {
 public:
  explicit Header(const FileBytes& file) : file_(file) {
    uint64_t length = 0;
    if (file.size() < length_bytes) refuse("it has " + std::to_string(file.size()) + " bytes, the least is 8");
    for (size_t i = length_bytes; i-- > 0;) length = length << 8 | file.data()[i];
    if (length > longest_header || length > file.size() - length_bytes)
      refuse("its header's length is " + std::to_string(length) + ", " + std::to_string(file.size() - length_bytes) +
             " bytes follow");
    data_ = length_bytes + length;
    const simdjson::padded_string text(reinterpret_cast<const char*>(file.data()) + length_bytes, length);
    simdjson::dom::parser parser;
    simdjson::dom::object root;
    const auto error = parser.parse(text).get(root);
    if (error) refuse(std::string("its header is no JSON object: ") + simdjson::error_message(error));
    for (const auto& [key, value] : root)
      if (key != "__metadata__") tensors_.push_back(tensor(std::string(key), value));
    check_gapless();
  }

  const std::vector<Tensor>& tensors() const { return tensors_; }
  size_t data() const { return data_; }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    refuse_file(file_.name(), "is no sound safetensors file: " + what, "get the file again");
  }

  static bool read_numbers(const simdjson::dom::element& value, const char* key, std::vector<uint64_t>& to) {
    simdjson::dom::array list;
    if (value[key].get(list)) return false;
    for (const auto element : list) {
      uint64_t n = 0;
      if (element.get(n)) return false;
      to.push_back(n);
    }
    return true;
  }

  Tensor tensor(const std::string& name, const simdjson::dom::element& value) const {
    Tensor t;
    t.name = name;
    std::string_view dtype;
    std::vector<uint64_t> offsets;
    if (value["dtype"].get(dtype) || !read_numbers(value, "shape", t.dims) ||
        !read_numbers(value, "data_offsets", offsets) || offsets.size() != 2)
      refuse("tensor '" + name + "' lacks its dtype, shape or data_offsets");
    const auto* type = std::find_if(std::begin(safetensors_types), std::end(safetensors_types),
                                    [&](const SafetensorsType& n) { return dtype == n.name; });
    if (type == std::end(safetensors_types))
      refuse("tensor '" + name + "' has the unknown dtype '" + std::string(dtype) + "'");
    t.dtype = type->dtype;
    t.begin = offsets[0];
    t.end = offsets[1];
    if (t.begin > t.end || t.end > file_.size() - data_)
      refuse("tensor '" + name + "' is at bytes " + std::to_string(t.begin) + " to " + std::to_string(t.end) + " of " +
             std::to_string(file_.size() - data_) + " bytes of data");
    if (array_bytes(file_.name(), t.dtype, t.dims) != t.end - t.begin)
      refuse("the shape of tensor '" + name + "' takes " + std::to_string(array_bytes(file_.name(), t.dtype, t.dims)) +
             " bytes, it has " + std::to_string(t.end - t.begin));
    return t;
  }

  void check_gapless() const {
    std::vector<const Tensor*> order;
    for (const Tensor& t : tensors_) order.push_back(&t);
    std::sort(order.begin(), order.end(), [](const Tensor* a, const Tensor* b) {
      return a->begin != b->begin ? a->begin < b->begin : a->end < b->end;
    });
    uint64_t at = 0;
    for (const Tensor* t : order) {
      if (t->begin != at)
        refuse("tensor '" + t->name + "' begins at byte " + std::to_string(t->begin) + " of the data, expected " +
               std::to_string(at));
      at = t->end;
    }
    if (at != file_.size() - data_) refuse(std::to_string(file_.size() - data_ - at) + " bytes follow its last tensor");
  }

  const FileBytes& file_;
  size_t data_ = 0;
  std::vector<Tensor> tensors_;
};

}  // namespace

ArrayLayout read_safetensors_array(const FileBytesPtr& file, const std::optional<std::string>& name) {
  const Header header(*file);
  std::vector<std::string> names;
  for (const Tensor& t : header.tensors()) names.push_back(t.name);
  const Tensor& t = header.tensors()[selected(file->name(), "tensor", names, name)];
  ArrayLayout layout;
  layout.bytes = file;
  layout.offset = header.data() + t.begin;
  layout.dtype = t.dtype;
  set_axes(layout, t.dims, "tensor '" + t.name + "'");
  return layout;
}

}  // namespace harmonics
