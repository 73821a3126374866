#include "dsl/spec/reader.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

#include <boost/json.hpp>
#include <fmt/core.h>

#include <harmonics/quantity.hpp>

#include "dsl/document/document.hpp"
#include "engine/base/read_file.hpp"
#include "engine/base/source_text.hpp"
#include "engine/base/spelling.hpp"
#include "formats/exact_json.hpp"
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
constexpr size_t kMostErrors = 20;

// Thrown for a missing value whose name an unknown entry resembles; only the unknown entry is reported.
struct Doubted {};

// The errors of one spec. Parts with errors are omitted from the result.
class Report {
 public:
  explicit Report(const std::string& path) : path_(path) {}
  const std::string& path() const { return path_; }
  const std::vector<Error>& errors() const { return errors_; }

  void add(const Error& e) {
    if (errors_.size() < kMostErrors) errors_.push_back(e);
  }
  template <typename Read>
  void attempt(Read read) {
    try {
      read();
    } catch (const Error& e) {
      add(e);
    } catch (const Doubted&) {
    }
  }

 private:
  std::string path_;
  std::vector<Error> errors_;
};

// A JSON value and its location. `located`: the same value with its line; null: unknown.
class Node {
 public:
  Node(Report& report, std::string place, const json::value& value, const document::Node* located)
      : report_(&report), place_(std::move(place)), value_(&value), located_(located) {}

  const std::string& place() const { return place_; }
  bool is_text() const { return value_->is_string(); }
  bool is_list() const { return value_->is_array(); }
  std::string full_place() const {
    return fmt::format("'{}': {}", report_->path(), place_.empty() ? "the spec" : place_);
  }
  Report& report() const { return *report_; }

  Error error(const std::string& what, const std::string& remedy = "") const {
    Error error(ErrorKind::Syntax, full_place() + " " + what, located_ ? located_->span : Span());
    if (!remedy.empty()) error.note(remedy);
    return error;
  }
  [[noreturn]] void fail(const std::string& what, const std::string& remedy = "") const { throw error(what, remedy); }
  [[noreturn]] void expected(const std::string& wanted) const {
    fail(fmt::format("is {}; it must be {}", what(), wanted));
  }

  std::string text(const char* wanted = "a string") const {
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
    if (!value_->is_string()) expected("a number, a string, true or false");
    return std::string(value_->as_string());
  }
  Expression expression() const {
    if (value_->is_int64()) return Expression(value_->as_int64(), full_place());
    if (!value_->is_string()) expected("a whole number or an expression");
    try {
      return Expression(std::string(value_->as_string()), full_place());
    } catch (const Error& e) {
      throw Error(e.kind(), e.what(), located_ ? located_->span : Span(), e.notes());
    }
  }
  std::vector<Node> items() const {
    if (!value_->is_array()) expected("a list");
    const json::array& all = value_->as_array();
    std::vector<Node> nodes;
    for (size_t i = 0; i < all.size(); ++i)
      nodes.emplace_back(*report_, fmt::format("{}[{}]", place_, i), all[i],
                         located_ && i < located_->items.size() ? &located_->items[i] : nullptr);
    return nodes;
  }
  std::vector<std::string> texts() const {
    if (value_->is_string()) return {text()};
    std::vector<std::string> all;
    if (!value_->is_array()) expected("a string or a list of strings");
    for (const Node& item : items()) all.push_back(item.text());
    return all;
  }
  std::vector<std::pair<std::string, Node>> fields() const {
    if (!value_->is_object()) expected("an object");
    std::vector<std::pair<std::string, Node>> all;
    for (const auto& [key, value] : value_->as_object()) {
      const std::string name(key);
      if (name.empty()) fail("has an entry without a name");
      all.emplace_back(name, Node(*report_, place_.empty() ? name : place_ + "." + name, value,
                                  located_ ? located_->find(name) : nullptr));
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
        return "the string " + shown_name(std::string(value_->as_string()));
      case json::kind::array:
        return "a list";
      case json::kind::object:
        return "an object";
      default:
        return printable(json::serialize(*value_), 40);
    }
  }

  Report* report_;
  std::string place_;
  const json::value* value_;
  const document::Node* located_;
};

