// Speculative decoding: a drafter proposes tokens cheaply, and the model verifies all of them in one run.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/language/decoder.hpp"
#include "engine/language/sampler.hpp"
#include "engine/language/tokenizer.hpp"

namespace harmonics::engine {

struct DraftedToken {
  int32_t id;
  std::vector<TokenChance> chances;  // distribution that it was drawn from; empty if it was not drawn
};

// Drafts tokens of one text. Not thread-safe.
class Drafter {
 public:
  virtual ~Drafter() = default;
  // Returns at most `count` tokens that may follow `text`. `sampler` chooses the tokens of the text and has observed
  // all of them.
  virtual std::vector<DraftedToken> draft(std::span<const int32_t> text, int64_t count, const Sampler& sampler) = 0;
  // Returns whether tokens are drawn if the temperature is above 0.
  virtual bool draws() const = 0;
};

// Prompt lookup (Saxena 2023): proposes the tokens that followed an earlier occurrence of the last tokens, at most
// `longest` of them.
class LookupDrafter final : public Drafter {
 public:
  explicit LookupDrafter(int64_t longest);  // at least 1
  std::vector<DraftedToken> draft(std::span<const int32_t> text, int64_t count, const Sampler& sampler) override;
  bool draws() const override { return false; }

 private:
  size_t longest_;
};

// Drafts with a smaller model of the same vocabulary (Leviathan et al. 2023).
class ModelDrafter final : public Drafter {
 public:
  // The decoder must outlive the object. `context` is that of its session; 0 for the number of tokens that its model
  // was trained for.
  ModelDrafter(Decoder& decoder, int64_t context);
  std::vector<DraftedToken> draft(std::span<const int32_t> text, int64_t count, const Sampler& sampler) override;
  bool draws() const override { return true; }

 private:
  Session session_;
  uint64_t drawn_ = 0;
};

// Throws ErrorKind::Usage, with the first different tokens, if the draft model has another vocabulary.
void expect_same_vocabulary(const Tokenizer& tokenizer, const Tokenizer& draft, const std::string& path,
                            const std::string& draft_path);

}  // namespace harmonics::engine
