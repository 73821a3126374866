#include "engine/serving/predict_request.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <set>
#include <vector>

#include <boost/json.hpp>
#include <fmt/core.h>

#include <harmonics/quantity.hpp>

#include "engine/base/spelling.hpp"
#include "engine/model/safetensors.hpp"
#include "formats/exact_json.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine {

namespace json = boost::json;

namespace {

Error wrong(const std::string& message, std::string note) {
  return Error(ErrorKind::Usage, message, {}, {std::move(note)});
}

std::string shape_text(const Port& port) {
  std::string s = "[samples";
  for (int64_t d : port.sample.shape) s += fmt::format(", {}", d);
  return s + "]";
}

json::value parse(std::string_view text) {
  json::error_code failed;
  json::value value = parse_json(text, failed, 16);
  if (failed) throw wrong("the body is not JSON: " + failed.message(), "send one JSON object");
  return value;
}

// Returns a duplicate key within one object of this well-formed JSON, if there is one.
std::optional<std::string> repeated_key(std::string_view text) {
  std::vector<std::set<std::string>> open;  // one set for each object and list not yet closed
  for (size_t at = 0; (at = text.find_first_of("{}[]\"", at)) != std::string_view::npos; ++at) {
    if (text[at] == '{' || text[at] == '[') open.emplace_back();
    if (text[at] == '}' || text[at] == ']') open.pop_back();
    if (text[at] != '"') continue;
    const size_t begin = ++at;
    for (; text[at] != '"'; ++at)
      if (text[at] == '\\') ++at;
    const size_t next = text.find_first_not_of(" \t\r\n", at + 1);
    if (next == std::string_view::npos || text[next] != ':') continue;
    const json::value literal =
        json::parse(json::string_view(text.data() + begin - 1, at - begin + 2));  // "\u0061" is "a"
    std::string key(literal.get_string());
    if (!open.back().insert(key).second) return key;
  }
  return std::nullopt;
}

// Throws for duplicate keys, of which the parser would use the second. `keys`: number of keys read. Searches for
// duplicates only if the text has more colons than that.
void expect_keys_once(std::string_view text, size_t keys) {
  if (static_cast<size_t>(std::count(text.begin(), text.end(), ':')) <= keys) return;
  if (const auto key = repeated_key(text))
    throw wrong(fmt::format("the body has {} twice", shown_name(*key)), "give every key once");
}

// Writes the numbers of a sample to `to`, contiguously.
class Numbers {
 public:
  Numbers(const Port& port, std::byte* to) : port_(port), to_(to), left_(port.sample.shape.count()) {}

  void sample(const json::value& v, uint64_t row) {
    row_ = row;
    left_ = port_.sample.shape.count();
    const Shape& shape = port_.sample.shape;
    const bool flat = v.is_array() && shape.rank() > 1 && !v.get_array().empty() && !v.get_array().front().is_array();
    if (flat)
      all_of(v.get_array());
    else
      nested(v, 0);
    if (left_ != 0) fail(fmt::format("lacks {}", quantity(left_, "number")));
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw wrong(fmt::format("sample {} of input '{}' {}", row_, port_.name, what),
                fmt::format("'{}' is {} of {}, its first axis counting samples", port_.name, shape_text(port_),
                            dtype_name(port_.sample.dtype)));
  }

  void nested(const json::value& v, uint32_t axis) {
    if (axis == port_.sample.shape.rank()) return number(v);
    if (!v.is_array()) fail(fmt::format("is not nested {} deep", port_.sample.shape.rank()));
    const json::array& a = v.get_array();
    if (a.size() != static_cast<size_t>(port_.sample.shape[axis]))
      fail(fmt::format("has {}, expected {}", quantity(a.size(), "entry", "entries"), port_.sample.shape[axis]));
    for (const json::value& e : a) nested(e, axis + 1);
  }

  void all_of(const json::array& a) {
    if (a.size() != static_cast<size_t>(left_))
      fail(fmt::format("has {}, expected {}", quantity(a.size(), "number"), left_));
    for (const json::value& e : a) number(e);
  }

