// Lookup in tables of routes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/serving/api_route.hpp"
#include "engine/serving/http_handler.hpp"

namespace harmonics::engine {

template <typename Route>
std::vector<const ApiRoute*> listed_routes(std::span<const Route> table) {
  std::vector<const ApiRoute*> all;
  for (const Route& route : table) all.push_back(&route);
  return all;
}

// Returns "GET /a, /b; POST /c", for messages.
std::string listed_paths(const std::vector<const ApiRoute*>& routes);

// The route of a request. If there is none, `methods` lists the methods that its path supports; "" for an unknown path.
template <typename Route>
struct FoundRoute {
  const Route* route = nullptr;
  std::string methods;
};
template <typename Route>
FoundRoute<Route> find_route(std::span<const Route> table, const ServiceRequest& request) {
  FoundRoute<Route> found;
  for (const Route& candidate : table) {
    if (!candidate.matches(request.path)) continue;
    const std::string method = candidate.method;
    found.methods += (found.methods.empty() ? "" : ", ") + method;
    if (request.method == method || (request.method == "HEAD" && method == "GET")) found.route = &candidate;
  }
  return found;
}

}  // namespace harmonics::engine
