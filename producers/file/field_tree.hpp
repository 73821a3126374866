// The chosen fields of a JSON object, found in one walk over it however many they are.
#pragma once

#include <simdjson.h>

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

  // The field at this path of keys; without keys it is the value itself.
  void add(const std::vector<std::string>& path, size_t field) {
    Node* node = &root_;
    for (const std::string& key : path) node = &node->child(key);
    node->fields.push_back(field);
  }

  // The value of every field; empty where there is none, or null. Of a key that comes twice the first counts.
  void find(const simdjson::dom::element& value, Values& values) {
    for (auto& one : values) one.reset();
    find(root_, value, values);
  }

 private:
  struct Node {
    std::vector<size_t> fields;                                           // whose value is this one
    std::vector<std::unique_ptr<std::pair<std::string, Node>>> children;  // keys stay where they are
    std::unordered_map<std::string_view, size_t> places;                  // of the children
    uint64_t seen = 0;                                                    // the walk that came by last
    // The keys of the object before, in their order, with their child or kUnwanted: lines mostly have their keys in one
    // order.
    std::vector<std::pair<std::string, size_t>> order;

    Node& child(const std::string& key) {
      if (const auto at = places.find(key); at != places.end()) return children[at->second]->second;
      children.push_back(std::make_unique<std::pair<std::string, Node>>(key, Node()));
      places.emplace(children.back()->first, children.size() - 1);
      return children.back()->second;
    }
  };

  void find(Node& node, const simdjson::dom::element& value, Values& values) {
    if (!value.is_null())
      for (const size_t field : node.fields) values[field] = value;
    simdjson::dom::object object;
    if (node.children.empty() || value.get(object)) return;
    const uint64_t walk = ++walks_;
    size_t left = node.children.size(), at = 0;
    for (const auto& [key, inner] : object) {
      const size_t wanted = child_of(node, at++, key);
      if (wanted == kUnwanted) continue;
      Node& child = node.children[wanted]->second;
      if (child.seen == walk) continue;
      child.seen = walk;
      find(child, inner, values);
      if (--left == 0) return;
    }
  }

  static size_t child_of(Node& node, size_t at, std::string_view key) {
    if (at < node.order.size() && node.order[at].first == key) return node.order[at].second;
    const auto place = node.places.find(key);
    const size_t child = place == node.places.end() ? kUnwanted : place->second;
    if (key.size() > kRemembered) return child;
    if (at < node.order.size())
      node.order[at] = {std::string(key), child};
    else if (at == node.order.size() && at < kRemembered)
      node.order.emplace_back(key, child);
    return child;
  }

  static constexpr size_t kUnwanted = ~size_t{0}, kRemembered = 1024;

  Node root_;
  uint64_t walks_ = 0;
};

}  // namespace harmonics