// The entries of an object. Unknown names are errors.
class Fields {
 public:
  Fields(const Node& node, const std::vector<std::string>& known) : node_(node) {
    for (auto& [name, field] : node.fields()) {
      if (std::find(known.begin(), known.end(), name) != known.end()) {
        fields_.emplace(name, field);
        continue;
      }
      const std::vector<std::string> meant = meant_by(name, known);
      doubted_.insert(meant.begin(), meant.end());
      node.report().add(
          node.error(fmt::format("has the unknown entry {}", shown_name(name)),
                     meant.empty() ? "known entries: " + comma_separated(known) : did_you_mean(name, known)));
    }
  }
  const Node* find(const char* name) const {
    const auto at = fields_.find(name);
    return at == fields_.end() ? nullptr : &at->second;
  }
  const Node& need(const char* name) const {
    if (const Node* found = find(name)) return *found;
    if (doubted_.count(name)) throw Doubted();
    node_.fail(fmt::format("has no '{}'", name));
  }
  // Returns whether an unknown entry may be a misspelt `name`.
  bool doubts(const char* name) const { return doubted_.count(name) != 0; }

 private:
  const Node& node_;
  std::map<std::string, Node> fields_;
  std::set<std::string> doubted_;
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

std::optional<Repeat> repeat_of(const Fields& fields) {
  const Node* node = fields.find("repeat");
  if (!node) return {};
  const Fields inside(*node, {"count", "var"});
  Repeat repeat{inside.need("count").expression(), inside.need("var").text()};
  expect_variable(*node, repeat.variable);
  return repeat;
}

std::vector<Expression> dims_of(const Node& node) {
  std::vector<Expression> dims;
  const std::vector<Node> items = node.items();
  if (items.empty() || items.size() > 8) node.fail(fmt::format("has {} dimensions; a tensor has 1 to 8", items.size()));
  for (const Node& item : items) {
    dims.emplace_back(int64_t{1}, "");
    node.report().attempt([&] { dims.back() = item.expression(); });
  }
  return dims;
}

class SpecReader {
 public:
  SpecReader(const std::string& path, const json::value& root, const document::Node* located)
      : report_(path), root_(report_, "", root, located) {
    spec_.path = path;
  }

  // Returns the spec without the parts that have errors.
  Spec read() {
    report_.attempt([&] { whole(); });
    return std::move(spec_);
  }
  const std::vector<Error>& errors() const { return report_.errors(); }

 private:
  // Calls `take` with each entry of an object or item of a list. Continues after an entry with an error.
  template <typename Take>
  void each_field(const Node& node, Take take) {
    for (const auto& [name, value] : node.fields())
      report_.attempt([&, &name = name, &value = value] { take(name, value); });
  }
  template <typename Take>
  void each_item(const Node& node, Take take) {
    for (const Node& item : node.items()) report_.attempt([&] { take(item); });
  }

  void whole() {
    const Fields top(root_, {"name", "architectures", "with_experts", "comment", "hf_mapping", "architecture"});
    report_.attempt([&] { spec_.name = top.need("name").text(); });
    if (const Node* node = top.find("architectures")) report_.attempt([&] { spec_.architectures = node->texts(); });
    if (const Node* node = top.find("with_experts")) report_.attempt([&] { spec_.with_experts = node->truth(); });
    if (const Node* node = top.find("hf_mapping")) report_.attempt([&] { folder_modules(*node); });
    const Node& architecture = top.need("architecture");
    const Fields parts(architecture,
                       {"metadata_keys", "prepare", "tensor_names", "weight_bindings", "forward", "outputs"});
    if (const Node* node = parts.find("metadata_keys")) report_.attempt([&] { metadata_keys(*node); });
    if (const Node* node = parts.find("prepare")) report_.attempt([&] { prepare(*node); });
    report_.attempt([&] {
      each_field(parts.need("tensor_names"),
                 [&](const std::string& name, const Node& names) { spec_.tensor_names[name] = names.texts(); });
    });
    report_.attempt([&] {
      each_item(parts.need("weight_bindings"),
                [&](const Node& node) { spec_.weight_bindings.push_back(binding(node)); });
    });
    report_.attempt([&] { spec_.forward = steps(parts.need("forward"), 0); });
    report_.attempt([&] {
      each_field(parts.need("outputs"),
                 [&](const std::string& result, const Node& value) { spec_.outputs[result] = value.text(); });
    });
  }

