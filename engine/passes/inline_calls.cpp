#include <fmt/core.h>

#include "engine/base/spelling.hpp"
#include "engine/passes/pass.hpp"

namespace harmonics::engine {

namespace {

FunctionalPtr need_functional(const Node& call) {
  if (FunctionalPtr f = FunctionalTable::global().find(call.callee)) return f;
  throw Error(ErrorKind::Internal,
              fmt::format("the program calls '{}', which is not a registered functional", call.callee));
}

// Inlines one level. Returns whether a call was replaced, whose body may contain further calls.
bool inline_once(Program& program, const HasKernel& has_kernel) {
  Rewriter rewriter(program);
  bool again = false;
  for (const Node& node : program.nodes) {
    if (node.op != Op::call || has_kernel(program, node)) {
      rewriter.copy(node);
      continue;
    }
    const auto body = body_program(*need_functional(node), node.attributes, input_types(program, node));
    for (const Node& inner : body->nodes) again = again || inner.op == Op::call;
    rewriter.splice(*body, node);
  }
  program = rewriter.finish();
  return again;
}

}  // namespace

Program inline_calls(const Program& program, const HasKernel& has_kernel, const std::function<void(Program&)>& before) {
  Program result = program;
  do {
    if (before) before(result);
  } while (inline_once(result, has_kernel));
  return result;
}

}  // namespace harmonics::engine
