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
    std::vector<size_t> fields;  // whose value is this one
    std::vector<std::unique_ptr<std::pair<std::string, Node>>> children;  // keys stay where they are
    std::unordered_map<std::string_view, size_t> places;                  // of the children
    uint64_t seen = 0;  // the walk that came by last

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
    size_t next = 0, left = node.children.size();  // lines mostly have their keys in one order
    for (const auto& [key, inner] : object) {
      if (next == node.children.size() || node.children[next]->first != key) {
        const auto at = node.places.find(key);
        if (at == node.places.end()) continue;
        next = at->second;
      }
      Node& child = node.children[next++]->second;
      if (child.seen == walk) continue;
      child.seen = walk;
      find(child, inner, values);
      if (--left == 0) return;
    }
  }

  Node root_;
  uint64_t walks_ = 0;
};

}  // namespace harmonics
