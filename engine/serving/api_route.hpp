// Description of the routes of an HTTP API, used by services to dispatch requests and by GET /openapi.json.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace harmonics::engine {

struct RouteParameter {
  const char* name;
  enum class In { path, query } in;
  const char* type;  // JSON type: "string", "integer", "number", "boolean"
  const char* text;
  bool required = false;
};

// A media type, and the schema of its content: a file of docs/schema or docs/schema/http; null if it is not JSON.
struct RouteContent {
  const char *type, *schema;
};

// Access to a route.
enum class RouteAccess {
  open,     // unrestricted
  reads,    // requires the token if other machines can reach the address, or if the user set a token
  changes,  // always requires the token
};

struct ApiRoute {
  const char *method = "", *path = "";  // a path may end in "{name}"
  RouteAccess access = RouteAccess::open;
  const char *summary = "", *text = "";
  std::vector<RouteParameter> parameters = {};
  std::vector<RouteContent> body = {};
  const char* example = nullptr;  // example of the body, or of the query with its '?'
  int status = 200;               // status of a successful reply
  std::vector<RouteContent> reply = {};

  bool matches(std::string_view target) const;
};

struct SchemaFile {
  const char *name, *text;
};
// Generated from docs/schema by the build.
extern const SchemaFile kSchemaFiles[];
extern const unsigned kSchemaFileCount;

// Returns the OpenAPI 3.1 document of these routes, as JSON. `about`: description of the API.
std::string openapi_document(const std::vector<const ApiRoute*>& routes, const char* about);

}  // namespace harmonics::engine
