#include "dsl/spec/reader.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/base/read_file.hpp"
#include "engine/base/source_text.hpp"
#include "engine/base/spelling.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine::specs {

namespace json = boost::json;

std::string text_of(const Value& value) {
  if (const auto* whole = std::get_if<int64_t>(&value)) return std::to_string(*whole);
  if (const auto* real = std::get_if<double>(&value)) return fmt::format("{}", *real);
  if (const auto* truth = std::get_if<bool>(&value)) return *truth ? "true" : "false";
  return std::get<std::string>(value);
}

namespace {

constexpr size_t kLargestSpec = size_t{1} << 20;
constexpr size_t kDeepestJson = 32;
constexpr size_t kMostEntries = 100'000;  // of one object or list

// A value of the JSON and where it stands.
class Node {
 public:
  Node(const std::string& path, std::string place, const json::value& value)
      : path_(&path), place_(std::move(place)), value_(&value) {}

  const std::string& place() const { return place_; }
  bool is_text() const { return value_->is_string(); }
  bool is_list() const { return value_->is_array(); }
  std::string full_place() const { return fmt::format("'{}': {}", *path_, place_.empty() ? "the spec" : place_); }

  [[noreturn]] void fail(const std::string& what, const std::string& remedy = "") const {
    Error error(ErrorKind::Syntax, full_place() + " " + what);
    if (!remedy.empty()) error.note(remedy);
    throw error;
  }
  [[noreturn]] void expected(const std::string& wanted) const {
    fail(fmt::format("is {}; it must be {}", what(), wanted));
  }

  std::string text(const char* wanted = "a text") const {
    if (!value_->is_string()) expected(wanted);
    std::string text(value_->as_string());
    if (text.empty()) fail("is empty");
    return text;
  }
  bool truth() const {
    if (!value_->is_bool()) expected("true or false");
    return value_->as_bool();
  }
  int64_t whole() const {
    if (!value_->is_int64()) expected("a whole number");
    return value_->as_int64();
  }
  Value literal() const {
    if (value_->is_int64()) return value_->as_int64();
    if (value_->is_double() && std::isfinite(value_->as_double())) return value_->as_double();
    if (value_->is_bool()) return value_->as_bool();
    if (!value_->is_string()) expected("a number, a text, true or false");
    return std::string(value_->as_string());
  }
  Expression expression() const {
    if (value_->is_int64()) return Expression(value_->as_int64(), full_place());
    if (!value_->is_string()) expected("a whole number or an expression");
    return Expression(std::string(value_->as_string()), full_place());
  }
  std::vector<Node> items() const {
    if (!value_->is_array()) expected("a list");
    const json::array& all = value_->as_array();
    std::vector<Node> nodes;
    for (size_t i = 0; i < all.size(); ++i) nodes.emplace_back(*path_, fmt::format("{}[{}]", place_, i), all[i]);
    return nodes;
  }
  std::vector<std::string> texts() const {
    if (value_->is_string()) return {text()};
    std::vector<std::string> all;
    if (!value_->is_array()) expected("a text or a list of texts");
    for (const Node& item : items()) all.push_back(item.text());
    return all;
  }
  std::vector<std::pair<std::string, Node>> fields() const {
    if (!value_->is_object()) expected("an object");
    std::vector<std::pair<std::string, Node>> all;
    for (const auto& [key, value] : value_->as_object()) {
      const std::string name(key);
      if (name.empty()) fail("has an entry without a name");
      all.emplace_back(name, Node(*path_, place_.empty() ? name : place_ + "." + name, value));
    }
    if (all.size() > kMostEntries) fail(fmt::format("has {} entries; the limit is {}", all.size(), kMostEntries));
    return all;
  }

 private:
  std::string what() const {
    switch (value_->kind()) {
      case json::kind::null:
        return "null";
      case json::kind::bool_:
        return value_->as_bool() ? "true" : "false";
      case json::kind::string:
        return "the text " + shown_name(std::string(value_->as_string()));
      case json::kind::array:
        return "a list";
      case json::kind::object:
        return "an object";
      default:
        return printable(json::serialize(*value_), 40);
    }
  }

  const std::string* path_;
  std::string place_;
  const json::value* value_;
};

// The entries of an object with known names; what is not asked for is an error.
class Fields {
 public:
  explicit Fields(const Node& node) : node_(node) {
    for (auto& [name, field] : node.fields()) fields_.emplace(name, field);
  }
  const Node* find(const char* name) {
    known_.emplace_back(name);
    const auto at = fields_.find(name);
    return at == fields_.end() ? nullptr : &at->second;
  }
  const Node& need(const char* name) {
    if (const Node* found = find(name)) return *found;
    node_.fail(fmt::format("has no '{}'", name));
  }
  void finish() const {
    for (const auto& [name, field] : fields_) {
      if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
      const std::string meant = did_you_mean(name, known_);
      node_.fail(fmt::format("has the unknown entry {}", shown_name(name)),
                 meant.empty() ? "known entries: " + comma_separated(known_) : meant);
    }
  }