  // Takes the names of matrices from hf_mapping, which plugins/huggingface reads in full.
  void folder_modules(const Node& node) {
    constexpr std::string_view kWeight = ".weight";
    for (const auto& [name, rows] : node.fields()) {
      if (name == "renamed") spec_.renames_modules = rows.truth();
      if (name != "tensors") continue;
      each_item(rows, [&](const Node& row) {
        specs::FolderModule module;
        bool whole = true;
        for (const auto& [field, value] : row.fields()) {
          if (field == "name") module.tensor = value.text();
          if (field == "hf") module.name = value.text();
          if (field == "by_head") module.by_head = value.text();
          module.has_adjacent_pairs |= field == "permute";
          whole &= field != "half";
        }
        if (!whole || !module.tensor.ends_with(kWeight) || !module.name.ends_with(kWeight)) return;
        module.name.resize(module.name.size() - kWeight.size());
        spec_.folder_modules.push_back(std::move(module));
      });
    }
  }

  void metadata_keys(const Node& node) {
    const Fields fields(node, {"keys", "defaults", "expected", "ignored"});
    if (const Node* keys = fields.find("keys"))
      report_.attempt([&] {
        each_field(*keys, [&](const std::string& variable, const Node& candidates) {
          expect_variable(*keys, variable);
          spec_.keys[variable] = candidates.texts();
        });
      });
    if (const Node* defaults = fields.find("defaults")) report_.attempt([&] { values(*defaults, spec_.defaults); });
    if (const Node* expected = fields.find("expected"))
      report_.attempt([&] {
        each_field(*expected,
                   [&](const std::string& key, const Node& value) { spec_.expected[key] = value.literal(); });
      });
    if (const Node* ignored = fields.find("ignored")) report_.attempt([&] { spec_.ignored = ignored->texts(); });
  }
  void values(const Node& node, std::map<std::string, Value>& to) {
    each_field(node, [&](const std::string& variable, const Node& value) {
      expect_variable(node, variable);
      to[variable] = value.literal();
    });
  }
  void prepare(const Node& node) {
    const Fields fields(node, {"globals", "derived_globals", "dynamics", "checks", "tensors", "rope"});
    if (const Node* globals = fields.find("globals")) report_.attempt([&] { values(*globals, spec_.globals); });
    if (const Node* derived = fields.find("derived_globals"))
      report_.attempt([&] {
        each_field(*derived, [&](const std::string& variable, const Node& value) {
          expect_variable(*derived, variable);
          spec_.derived_globals.emplace(variable, value.expression());
        });
      });
    if (const Node* dynamics = fields.find("dynamics")) report_.attempt([&] { spec_.dynamics = dynamics->texts(); });
    if (const Node* checks = fields.find("checks"))
      report_.attempt([&] {
        each_item(*checks, [&](const Node& check) {
          const Fields inside(check, {"zero", "else"});
          spec_.checks.push_back({inside.need("zero").expression(), inside.need("else").text()});
        });
      });
    if (const Node* tensors = fields.find("tensors"))
      report_.attempt(
          [&] { each_item(*tensors, [&](const Node& tensor) { spec_.tensors.push_back(tensor_of(tensor)); }); });
    if (const Node* ropes = fields.find("rope"))
      report_.attempt([&] {
        each_field(*ropes,
                   [&](const std::string& name, const Node& rope) { spec_.ropes.emplace(name, rope_of(rope)); });
      });
  }
  static Tensor tensor_of(const Node& node) {
    const Fields fields(node, {"name", "role", "repeat", "dims", "grow_with_kv"});
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
      if (tensor.role != "cache") axis->fail("is given for a tensor that is not a cache");
      if (number < 1 || number >= static_cast<int64_t>(tensor.dims.size()))
        axis->fail(fmt::format("is {}; it must be an axis from 1 to {}", number, tensor.dims.size() - 1));
      tensor.grow_with_kv = static_cast<uint32_t>(number);
    }
    if (tensor.role == "cache" && !tensor.grow_with_kv && !fields.doubts("grow_with_kv"))
      node.fail("is a cache without 'grow_with_kv', the axis that grows with the sequence");
    return tensor;
  }
  static Rope rope_of(const Node& node) {
    Rope rope{node.place(), {}};
    for (const auto& [name, value] : node.fields()) rope.fields[name] = value.literal();
    return rope;
  }
  static WeightBinding binding(const Node& node) {
    const Fields fields(
        node, {"tensor", "repeat", "layout", "dims", "expected_k", "expected_n", "fallback_zero_len", "optional"});
    WeightBinding binding;
    node.report().attempt([&] { binding.tensor = fields.need("tensor").text(); });
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
      if (fields.doubts("expected_k") || fields.doubts("expected_n")) throw Doubted();
      if (!k || !n) node.fail("is canonical and lacks 'expected_k' and 'expected_n'");
      if (dims) node.fail("is canonical: 'expected_k' and 'expected_n' are its dimensions");
      binding.expected_k = k->expression();
      binding.expected_n = n->expression();
      binding.dims = {*binding.expected_k, *binding.expected_n};
    } else {
      if (k || n) node.fail("has 'expected_k' or 'expected_n', which are of the layout canonical");
      if (!dims && fields.doubts("dims")) throw Doubted();
      if (!dims) node.fail("has no 'dims'");
      binding.dims = dims_of(*dims);
      if (binding.layout == Layout::experts && binding.dims.size() != 3)
        dims->fail(fmt::format("has {}; experts have 3", quantity(binding.dims.size(), "dimension")));
    }
    if (const Node* zeros = fields.find("fallback_zero_len")) binding.fallback_zero_len = zeros->expression();
    if (const Node* optional = fields.find("optional")) binding.optional = optional->truth();
    return binding;
  }
  std::vector<Step> steps(const Node& node, int depth) {
    if (depth > 4) node.fail("is a loop in more than four others");
    std::vector<Step> all;
    each_item(node, [&](const Node& item) {
      Step step;
      step.place = item.full_place();
      each_field(item, [&](const std::string& name, const Node& field) {
        if (name == "op")
          step.op = field.text();
        else if (name == "steps")
          step.steps = steps(field, depth + 1);
        else if (field.is_list())
          step.lists[name] = dims_of(field);
        else
          step.fields[name] = field.literal();
      });
      all.push_back(std::move(step));
      if (all.back().op.empty() && !has_field(item, "op")) item.fail("has no 'op'");
    });
    if (node.items().empty()) node.fail("has no steps");
    return all;
  }
  static bool has_field(const Node& node, const std::string& name) {
    const auto all = node.fields();
    return std::any_of(all.begin(), all.end(), [&](const auto& field) { return field.first == name; });
  }

  Report report_;
  Node root_;
  Spec spec_;
};