  void number(const json::value& v) {
    switch (port_.sample.dtype) {
      case DType::F32:
        return put(static_cast<float>(finite(v, static_cast<float>(real(v)))));
      case DType::F64:
        return put(finite(v, real(v)));
      case DType::Bool:
        return put(static_cast<uint8_t>(v.is_bool() ? v.get_bool() : whole<uint8_t>(v, 1)));
      case DType::U8:
        return put(whole<uint8_t>(v));
      case DType::I8:
        return put(whole<int8_t>(v));
      case DType::U16:
        return put(whole<uint16_t>(v));
      case DType::I16:
        return put(whole<int16_t>(v));
      case DType::U32:
        return put(whole<uint32_t>(v));
      case DType::I32:
        return put(whole<int32_t>(v));
      case DType::U64:
        return put(whole<uint64_t>(v));
      case DType::I64:
        return put(whole<int64_t>(v));
      default:
        return put_half(v);
    }
  }

  double real(const json::value& v) const {
    if (v.is_double()) return v.get_double();
    if (v.is_int64()) return static_cast<double>(v.get_int64());
    if (v.is_uint64()) return static_cast<double>(v.get_uint64());
    fail("holds values that are not numbers");
  }

  // Returns `n`, which is `v` in the precision of the input's type. Throws if it is not finite.
  double finite(const json::value& v, double n) const {
    if (!std::isfinite(n))
      fail(fmt::format("holds {}, which is out of range for {}",
                       v.is_double() && !std::isfinite(v.get_double()) ? "a number" : json::serialize(v),
                       dtype_name(port_.sample.dtype)));
    return n;
  }

  template <typename T>
  T whole(const json::value& v, T most = std::numeric_limits<T>::max()) const {
    if (!v.is_int64() && !v.is_uint64() && !(v.is_double() && std::nearbyint(v.get_double()) == v.get_double()))
      fail("holds values that are not whole numbers");
    json::error_code failed;
    const T n = v.to_number<T>(failed);
    if (failed || n > most)
      fail(fmt::format("holds {}, which is not a valid {}", json::serialize(v), dtype_name(port_.sample.dtype)));
    return n;
  }

  template <typename T>
  void put(T v) {
    std::memcpy(to_, &v, sizeof v);
    to_ += sizeof v;
    --left_;
  }
  void put_half(const json::value& v) {
    const HTensor half = cast(HTensor::from({}, std::vector<float>{static_cast<float>(real(v))}), port_.sample.dtype);
    finite(v, cast(half, DType::F32).item<float>());
    std::memcpy(to_, half.bytes(), 2);
    to_ += 2;
    --left_;
  }

  const Port& port_;
  std::byte* to_;
  int64_t left_;
  uint64_t row_ = 0;
};

std::string names_of(const std::vector<Port>& ports) {
  std::string all;
  for (const Port& p : ports) all += (all.empty() ? "" : ", ") + p.name;
  return all;
}

void expect_known(const std::string& name, const ModelPorts& ports) {
  std::vector<std::string> known;
  for (const Port& p : ports.inputs) known.push_back(p.name);
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  const auto near = name.size() < 256 ? nearest(name, known) : std::nullopt;
  throw wrong(fmt::format("'{}' has no input {}", ports.graph, shown_name(name)),
              near ? "did you mean '" + *near + "'?" : "its inputs are " + names_of(ports.inputs));
}

Error lacks(const Port& port, const ModelPorts& ports) {
  return wrong(fmt::format("input '{}' is missing", port.name), "its inputs are " + names_of(ports.inputs));
}

void expect_samples(uint64_t samples, uint64_t first, const Port& port) {
  if (samples != first)
    throw wrong(fmt::format("input '{}' has {}, others have {}", port.name, quantity(samples, "sample"), first),
                "all inputs must have the same number of samples");
  if (samples == 0 || samples > Predictor::kMostSamples)
    throw wrong(fmt::format("input '{}' has {}", port.name, quantity(samples, "sample")),
                fmt::format("send 1 to {} samples per request", Predictor::kMostSamples));
}

int from_hex(char c) {
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                : -1;
}

bool decode(std::string_view text, std::string& to) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      to += text[i];
      continue;
    }
    if (i + 2 >= text.size() || from_hex(text[i + 1]) < 0 || from_hex(text[i + 2]) < 0) return false;
    to += static_cast<char>(16 * from_hex(text[i + 1]) + from_hex(text[i + 2]));
    i += 2;
  }
  return true;
}

}  // namespace

