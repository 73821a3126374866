// The syntax of chat templates: the part of Jinja that templates of language models use.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <harmonics/error.hpp>

#include "engine/language/template_value.hpp"

namespace harmonics::engine::jinja {

struct Node;
using NodePtr = std::unique_ptr<Node>;
using Nodes = std::vector<NodePtr>;

enum class NodeKind {
  // Expressions. `text`: a name; `children`: operands.
  literal,
  name,
  attribute,  // children[0].text
  item,       // children[0][children[1]]
  slice,      // children[0][children[1] : children[2] : children[3]]; absent ones are null
  call,       // children[0](arguments)
  filter,     // children[0] | text(arguments)
  test,       // children[0] is text(arguments)
  list,
  map,  // key, value, key, value, ...
  unary,
  binary,   // text: the operator
  compare,  // children[0] operators[0] children[1] operators[1] ...
  both,     // and
  either,   // or
  choice,   // children[1] if children[0] else children[2], which may be null
  // Statements.
  data,       // text
  output,     // children[0]
  block,      // children in order
  branch,     // condition, body, condition, body, ..., and perhaps the body of else
  loop,       // see Loop
  set,        // targets = children[0]
  set_block,  // targets: the text of children[0], filtered
  macro,
  scope,  // with: targets[i] = children[i], then the body: the last child
  leave,  // break or continue, by text
};

struct Parameter {
  std::string name;
  NodePtr value;  // of a call, or the default of a macro; null: none
};

struct Node {
  NodeKind kind;
  Span at;
  int depth = 1;  // of the tree below
  std::string text;
  Value value;  // of a literal
  Nodes children;
  std::vector<std::string> operators;
  std::vector<Parameter> arguments;  // of a call, filter, test, macro
  // Names that get a value; several take the items of a list. With an attribute: of a namespace.
  std::vector<std::string> targets;
  std::string target_attribute;
  // loop: children are the list, the body, and perhaps (null: none) the body of else and the condition.
};

// Bounds of a template.
constexpr size_t kTemplateBytes = size_t{1} << 20;
constexpr int kSyntaxDepth = 160;

// Throws ErrorKind::Syntax with the place. `name` is for messages.
NodePtr parse_template(std::string_view text, const std::string& name);

}  // namespace harmonics::engine::jinja
