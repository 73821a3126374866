// The include graph of the folders is acyclic and equals the graph in docs/map.md.
#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/architecture/sources.hpp"

using namespace harmonics::engine::testing;

namespace {

using Graph = std::map<std::string, std::set<std::string>>;  // folder -> folders that it includes

// Returns "execution" for "engine/execution/plan.hpp", "wire" for "wire/codec.hpp", "include" for "harmonics/abi.h"; ""
// for others.
std::string room_of(const std::string& path) {
  if (starts(path, "harmonics/") || starts(path, "include/")) return "include";
  if (starts(path, "engine/")) return path.substr(7, path.find('/', 7) - 7);
  return ours(path) && !starts(path, "tests/") && !starts(path, "samples/") ? path.substr(0, path.find('/')) : "";
}

Graph included_rooms() {
  Graph graph;
  for (const char* folder : {"include", "formats", "engine", "dsl", "producers", "consumers", "kernels", "plugins",
                             "python", "sender", "tokens", "wire"})
    for (const fs::path& file : sources(folder)) {
      const std::string room = room_of(file.lexically_relative(kRoot).string());
      graph[room];
      for (const std::string& i : includes(file))
        if (const std::string other = room_of(i); !other.empty() && other != room) graph[room].insert(other);
    }
  return graph;
}

bool reaches(const Graph& graph, const std::string& from, const std::string& to, std::set<std::string>& seen) {
  if (from == to) return true;
  if (!seen.insert(from).second) return false;
  const auto& next = graph.at(from);
  return std::any_of(next.begin(), next.end(), [&](const auto& room) { return reaches(graph, room, to, seen); });
}

// Returns the transitive reduction: without edges that a longer path implies.
Graph reduced(const Graph& graph) {
  Graph kept;
  for (const auto& [room, rooms] : graph) {
    kept[room];
    for (const std::string& to : rooms) {
      const bool implied = std::any_of(rooms.begin(), rooms.end(), [&](const std::string& between) {
        std::set<std::string> seen;
        return between != to && reaches(graph, between, to, seen);
      });
      if (!implied) kept[room].insert(to);
    }
  }
  return kept;
}

// Returns lines "  a --> b & c" of a Mermaid graph, in the format of docs/map.md.
std::string drawn(const Graph& graph) {
  std::string text;
  for (const auto& [room, rooms] : graph) {
    std::string to;
    for (const std::string& other : rooms) to += (to.empty() ? "" : " & ") + other;
    if (!to.empty()) text += "  " + room + " --> " + to + "\n";
  }
  return text;
}

}  // namespace

TEST_CASE("rooms: includes make no circle") {
  const Graph graph = included_rooms();
  REQUIRE(graph.size() > 20);
  for (const auto& [room, rooms] : graph)
    for (const std::string& to : rooms) {
      INFO(room << " includes " << to << ", which leads back to " << room);
      std::set<std::string> seen;
      CHECK_FALSE(reaches(graph, to, room, seen));
    }
}

TEST_CASE("rooms: docs/map.md draws the include graph") {
  const std::string map = read(kRoot / "docs/map.md"), opening = "```mermaid\ngraph TD\n";
  const size_t begin = map.find(opening);
  REQUIRE(begin != std::string::npos);
  const size_t first = begin + opening.size();
  CHECK(map.substr(first, map.find("```", first) - first) == drawn(reduced(included_rooms())));
}

TEST_CASE("rooms: an arrow that a longer way implies is not drawn, a circle is found") {
  const Graph graph{{"a", {"b", "c"}}, {"b", {"c"}}, {"c", {}}};
  CHECK(drawn(reduced(graph)) == "  a --> b\n  b --> c\n");
  std::set<std::string> seen;
  CHECK(reaches(Graph{{"a", {"b"}}, {"b", {"a"}}}, "b", "a", seen));
}