bool parse_target(std::string_view target, RequestTarget& into) {
  into.path.clear();
  into.query.clear();
  if (!target.starts_with('/')) return false;
  const size_t question = target.find('?');
  if (!decode(target.substr(0, question), into.path)) return false;
  if (question == std::string_view::npos) return true;
  for (std::string_view rest = target.substr(question + 1); !rest.empty();) {
    const std::string_view pair = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(rest.size(), pair.size() + 1));
    const size_t eq = std::min(pair.find('='), pair.size());
    std::string key, value;
    if (!decode(pair.substr(0, eq), key) || !decode(pair.substr(std::min(eq + 1, pair.size())), value)) return false;
    into.query[key] = value;
  }
  return true;
}

PredictInputs inputs_from_json(std::string_view text, const ModelPorts& ports) {
  const json::value body = parse(text);
  const json::object* inputs =
      body.is_object() && body.get_object().contains("inputs") ? body.get_object().at("inputs").if_object() : nullptr;
  if (!inputs)
    throw wrong("the body has no object 'inputs'", fmt::format("send {{\"inputs\": {{\"{}\": [...]}}}}",
                                                               ports.inputs.empty() ? "x" : ports.inputs.front().name));
  for (const auto& [key, value] : body.get_object())
    if (key != "inputs") throw wrong(fmt::format("unknown key {}", shown_name(key)), "the body takes only 'inputs'");
  for (const auto& [name, value] : *inputs) expect_known(std::string(name), ports);
  PredictInputs result;
  for (const Port& port : ports.inputs) {
    const json::value* v = inputs->if_contains(port.name);
    if (!v) throw lacks(port, ports);
    if (!v->is_array())
      throw wrong(fmt::format("input '{}' is not a list", port.name),
                  "its first axis counts samples: " + shape_text(port));
    const json::array& rows = v->get_array();
    if (result.bytes.empty()) result.samples = rows.size();
    expect_samples(rows.size(), result.samples, port);
    std::vector<std::byte>& bytes = result.bytes.emplace_back(port.bytes() * rows.size());
    Numbers numbers(port, bytes.data());
    for (size_t i = 0; i < rows.size(); ++i) numbers.sample(rows[i], i);
  }
  expect_keys_once(text, body.get_object().size() + inputs->size());
  return result;
}

PredictInputs inputs_from_tensors(std::string_view text, const ModelPorts& ports) {
  TensorFile file;
  try {
    file = read_safetensors(text.data(), text.size(), "the body");
  } catch (const Error& e) {
    throw wrong(e.what(), "send a safetensors file with a tensor for every input: " + names_of(ports.inputs));
  }
  for (const auto& [name, tensor] : file.tensors) expect_known(name, ports);
  PredictInputs result;
  for (const Port& port : ports.inputs) {
    const auto at = file.tensors.find(port.name);
    if (at == file.tensors.end()) throw lacks(port, ports);
    const TensorType type = type_of(at->second);
    if (type.dtype != port.sample.dtype || type.shape.rank() != port.sample.shape.rank() + 1 ||
        type.shape.from(1) != port.sample.shape)
      throw wrong(fmt::format("input '{}' is {}", port.name, type.str()),
                  fmt::format("'{}' is {} of {}", port.name, shape_text(port), dtype_name(port.sample.dtype)));
    if (result.bytes.empty()) result.samples = static_cast<uint64_t>(type.shape[0]);
    expect_samples(static_cast<uint64_t>(type.shape[0]), result.samples, port);
    const auto* from = static_cast<const std::byte*>(at->second.bytes());
    result.bytes.emplace_back(from, from + type.bytes());
  }
  return result;
}

std::string tensors_text(const Prediction& prediction, const ModelPorts& ports) {
  TensorFile file;
  file.metadata = {{"step", std::to_string(prediction.version.step)},
                   {"cycle", std::to_string(prediction.version.cycle + 1)}};
  if (prediction.not_finite > 0) file.metadata["not_finite"] = std::to_string(prediction.not_finite);
  for (size_t p = 0; p < ports.outputs.size(); ++p) {
    Shape batched{static_cast<int64_t>(prediction.samples)};
    for (int64_t d : ports.outputs[p].sample.shape) batched.push_back(d);
    file.tensors.emplace(ports.outputs[p].name, view_of({ports.outputs[p].sample.dtype, batched},
                                                        const_cast<std::byte*>(prediction.outputs[p].data())));
  }
  return write_safetensors(file);
}

