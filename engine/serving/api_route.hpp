// What is known of a route of the HTTP API: the service dispatches requests by these values, and GET /openapi.json
// describes them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace harmonics::engine {

struct RouteParameter {
  const char* name;
  enum class In { path, query } in;
  const char* type;  // of JSON: "string", "integer", "number", "boolean"
  const char* text;
  bool required = false;
};

// A media type, and the schema of its content: a file of docs/schema or docs/schema/http. Null: none, it is not JSON.
struct RouteContent {
  const char *type, *schema;
};

// Who may use a route.
enum class RouteAccess {
  open,     // everybody
  reads,    // with the token if the address can be reached by other machines, or if the user set a token
  changes,  // with the token
};

struct ApiRoute {
  const char *method = "", *path = "";  // a path may end in "{name}"
  RouteAccess access = RouteAccess::open;
  const char *summary = "", *text = "";
  std::vector<RouteParameter> parameters = {};
  std::vector<RouteContent> body = {};
  const char* example = nullptr;  // of the body, or of the query with its '?'
  int status = 200;               // of the reply to a correct request
  std::vector<RouteContent> reply = {};

  bool matches(std::string_view target) const;
};

struct SchemaFile {
  const char *name, *text;
};
// Generated from docs/schema by the build.
extern const SchemaFile kSchemaFiles[];
extern const unsigned kSchemaFileCount;

// Returns the OpenAPI 3.1 document of these routes, as JSON. `about`: what they are for.
std::string openapi_document(const std::vector<const ApiRoute*>& routes, const char* about);

}  // namespace harmonics::engine