// Throws several errors with the lines of their values. JSON is YAML, whose parser provides positions.
[[noreturn]] void throw_located(const std::string& path, std::string_view text, const json::value& root,
                                std::vector<Error> errors) {
  const auto source = std::make_shared<const SourceText>(path, std::string(text));
  const std::string prefix = fmt::format("'{}': ", path);
  try {
    const document::Document document = document::parse_document(source);
    SpecReader located(path, root, &document.root);
    (void)located.read();
    errors = located.errors();
  } catch (const Error&) {  // not YAML: errors have no lines
  }
  std::vector<Error> shown;
  for (const Error& e : errors) {
    const std::string what = e.what();
    shown.emplace_back(e.kind(), what.starts_with(prefix) ? what.substr(prefix.size()) : what, e.span(), e.notes());
  }
  throw_errors(source.get(), std::move(shown));
}

}  // namespace

Spec parse_spec(const std::string& path, std::string_view text) {
  if (text.size() > kLargestSpec)
    throw Error(ErrorKind::Syntax,
                fmt::format("'{}' holds {} bytes; a model spec has at most {}", path, text.size(), kLargestSpec));
  json::error_code failure;
  size_t read = 0;
  const json::value root = parse_json(text, failure, kDeepestJson, &read);
  if (failure) {
    const Span span = SourceText(path, std::string(text)).span(read, 1);
    throw Error(
        ErrorKind::Syntax,
        fmt::format("'{}' is not JSON: line {}, column {}: {}", path, span.line, span.column, failure.message()), {},
        {"a spec is JSON; a .ndsl file is given as the model itself"});
  }
  SpecReader reader(path, root, nullptr);
  Spec spec = reader.read();
  if (reader.errors().empty()) return spec;
  if (reader.errors().size() == 1) throw reader.errors().front();
  throw_located(path, text, root, reader.errors());
}

Spec read_spec(const std::string& path) { return parse_spec(path, read_file(path, kLargestSpec)); }

}  // namespace harmonics::engine::specs