namespace {

// Returns the value of an argument as in a flow; "" for null.
std::string argument_text(const json::value& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return std::string(value.get_string());
  if (value.is_bool()) return value.get_bool() ? "true" : "false";
  if (value.is_double()) return fmt::format("{}", value.get_double());
  if (value.is_int64()) return fmt::format("{}", value.get_int64());
  if (value.is_uint64()) return fmt::format("{}", value.get_uint64());
  std::string list;
  if (const json::array* items = value.if_array())
    for (const json::value& item : *items) {
      if (!item.is_number()) throw wrong("a list of an argument has an item that is not a number", "send [3, 3]");
      list += (list.empty() ? "" : ", ") + argument_text(item);
    }
  if (list.empty())
    throw wrong("an argument is not a number, a text, true, false or a list of numbers",
                R"(send {"do": "layer", "layer": "hidden", "arguments": {"rate": 0.3}}; null is the default)");
  return "[" + list + "]";
}

std::vector<ArgumentText> arguments_of(const json::object& arguments) {
  std::vector<ArgumentText> all;
  for (const auto& [name, value] : arguments) all.push_back({std::string(name), argument_text(value)});
  return all;
}

}  // namespace

ControlRequest control_from_json(std::string_view text) {
  static constexpr std::pair<const char*, ControlRequest::Do> kWords[] = {
      {"status", ControlRequest::Do::status},
      {"pause", ControlRequest::Do::pause},
      {"resume", ControlRequest::Do::resume},
      {"step", ControlRequest::Do::step},
      {"checkpoint", ControlRequest::Do::checkpoint},
      {"learning_rate", ControlRequest::Do::learning_rate},
      {"layer", ControlRequest::Do::layer},
      {"undo", ControlRequest::Do::undo},
      {"stop", ControlRequest::Do::stop},
      {"events", ControlRequest::Do::events},
      {"get", ControlRequest::Do::get}};
  const json::value body = parse(text);
  const json::object* o = body.if_object();
  const json::value* word = o ? o->if_contains("do") : nullptr;
  if (o) expect_keys_once(text, 0);
  if (!word || !word->is_string())
    throw wrong("the request has no 'do'",
                "send {\"do\": \"pause\"}, or status, resume, step, checkpoint, learning_rate, layer, undo, stop");
  ControlRequest request;
  request.word = std::string(word->get_string());
  const auto* row =
      std::find_if(std::begin(kWords), std::end(kWords), [&](const auto& r) { return request.word == r.first; });
  if (row == std::end(kWords))
    throw wrong(
        fmt::format("unknown action {}", shown_name(request.word)),
        "actions are status, pause, resume, step, checkpoint, learning_rate, layer, undo, stop, events and get");
  request.what = row->second;
  for (const auto& [key, value] : *o) {
    json::error_code failed;
    if (key == "count" && request.what == ControlRequest::Do::step)
      request.count = value.is_number() ? value.to_number<int64_t>(failed) : 0;
    else if (key == "value" && request.what == ControlRequest::Do::learning_rate && value.is_number())
      request.value = value.to_number<double>(failed);
    else if (key == "path" && request.what == ControlRequest::Do::get && value.is_string())
      request.path = std::string(value.get_string());
    else if (key == "layer" && request.what == ControlRequest::Do::layer && value.is_string())
      request.layer = std::string(value.get_string());
    else if (key == "arguments" && request.what == ControlRequest::Do::layer && value.is_object())
      request.arguments = arguments_of(value.get_object());
    else if (key != "do" && !(key == "value" && request.what == ControlRequest::Do::learning_rate && value.is_null()))
      throw wrong(fmt::format("'{}' has no field {}", request.word, shown_name(key)), "docs/live.md has the fields");
    if (failed || (request.value && !std::isfinite(*request.value)))
      throw wrong(fmt::format("{} of '{}' is not a valid number", shown_name(key), request.word),
                  "docs/live.md has the fields");
  }
  if (request.what == ControlRequest::Do::learning_rate && !o->contains("value"))
    throw wrong("'learning_rate' has no 'value'", "give a number, or null for the schedule's rate");
  if (request.what == ControlRequest::Do::layer && (request.layer.empty() || request.arguments.empty()))
    throw wrong(fmt::format("'layer' has no {}", request.layer.empty() ? "'layer'" : "'arguments'"),
                R"(send {"do": "layer", "layer": "hidden", "arguments": {"rate": 0.3}})");
  if (request.what == ControlRequest::Do::get && !request.path.starts_with("/v1/"))
    throw wrong("'get' has no 'path'", "give what GET takes over HTTP: {\"do\": \"get\", \"path\": \"/v1/layers\"}");
  return request;
}

}  // namespace harmonics::engine
