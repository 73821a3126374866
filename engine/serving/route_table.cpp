#include "engine/serving/route_table.hpp"

#include <utility>

namespace harmonics::engine {

std::string listed_paths(const std::vector<const ApiRoute*>& routes) {
  std::vector<std::pair<std::string, std::string>> of_method;  // GET, POST, then others in order of occurrence
  for (const char* method : {"GET", "POST"}) of_method.emplace_back(method, "");
  for (const ApiRoute* route : routes) {
    auto* list = &of_method.front();
    while (list != &of_method.back() && list->first != route->method) ++list;
    if (list->first != route->method) list = &of_method.emplace_back(route->method, "");
    list->second += (list->second.empty() ? "" : ", ") + std::string(route->path);
  }
  std::string text;
  for (const auto& [method, paths] : of_method)
    if (!paths.empty()) text += (text.empty() ? "" : "; ") + method + " " + paths;
  return text;
}

}  // namespace harmonics::engine
