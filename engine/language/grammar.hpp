// Grammars in GBNF, and texts checked against them byte by byte.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace harmonics::engine {

// A grammar of rules `name ::= "text" [a-z] other (a | b)* x{2,4} .`; texts follow the rule `root`. Characters are
// compiled to bytes, so that a token may end inside a character. Immutable.
class Grammar {
 public:
  // Throws ErrorKind::Syntax with line and column for wrong syntax, missing or left-recursive rules, and grammars that
  // become too large.
  explicit Grammar(std::string_view text);

  struct Symbol {
    enum Kind : uint8_t { bytes, rule, end } kind;
    uint8_t least = 0, most = 0;  // of `bytes`
    uint32_t index = 0;           // of `rule`
  };

 private:
  friend class GrammarText;
  friend class GrammarParser;
  std::vector<Symbol> symbols_;               // the alternatives of all rules, each followed by an `end`
  std::vector<std::vector<uint32_t>> rules_;  // by rule: first symbol of each alternative
  uint32_t root_ = 0;
};

// A text that follows a grammar so far. Cheap to copy. Memory is bounded: continuations nested deeper than kDepth are
// refused.
class GrammarText {
 public:
  static constexpr size_t kDepth = 512, kWays = 2048;

  explicit GrammarText(std::shared_ptr<const Grammar> grammar);
  // Appends bytes if the grammar allows them; otherwise returns false and leaves the text unchanged.
  bool append(std::string_view bytes);
  bool allows(std::string_view bytes) const;
  bool may_end() const { return ends_; }  // whether the text is complete
  bool may_go_on() const { return !ways_.empty(); }
  // Returns for each byte whether it may be next.
  std::array<bool, 256> next_bytes() const;

 private:
  friend class GrammarParser;
  using Stack = std::vector<uint32_t>;  // expected symbols, the next one last

  // Adds the stacks whose next symbol is a byte. Returns false if there are too many.
  bool expand(Stack stack, std::vector<Stack>& ways, bool& ends) const;
  bool step(uint8_t byte, std::vector<Stack>& ways, bool& ends) const;

  std::shared_ptr<const Grammar> grammar_;
  std::vector<Stack> ways_;
  bool ends_ = false;
};

}  // namespace harmonics::engine
