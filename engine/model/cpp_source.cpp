#include "engine/model/cpp_source.hpp"

#include <cmath>
#include <cstring>

#include <fmt/core.h>

#include "engine/base/spelling.hpp"
#include "engine/program/op.hpp"

namespace harmonics::engine {

namespace {

std::string cpp_text(const std::string& text) {
  std::string all = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      all += std::string("\\") + c;
    else if (byte < 0x20 || byte >= 0x7f)
      all += fmt::format("\\{:03o}", byte);
    else
      all += c;
  }
  return all + "\"";
}

std::string cpp_number(double value) {
  if (std::isnan(value)) return "std::numeric_limits<double>::quiet_NaN()";
  if (std::isinf(value)) return fmt::format("{}std::numeric_limits<double>::infinity()", value < 0 ? "-" : "");
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

struct AttributeText {
  std::string operator()(int64_t value) const { return fmt::format("std::int64_t{{{}}}", value); }
  std::string operator()(double value) const { return cpp_number(value); }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(const std::string& value) const { return fmt::format("std::string({})", cpp_text(value)); }
  std::string operator()(const std::vector<int64_t>& values) const {
    std::vector<std::string> items;
    for (const int64_t value : values) items.push_back(std::to_string(value));
    return fmt::format("std::vector<std::int64_t>{{{}}}", comma_separated(items));
  }
  std::string operator()(const std::vector<double>& values) const {
    std::vector<std::string> items;
    for (const double value : values) items.push_back(cpp_number(value));
    return fmt::format("std::vector<double>{{{}}}", comma_separated(items));
  }
  std::string operator()(const std::vector<std::string>& values) const {
    std::vector<std::string> items;
    for (const std::string& value : values) items.push_back(cpp_text(value));
    return fmt::format("std::vector<std::string_view>{{{}}}", comma_separated(items));
  }
};

std::string attributes_text(const AttributeMap& attributes) {
  std::string all;
  for (const auto& [name, value] : attributes.entries())
    all += fmt::format(".set({}, {})", cpp_text(name), std::visit(AttributeText{}, value));
  return all.empty() ? "" : ", Attributes()" + all;
}

std::string type_text(const TensorType& type) {
  std::vector<std::string> dims;
  for (const int64_t dim : type.shape.vector()) dims.push_back(std::to_string(dim));
  return fmt::format("static_cast<DType>({}), Shape{{{}}}", static_cast<uint32_t>(type.dtype), comma_separated(dims));
}

constexpr const char* kHead = R"(#include <cstdint>
#include <cstdio>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <harmonics/harmonics.hpp>

namespace {

using harmonics::Attributes;
using harmonics::call;
using harmonics::DType;
using harmonics::HTensor;
using harmonics::Shape;

using Tensors = std::map<std::string, HTensor>;

HTensor given(const Tensors& inputs, const char* name, DType dtype, const Shape& shape) {
  const auto at = inputs.find(name);
  if (at == inputs.end()) throw std::runtime_error(std::string("there is no input '") + name + "'");
  if (at->second.dtype() != dtype || at->second.shape() != shape)
    throw std::runtime_error(std::string("the input '") + name + "' has another type");
  return at->second;
}

)";

constexpr const char* kMain = R"(
int main(int count, char** arguments) try {
  if (!harmonics_graphs()) return 1;  // a reference that links the library in any case
  std::map<std::string, std::string> files;
  for (int i = 1; i < count; ++i) {
    const std::string text = arguments[i];
    files[text.substr(0, text.find('='))] = text.substr(text.find('=') + 1);
  }
  Tensors inputs;
  for (const auto& [name, empty] : input_types()) {
    HTensor tensor(empty.dtype(), empty.shape());
    std::FILE* file = std::fopen(files[name].c_str(), "rb");
    if (!file) throw std::runtime_error("no file for the input '" + name + "': " + name + "=FILE");
    const std::size_t bytes = harmonics::tensor_bytes(tensor.dtype(), tensor.shape());
    const bool whole = std::fread(tensor.mutable_bytes(), 1, bytes, file) == bytes;
    std::fclose(file);
    if (!whole) throw std::runtime_error("the input '" + name + "' has " + std::to_string(bytes) + " bytes");
    inputs.emplace(name, std::move(tensor));
  }
  for (const auto& [name, tensor] : FUNCTION(inputs)) {
    if (files[name].empty()) continue;
    std::FILE* file = std::fopen(files[name].c_str(), "wb");
    if (!file) throw std::runtime_error("'" + files[name] + "' cannot be written");
    const std::size_t bytes = harmonics::tensor_bytes(tensor.dtype(), tensor.shape());
    const bool whole = std::fwrite(tensor.bytes(), 1, bytes, file) == bytes;
    if (std::fclose(file) != 0 || !whole) throw std::runtime_error("'" + files[name] + "' cannot be written");
  }
} catch (const std::exception& e) {
  std::fprintf(stderr, "error: %s\n", e.what());
  return 1;
}
)";

class CppWriter {
 public:
  CppWriter(const Program& program, const CppSource& source) : program_(program), source_(source) {}