 private:
  const Node& node_;
  std::map<std::string, Node> fields_;
  std::vector<std::string> known_;
};

bool is_variable(const std::string& name) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return is_letter(name[0]) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

void expect_variable(const Node& node, const std::string& name) {
  if (!is_variable(name))
    node.fail(fmt::format("gives a variable the name {}", shown_name(name)),
              "a variable's name has letters, digits and _, and does not begin with a digit");
}

std::optional<Repeat> repeat_of(Fields& fields) {
  const Node* node = fields.find("repeat");
  if (!node) return {};
  Fields inside(*node);
  Repeat repeat{inside.need("count").expression(), inside.need("var").text()};
  expect_variable(*node, repeat.variable);
  inside.finish();
  return repeat;
}

std::vector<Expression> dims_of(const Node& node) {
  std::vector<Expression> dims;
  for (const Node& item : node.items()) dims.push_back(item.expression());
  if (dims.empty() || dims.size() > 8) node.fail(fmt::format("has {} dimensions; a tensor has 1 to 8", dims.size()));
  return dims;
}

class SpecReader {
 public:
  SpecReader(const std::string& path, const json::value& root) : root_(path, "", root) { spec_.path = path; }

  Spec read() {
    Fields top(root_);
    spec_.name = top.need("name").text();
    if (const Node* node = top.find("architectures")) spec_.architectures = node->texts();
    top.find("comment");
    top.find("hf_mapping");  // of plugins/huggingface
    const Node& architecture = top.need("architecture");
    top.finish();
    Fields parts(architecture);
    if (const Node* node = parts.find("metadata_keys")) metadata_keys(*node);
    if (const Node* node = parts.find("prepare")) prepare(*node);
    for (const auto& [name, names] : parts.need("tensor_names").fields()) spec_.tensor_names[name] = names.texts();
    for (const Node& node : parts.need("weight_bindings").items()) spec_.weight_bindings.push_back(binding(node));
    spec_.forward = steps(parts.need("forward"), 0);
    for (const auto& [result, value] : parts.need("outputs").fields()) spec_.outputs[result] = value.text();
    parts.finish();
    return std::move(spec_);
  }

