// Attributes of a node: named constants, sorted by name so that the maps of equal nodes compare equal.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "engine/tensor/type.hpp"

namespace harmonics::engine {

using AttributeValue = std::variant<int64_t, double, bool, std::string, std::vector<int64_t>, std::vector<double>,
                                    std::vector<std::string>>;

class AttributeMap {
 public:
  AttributeMap() = default;
  explicit AttributeMap(const hx_attributes* view);  // values of kind HX_ATTR_VALUE are ignored

  AttributeMap& set(std::string name, AttributeValue value);
  bool has(std::string_view name) const { return find(name) != nullptr; }
  const AttributeValue* find(std::string_view name) const;
  // Return the attribute, or throw ErrorKind::Type with its name. integer() accepts floating-point values without a
  // fraction, number() accepts integers.
  int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;
  const std::string& text(std::string_view name) const;
  const std::vector<int64_t>& integers(std::string_view name) const;
  int64_t integer(std::string_view name, int64_t otherwise) const { return has(name) ? integer(name) : otherwise; }
  double number(std::string_view name, double otherwise) const { return has(name) ? number(name) : otherwise; }
  bool flag(std::string_view name, bool otherwise = false) const;
  std::string text(std::string_view name, std::string otherwise) const { return has(name) ? text(name) : otherwise; }
  DType dtype(std::string_view name = "dtype") const { return static_cast<DType>(integer(name)); }
  Shape shape(std::string_view name = "shape") const { return Shape(integers(name)); }

  const std::vector<std::pair<std::string, AttributeValue>>& entries() const { return entries_; }
  bool empty() const { return entries_.empty(); }
  friend bool operator==(const AttributeMap&, const AttributeMap&) = default;
  std::string str() const;  // "{axis = 1, keep = true}"; "" if empty; floats read back exactly

 private:
  std::vector<std::pair<std::string, AttributeValue>> entries_;
};

// A C view of an AttributeMap. It owns the items and borrows the map.
class AttributeView {
 public:
  explicit AttributeView(const AttributeMap& map);
  AttributeView(AttributeView&&) = default;
  AttributeView& operator=(AttributeView&&) = default;
  const hx_attributes* get() const { return &view_; }
  // Adds a borrowed tensor argument (HX_ATTR_VALUE).
  void add_value(const char* name, hx_value* value);

 private:
  std::vector<hx_attribute> items_;
  std::vector<std::vector<hx_text>> texts_;  // elements of attributes that are lists of texts
  hx_attributes view_{};
};

}  // namespace harmonics::engine
