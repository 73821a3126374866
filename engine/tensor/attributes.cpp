#include "engine/tensor/attributes.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/tensor/attribute_reads.hpp"
#include "engine/tensor/literal_text.hpp"

namespace harmonics::engine {

namespace {

thread_local AttributeReads* reads = nullptr;

using Entry = std::pair<std::string, AttributeValue>;

AttributeValue value_of(const hx_attribute& a) {
  switch (a.kind) {
    case HX_ATTR_INT:
      return a.as.i;
    case HX_ATTR_FLOAT:
      return a.as.f;
    case HX_ATTR_BOOL:
      return a.as.i != 0;
    case HX_ATTR_STRING:
      return std::string(a.as.s ? a.as.s : "");
    case HX_ATTR_INTS:
      return a.count ? std::vector<int64_t>(a.as.ints, a.as.ints + a.count) : std::vector<int64_t>();
    case HX_ATTR_FLOATS:
      return a.count ? std::vector<double>(a.as.floats, a.as.floats + a.count) : std::vector<double>();
    case HX_ATTR_TEXTS: {
      std::vector<std::string> texts(a.count);
      for (uint32_t i = 0; i < a.count; ++i)
        if (a.as.texts[i].bytes) texts[i].assign(a.as.texts[i].data, a.as.texts[i].bytes);
      return texts;
    }
    default:
      throw Error(ErrorKind::Type,
                  "attribute '" + std::string(a.name) + "' has the unknown kind " + std::to_string(a.kind));
  }
}

const AttributeValue& required(const AttributeMap& map, std::string_view name) {
  if (const AttributeValue* v = map.find(name)) return *v;
  throw Error(ErrorKind::Type, "attribute '" + std::string(name) + "' is missing; given are " +
                                   (map.empty() ? std::string("none") : map.str()));
}

template <typename T>
const T& required_as(const AttributeMap& map, std::string_view name, const char* kind) {
  const AttributeValue& v = required(map, name);
  if (const T* t = std::get_if<T>(&v)) return *t;
  throw Error(ErrorKind::Type, "attribute '" + std::string(name) + "' must be " + kind + "; given are " + map.str());
}

template <typename T>
std::string joined_text(const std::vector<T>& values, std::string (*text)(T)) {
  std::string out = "[";
  for (size_t i = 0; i < values.size(); ++i) {
    if (i) out += ", ";
    out += text(values[i]);
  }
  out += ']';
  return out;
}

struct Text {
  std::string_view name;
  std::string operator()(int64_t v) const {
    const bool names_a_type = name == "dtype" && v >= 0 && v < static_cast<int64_t>(detail::element_type_count);
    return names_a_type ? std::string(dtype_name(static_cast<DType>(v))) : std::to_string(v);
  }
  std::string operator()(double v) const { return float_text(v); }
  std::string operator()(bool v) const { return v ? "true" : "false"; }
  std::string operator()(const std::string& v) const { return quoted(v); }
  std::string operator()(const std::vector<int64_t>& v) const {
    return joined_text<int64_t>(v, [](int64_t i) { return std::to_string(i); });
  }
  std::string operator()(const std::vector<double>& v) const {
    return v.empty() ? "floats[]" : joined_text<double>(v, [](double d) { return float_text(d); });
  }
  std::string operator()(const std::vector<std::string>& v) const {
    return v.empty() ? "texts[]" : joined_text<std::string>(v, [](std::string s) { return quoted(s); });
  }
};

}  // namespace

AttributeReads::AttributeReads(const AttributeMap& of) : of_(&of), outer_(std::exchange(reads, this)) {}
AttributeReads::~AttributeReads() { reads = outer_; }

void AttributeReads::note(const AttributeMap& map, std::string_view name) {
  if (&map == of_) names_.emplace(name);
}

AttributeMap::AttributeMap(const hx_attributes* view) {
  if (!view) return;
  for (uint32_t i = 0; i < view->count; ++i)
    if (view->items[i].kind != HX_ATTR_VALUE) set(view->items[i].name, value_of(view->items[i]));
}

AttributeMap& AttributeMap::set(std::string name, AttributeValue value) {
  const auto at = std::lower_bound(entries_.begin(), entries_.end(), name,
                                   [](const Entry& e, const std::string& n) { return e.first < n; });
  if (at != entries_.end() && at->first == name)
    at->second = std::move(value);
  else
    entries_.emplace(at, std::move(name), std::move(value));
  return *this;
}

const AttributeValue* AttributeMap::find(std::string_view name) const {
  if (reads) reads->note(*this, name);
  for (const Entry& e : entries_)
    if (e.first == name) return &e.second;
  return nullptr;
}

int64_t AttributeMap::integer(std::string_view name) const {
  const AttributeValue& v = required(*this, name);
  if (const double* d = std::get_if<double>(&v); d && *d == std::trunc(*d) && std::abs(*d) <= 0x1p53)
    return static_cast<int64_t>(*d);
  return required_as<int64_t>(*this, name, "a whole number");
}

double AttributeMap::number(std::string_view name) const {
  const AttributeValue& v = required(*this, name);
  if (const int64_t* i = std::get_if<int64_t>(&v)) return static_cast<double>(*i);
  return required_as<double>(*this, name, "a number");
}

const std::string& AttributeMap::text(std::string_view name) const {
  return required_as<std::string>(*this, name, "a string");
}

const std::vector<int64_t>& AttributeMap::integers(std::string_view name) const {
  return required_as<std::vector<int64_t>>(*this, name, "a list of whole numbers");
}

bool AttributeMap::flag(std::string_view name, bool otherwise) const {
  const AttributeValue* v = find(name);
  if (!v) return otherwise;
  if (const int64_t* i = std::get_if<int64_t>(v)) return *i != 0;
  return required_as<bool>(*this, name, "true or false");
}

std::string AttributeMap::str() const {
  if (empty()) return "";
  std::string out = "{";
  for (const auto& [name, value] : entries_) {
    if (out.size() > 1) out += ", ";
    out += is_word(name) ? name : quoted(name);
    out += " = ";
    out += std::visit(Text{name}, value);
  }
  out += '}';
  return out;
}

AttributeView::AttributeView(const AttributeMap& map) {
  for (const auto& [name, value] : map.entries()) {
    hx_attribute a{};
    a.name = name.c_str();
    if (const auto* i = std::get_if<int64_t>(&value)) {
      a.kind = HX_ATTR_INT;
      a.as.i = *i;
    } else if (const auto* d = std::get_if<double>(&value)) {
      a.kind = HX_ATTR_FLOAT;
      a.as.f = *d;
    } else if (const auto* b = std::get_if<bool>(&value)) {
      a.kind = HX_ATTR_BOOL;
      a.as.i = *b;
    } else if (const auto* s = std::get_if<std::string>(&value)) {
      a.kind = HX_ATTR_STRING;
      a.as.s = s->c_str();
    } else if (const auto* ints = std::get_if<std::vector<int64_t>>(&value)) {
      a.kind = HX_ATTR_INTS;
      a.as.ints = ints->data();
      a.count = static_cast<uint32_t>(ints->size());
    } else if (const auto* floats = std::get_if<std::vector<double>>(&value)) {
      a.kind = HX_ATTR_FLOATS;
      a.as.floats = floats->data();
      a.count = static_cast<uint32_t>(floats->size());
    } else if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) {
      std::vector<hx_text>& views = texts_.emplace_back();
      for (const std::string& text : *texts) views.push_back({text.data(), text.size()});
      a.kind = HX_ATTR_TEXTS;
      a.as.texts = views.data();
      a.count = static_cast<uint32_t>(views.size());
    }
    items_.push_back(a);
  }
  view_ = {items_.data(), static_cast<uint32_t>(items_.size())};
}

void AttributeView::add_value(const char* name, hx_value* value) {
  hx_attribute a{};
  a.name = name;
  a.kind = HX_ATTR_VALUE;
  a.as.value = value;
  items_.push_back(a);
  view_ = {items_.data(), static_cast<uint32_t>(items_.size())};
}

}  // namespace harmonics::engine