 private:
  void metadata_keys(const Node& node) {
    Fields fields(node);
    if (const Node* keys = fields.find("keys"))
      for (const auto& [variable, candidates] : keys->fields()) {
        expect_variable(*keys, variable);
        spec_.keys[variable] = candidates.texts();
      }
    if (const Node* defaults = fields.find("defaults")) values(*defaults, spec_.defaults);
    if (const Node* expected = fields.find("expected"))
      for (const auto& [key, value] : expected->fields()) spec_.expected[key] = value.literal();
    if (const Node* ignored = fields.find("ignored")) spec_.ignored = ignored->texts();
    fields.finish();
  }
  static void values(const Node& node, std::map<std::string, Value>& to) {
    for (const auto& [variable, value] : node.fields()) {
      expect_variable(node, variable);
      to[variable] = value.literal();
    }
  }
  void prepare(const Node& node) {
    Fields fields(node);
    if (const Node* globals = fields.find("globals")) values(*globals, spec_.globals);
    if (const Node* derived = fields.find("derived_globals"))
      for (const auto& [variable, value] : derived->fields()) {
        expect_variable(*derived, variable);
        spec_.derived_globals.emplace(variable, value.expression());
      }
    if (const Node* dynamics = fields.find("dynamics")) spec_.dynamics = dynamics->texts();
    if (const Node* checks = fields.find("checks"))
      for (const Node& check : checks->items()) {
        Fields inside(check);
        spec_.checks.push_back({inside.need("zero").expression(), inside.need("else").text()});
        inside.finish();
      }
    if (const Node* tensors = fields.find("tensors"))
      for (const Node& tensor : tensors->items()) spec_.tensors.push_back(tensor_of(tensor));
    if (const Node* ropes = fields.find("rope"))
      for (const auto& [name, rope] : ropes->fields()) spec_.ropes.emplace(name, rope_of(rope));
    fields.finish();
  }
  static Tensor tensor_of(const Node& node) {
    Fields fields(node);
    Tensor tensor;
    tensor.name = fields.need("name").text();
    tensor.place = node.place();
    tensor.role = fields.need("role").text();
    if (tensor.role != "cache" && tensor.role != "intermediate")
      node.fail(fmt::format("has the role {}", shown_name(tensor.role)), "roles: cache, intermediate");
    tensor.repeat = repeat_of(fields);
    tensor.dims = dims_of(fields.need("dims"));
    if (const Node* axis = fields.find("grow_with_kv")) {
      const int64_t number = axis->whole();
      if (tensor.role != "cache") axis->fail("is given for a tensor that is no cache");
      if (number < 1 || number >= static_cast<int64_t>(tensor.dims.size()))
        axis->fail(fmt::format("is {}; it must be an axis from 1 to {}", number, tensor.dims.size() - 1));
      tensor.grow_with_kv = static_cast<uint32_t>(number);
    }
    if (tensor.role == "cache" && !tensor.grow_with_kv)
      node.fail("is a cache without 'grow_with_kv', the axis that grows with the sequence");
    fields.finish();
    return tensor;
  }
  static Rope rope_of(const Node& node) {
    Rope rope{node.place(), {}};
    for (const auto& [name, value] : node.fields()) rope.fields[name] = value.literal();
    return rope;
  }
  static WeightBinding binding(const Node& node) {
    Fields fields(node);
    WeightBinding binding;
    binding.tensor = fields.need("tensor").text();
    binding.place = node.place();
    binding.repeat = repeat_of(fields);
    if (const Node* layout = fields.find("layout")) {
      const std::string name = layout->text();
      if (name == "canonical")
        binding.layout = Layout::canonical;
      else if (name == "experts")
        binding.layout = Layout::experts;
      else if (name != "row_major")
        layout->fail(fmt::format("is {}", shown_name(name)), "layouts: row_major, canonical, experts");
    }
    const Node *dims = fields.find("dims"), *k = fields.find("expected_k"), *n = fields.find("expected_n");
    if (binding.layout == Layout::canonical) {
      if (!k || !n) node.fail("is canonical and lacks 'expected_k' and 'expected_n'");
      if (dims) node.fail("is canonical: 'expected_k' and 'expected_n' are its dimensions");
      binding.expected_k = k->expression();
      binding.expected_n = n->expression();
      binding.dims = {*binding.expected_k, *binding.expected_n};
    } else {
      if (k || n) node.fail("has 'expected_k' or 'expected_n', which are of the layout canonical");
      if (!dims) node.fail("has no 'dims'");
      binding.dims = dims_of(*dims);
      if (binding.layout == Layout::experts && binding.dims.size() != 3)
        dims->fail(fmt::format("has {} dimensions; experts have 3", binding.dims.size()));
    }
    if (const Node* zeros = fields.find("fallback_zero_len")) binding.fallback_zero_len = zeros->expression();
    if (const Node* optional = fields.find("optional")) binding.optional = optional->truth();
    fields.finish();
    return binding;
  }
  static std::vector<Step> steps(const Node& node, int depth) {
    if (depth > 4) node.fail("is a loop in more than four others");
    std::vector<Step> all;
    for (const Node& item : node.items()) {
      Step step;
      step.place = item.full_place();
      for (const auto& [name, field] : item.fields()) {
        if (name == "op")
          step.op = field.text();
        else if (name == "steps")
          step.steps = steps(field, depth + 1);
        else if (field.is_list())
          step.lists[name] = dims_of(field);
        else
          step.fields[name] = field.literal();
      }
      if (step.op.empty()) item.fail("has no 'op'");
      all.push_back(std::move(step));
    }
    if (all.empty()) node.fail("has no steps");
    return all;
  }

  Node root_;
  Spec spec_;
};

}  // namespace

Spec parse_spec(const std::string& path, std::string_view text) {
  if (text.size() > kLargestSpec)
    throw Error(ErrorKind::Syntax,
                fmt::format("'{}' holds {} bytes; a model spec has at most {}", path, text.size(), kLargestSpec));
  json::parse_options options;
  options.max_depth = kDeepestJson;
  json::stream_parser parser(json::storage_ptr(), options);
  json::error_code failure;
  const size_t read = parser.write_some(text.data(), text.size(), failure);
  if (!failure && parser.done()) {
    const size_t next = text.find_first_not_of(" \t\r\n", read);
    if (next != std::string_view::npos) failure = json::error::extra_data;
  } else if (!failure) {
    parser.finish(failure);
  }
  if (failure) {
    const Span span = SourceText(path, std::string(text)).span(std::min(read, text.size()), 1);
    throw Error(ErrorKind::Syntax,
                fmt::format("'{}' is no JSON: line {}, column {}: {}", path, span.line, span.column, failure.message()),
                {}, {"a spec is JSON; a .ndsl file is given as the model itself"});
  }
  const json::value root = parser.release();
  return SpecReader(path, root).read();
}

Spec read_spec(const std::string& path) { return parse_spec(path, read_file(path, kLargestSpec)); }

}  // namespace harmonics::engine::specs
