#include "exporter.hpp"

#include <algorithm>
#include <limits>

#include <harmonics/element_type.hpp>

#include "formats/gguf.hpp"
#include "formats/utf8.hpp"

namespace gguf {

using namespace harmonics;

namespace {

constexpr size_t kMostAxes = 4;

[[noreturn]] void refuse(const std::string& what, const std::string& remedy) {
  throw Error(ErrorKind::Weights, what).note(remedy);
}

template <typename T>
bool all_fit(const std::vector<int64_t>& values) {
  return std::all_of(values.begin(), values.end(), [](int64_t v) {
    return v >= std::numeric_limits<T>::min() && v <= static_cast<int64_t>(std::numeric_limits<T>::max());
  });
}

// Writes the kinds that readers of GGUF files expect: 32-bit unsigned integers and floats if the value fits.
struct ToMetadata {
  GgufWriter& writer;
  const std::string& key;

  void operator()(int64_t v) const {
    const GgufKind kind = all_fit<uint32_t>({v})  ? GgufKind::U32
                          : all_fit<int32_t>({v}) ? GgufKind::I32
                                                  : GgufKind::I64;
    writer.set(key, kind, v);
  }
  void operator()(double v) const {
    const auto narrow = static_cast<float>(v);
    const bool exact = static_cast<double>(narrow) == v || v != v;
    writer.set(key, exact ? GgufKind::F32 : GgufKind::F64, v);
  }
  void operator()(bool v) const { writer.set_bool(key, v); }
  void operator()(const std::string& v) const { writer.set_text(key, v); }
  void operator()(const std::vector<int64_t>& v) const {
    if (!all_fit<int32_t>(v))
      refuse("the metadata " + shown_name(key) + " is a list of integers beyond 32 bits", "leave the key out");
    writer.set(key, std::vector<int32_t>(v.begin(), v.end()));
  }
  void operator()(const std::vector<double>& v) const { writer.set(key, std::vector<float>(v.begin(), v.end())); }
  void operator()(const std::vector<std::string_view>& v) const {
    writer.set(key, std::vector<std::string>(v.begin(), v.end()));
  }
};

// Returns whether a key describes the layout of a file, which the writer sets itself.
bool is_layout(std::string_view key) { return key == "general.alignment" || key.starts_with("split."); }

}  // namespace

void Exporter::write(const ModelToWrite& model, const Arguments&, const ExportSink& sink) const {
  GgufWriter writer;
  for (const auto& [key, value] : model.metadata)
    if (!is_layout(key)) std::visit(ToMetadata{writer, key}, value);
  std::vector<uint64_t> begins;
  for (const TensorToWrite& t : model.tensors) {
    const std::string name = shown_name(t.name);
    const GgufType* type = find_gguf_type(t.dtype);
    if (!type)
      refuse("the tensor " + name + " is " + std::string(element_type(t.dtype).name) + ", which GGUF files cannot hold",
             "convert it to f32 first");
    const std::vector<int64_t>& dims = t.shape.vector();
    if (dims.size() > kMostAxes)
      refuse("the tensor " + name + " has " + std::to_string(dims.size()) + " axes; GGUF files hold up to 4",
             "reshape it first");
    if (t.bytes.empty())
      refuse("the tensor " + name + " has no elements, which GGUF files cannot hold", "leave it out");
    begins.push_back(writer.add(t.name, *type, std::vector<uint64_t>(dims.begin(), dims.end())));
  }
  sink.write(writer.header());
  uint64_t at = 0;
  for (size_t i = 0; i < model.tensors.size(); ++i) {
    sink.write(std::string(begins[i] - at, '\0'));
    sink.write(model.tensors[i].bytes);
    at = begins[i] + model.tensors[i].bytes.size();
  }
}

}  // namespace gguf
