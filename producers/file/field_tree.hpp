// Finds the selected fields of a JSON object in one pass, whatever their number.
#pragma once

#include <simdjson.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace harmonics {

class FieldTree {
 public:
  using Values = std::vector<std::optional<simdjson::dom::element>>;

  // Adds the field with this path of keys. An empty path is the value itself.
  void add(const std::vector<std::string>& path, size_t field) {
    Node* node = &root_;
    for (const std::string& key : path) node = &node->child(key);
    node->fields.push_back(field);
  }

  // Finds the values of all fields; empty for missing or null ones. Of duplicate keys, the first counts.
  void find(const simdjson::dom::element& value, Values& values) {
    for (auto& one : values) one.reset();
    find(root_, value, values);
  }

 private:
  struct Node {
    std::vector<size_t> fields;                                           // fields whose value this node is
    std::vector<std::unique_ptr<std::pair<std::string, Node>>> children;  // pointers: keys keep their address
    std::unordered_map<std::string_view, size_t> places;                  // index of each child
    uint64_t seen = 0;                                                    // number of the last pass that visited it
    // The keys of the previous object in order, each with its child or null. Lines usually have their keys in the same
    // order.
    std::vector<std::pair<std::string, Node*>> order;

    Node& child(const std::string& key) {
      if (const auto at = places.find(key); at != places.end()) return children[at->second]->second;
      children.push_back(std::make_unique<std::pair<std::string, Node>>(key, Node()));
      places.emplace(children.back()->first, children.size() - 1);
      return children.back()->second;
    }
  };

  static void keep(const Node& node, const simdjson::dom::element& value, Values& values) {
    if (!node.fields.empty() && !value.is_null())
      for (const size_t field : node.fields) values[field] = value;
  }

  void find(Node& node, const simdjson::dom::element& value, Values& values) {
    keep(node, value, values);
    simdjson::dom::object object;
    if (node.children.empty() || value.get(object)) return;
    const uint64_t walk = ++walks_;
    size_t left = node.children.size(), at = 0;
    for (const auto& [key, inner] : object) {
      Node* child = child_of(node, at++, key);
      if (!child || child->seen == walk) continue;
      child->seen = walk;
      if (child->children.empty())
        keep(*child, inner, values);
      else
        find(*child, inner, values);
      if (--left == 0) return;
    }
  }

  // Returns the child for the key at this position; null: it contains no field.
  static Node* child_of(Node& node, size_t at, std::string_view key) {
    if (at < node.order.size() && same(node.order[at].first, key)) [[likely]]
      return node.order[at].second;
    return look_up(node, at, key);
  }

  // Not inlined, so that the comparison above is.
  [[gnu::noinline]] static Node* look_up(Node& node, size_t at, std::string_view key) {
    const auto place = node.places.find(key);
    Node* child = place == node.places.end() ? nullptr : &node.children[place->second]->second;
    if (key.size() > kRemembered) return child;
    if (at < node.order.size())
      node.order[at] = {std::string(key), child};
    else if (at == node.order.size() && at < kRemembered)
      node.order.emplace_back(key, child);
    return child;
  }

  // Compares short keys without a function call. The last word of a key may overlap the previous one.
  template <typename Word>
  static bool same_words(const char* a, const char* b, size_t size) {
    const auto differ = [&](size_t at) {
      Word x, y;
      std::memcpy(&x, a + at, sizeof x);
      std::memcpy(&y, b + at, sizeof y);
      return x != y;
    };
    for (size_t i = 0; i + sizeof(Word) < size; i += sizeof(Word))
      if (differ(i)) return false;
    return !differ(size - sizeof(Word));
  }
  static bool same(std::string_view a, std::string_view b) {
    if (a.size() != b.size()) return false;
    if (a.size() >= sizeof(uint64_t)) return same_words<uint64_t>(a.data(), b.data(), a.size());
    if (a.size() >= sizeof(uint32_t)) return same_words<uint32_t>(a.data(), b.data(), a.size());
    return a.empty() || same_words<uint8_t>(a.data(), b.data(), a.size());
  }

  static constexpr size_t kRemembered = 1024;

  Node root_;
  uint64_t walks_ = 0;
};

}  // namespace harmonics