  std::string run() {
    for (const Node& node : program_.nodes) write(node);
    std::string text = fmt::format("// {} of {}, written by harmonics export --cpp. Build and run:\n//\n",
                                   source_.function, source_.model);
    text += "//   c++ -std=c++17 FILE.cpp -lharmonics -o model\n//   ./model";
    for (const auto& [name, type] : inputs_) text += " " + name + "=FILE";
    for (const NamedValue& output : program_.outputs) text += " " + output.name + "=FILE";
    text += "\n//\n// Files hold dense little-endian numbers:";
    for (const auto& [name, type] : inputs_) text += fmt::format(" {} {};", name, type.str());
    for (const NamedValue& output : program_.outputs)
      text += fmt::format(" {} {};", output.name, program_.type(output.value).str());
    text.back() = '.';
    text += "\n" + std::string(kHead) + numbers_ + "}  // namespace\n\n";
    text += fmt::format("Tensors {}(const Tensors& inputs) {{\n{}  return {{", source_.function, body_);
    std::vector<std::string> results;
    for (const NamedValue& output : program_.outputs)
      results.push_back(fmt::format("{{{}, v{}}}", cpp_text(output.name), output.value));
    text += comma_separated(results) + "};\n}\n\n";
    text += "Tensors input_types() {\n  return {";
    std::vector<std::string> types;
    for (const auto& [name, type] : inputs_)
      types.push_back(fmt::format("{{{}, HTensor({})}}", cpp_text(name), type_text(type)));
    std::string main = kMain;
    main.replace(main.find("FUNCTION"), 8, source_.function);
    return text + comma_separated(types) + "};\n}\n" + main;
  }

 private:
  // Writes an array with the elements, and the tensor that is constructed from it on first use.
  void write_numbers(const Node& node, const HTensor& elements) {
    const TensorType type = type_of(elements);
    bytes_ += type.bytes();
    if (bytes_ > source_.most_bytes)
      throw Error(ErrorKind::Usage,
                  fmt::format("the parameters of '{}' have more than {} bytes, the maximum for a C++ file",
                              source_.model, source_.most_bytes),
                  {}, {"choose a smaller model, or smaller sizes with --set"});
    const ValueId v = node.outputs.at(0);
    std::vector<uint32_t> words((type.bytes() + 3) / 4 + (type.bytes() == 0), 0);
    std::memcpy(words.data(), elements.bytes(), type.bytes());
    numbers_ += fmt::format("const std::uint32_t n{}[] = {{  // {}", v,
                            node.callee.empty() ? "literal" : printable_name(node.callee));
    for (size_t i = 0; i < words.size(); ++i)
      numbers_ += fmt::format("{}{:#x}u,", i % 9 == 0 ? "\n    " : " ", words[i]);
    numbers_ += "\n};\n";
    body_ += fmt::format("  static const HTensor v{}({}, n{});\n", v, type_text(type), v);
  }

  [[noreturn]] void refuse(const char* what, const std::vector<std::string>& help = {}) const {
    throw Error(ErrorKind::Usage, fmt::format("'{}' has {}, which C++ source does not hold", source_.model, what), {},
                help);
  }

  static std::string printable_name(const std::string& name) {
    std::string text;
    for (const char c : name) text += c > 0x20 && c < 0x7f && c != '\\' ? c : '_';
    return text;
  }

  void write(const Node& node) {
    if (node.op == Op::input) {
      inputs_.emplace_back(node.callee, program_.type(node.outputs.at(0)));
      body_ += fmt::format("  const HTensor v{} = given(inputs, {}, {});\n", node.outputs.at(0), cpp_text(node.callee),
                           type_text(inputs_.back().second));
      return;
    }
    if (node.op == Op::parameter) return write_numbers(node, source_.value_of(node.callee));
    if (node.op == Op::literal) return write_numbers(node, node.literal);
    if (node.op == Op::host_call) refuse("a plugin's own code");
    if (node.op == Op::scan) refuse("a loop");
    if (node.op == Op::state || !program_.updates.empty())
      refuse("states that last from run to run", {"export an entry without caches: --entry forward"});
    std::vector<std::string> operands;
    for (const ValueId input : node.inputs) operands.push_back(fmt::format("v{}", input));
    const std::string name = node.op == Op::call ? node.callee : std::string(op_row(node.op).name);
    const std::string text =
        fmt::format("call({}, {{{}}}{})", cpp_text(name), comma_separated(operands), attributes_text(node.attributes));
    if (node.outputs.size() == 1) {
      body_ += fmt::format("  const HTensor v{} = {}.at(0);\n", node.outputs[0], text);
      return;
    }
    body_ += fmt::format("  const std::vector<HTensor> r{} = {};\n", node.outputs.at(0), text);
    for (size_t i = 0; i < node.outputs.size(); ++i)
      body_ += fmt::format("  const HTensor v{} = r{}.at({});\n", node.outputs[i], node.outputs[0], i);
  }

  const Program& program_;
  const CppSource& source_;
  std::vector<std::pair<std::string, TensorType>> inputs_;
  std::string numbers_, body_;
  uint64_t bytes_ = 0;
};

}  // namespace

std::string cpp_source(const Program& program, const CppSource& source) { return CppWriter(program, source).run(); }

}  // namespace harmonics::engine
