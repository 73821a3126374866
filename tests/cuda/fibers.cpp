// Runs a block's threads, each until it waits. Threads that never wait share one stack. Every second round runs in
// reverse order.
#include <csetjmp>

#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "tests/cuda/emulated_language.hpp"

namespace harmonics::cuda::emulated {
namespace {

constexpr size_t kStack = 64 * 1024;
constexpr uint32_t kWarp = 32;

enum class State { ready, at_block, at_warp, done };

// A suspended execution. swapcontext() sets the signal mask by a system call on each switch, so it only starts stacks
// here, except under sanitizers, which track stack switches.
struct Context {
  ucontext_t whole;
  jmp_buf place;
  bool begun = false;
};
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
void change(Context& from, Context& to) { swapcontext(&from.whole, &to.whole); }
#else
void change(Context& from, Context& to) {
  from.begun = true;
  if (_setjmp(from.place) != 0) return;
  if (to.begun) _longjmp(to.place, 1);
  setcontext(&to.whole);
}
#endif

struct Fiber {
  Context context;
  std::unique_ptr<char[]> stack{new char[kStack]};
  uint32_t thread = 0;
  State state = State::ready;
  bool waited = false;  // the fiber starts no further thread
};

class Block {
 public:
  void run(void (*function)(void**), uint32_t threads, void** arguments) {
    function_ = function;
    arguments_ = arguments;
    fibers_.clear();
    next_ = 0;
    threads_ = threads;
    while (next_ < threads_ || !fibers_.empty()) {
      start_rest();
      round();
    }
  }

  void meet(State where) {
    current_->state = where;
    current_->waited = true;
    change(current_->context, main_);
  }
  void* slot(uint32_t thread) { return &slots_[thread]; }

 private:
  // Starts the remaining threads in one fiber until one of them waits.
  void start_rest() {
    while (next_ < threads_) {
      auto fiber = spare_.empty() ? begin() : std::move(spare_.back());
      if (!spare_.empty()) spare_.pop_back();
      fiber->state = State::ready;
      fiber->waited = false;
      resume(*fiber);
      if (fiber->state == State::done)
        spare_.push_back(std::move(fiber));
      else
        fibers_.push_back(std::move(fiber));
    }
  }
  std::unique_ptr<Fiber> begin() {
    auto fiber = std::make_unique<Fiber>();
    ucontext_t& whole = fiber->context.whole;
    getcontext(&whole);
    whole.uc_stack.ss_sp = fiber->stack.get();
    whole.uc_stack.ss_size = kStack;
    const auto self = reinterpret_cast<uintptr_t>(this);
    makecontext(&whole, reinterpret_cast<void (*)()>(&Block::enter), 2, static_cast<unsigned>(self),
                static_cast<unsigned>(self >> 32));
    return fiber;
  }
  // Never returns: a finished fiber waits to be reused.
  static void enter(unsigned low, unsigned high) {
    auto* block = reinterpret_cast<Block*>(static_cast<uintptr_t>(low) | static_cast<uintptr_t>(high) << 32);
    for (Fiber* self = block->current_;;) {
      do {
        self->thread = place.thread.x = block->next_++;
        block->function_(block->arguments_);
      } while (!self->waited && block->next_ < block->threads_);
      self->state = State::done;
      change(self->context, block->main_);
    }
  }
  void resume(Fiber& fiber) {
    current_ = &fiber;
    place.thread.x = fiber.thread;
    change(main_, fiber.context);
  }

  void round() {
    if (fibers_.empty()) return;
    release();
    backwards_ = !backwards_;
    for (size_t i = 0; i < fibers_.size(); ++i) {
      Fiber& f = *fibers_[backwards_ ? fibers_.size() - 1 - i : i];
      if (f.state == State::ready) resume(f);
    }
    for (size_t i = fibers_.size(); i-- > 0;)
      if (fibers_[i]->state == State::done) spare_.push_back(std::move(fibers_[i]));
    std::erase(fibers_, nullptr);
  }

  // Resumes waiting threads when all remaining ones of their warp, or of the block, have arrived.
  void release() {
    bool moved = false, whole = true;
    std::vector<bool> apart(threads_ / kWarp + 1);  // warps with a thread that waits for the block
    for (const auto& f : fibers_) {
      whole = whole && f->state == State::at_block;
      if (f->state == State::at_block) apart[f->thread / kWarp] = true;
    }
    for (const auto& f : fibers_) {
      if (f->state == State::at_warp ? apart[f->thread / kWarp] : !whole) continue;
      f->state = State::ready;
      moved = true;
    }
    if (moved) return;
    std::fputs("a kernel's threads wait for each other at different places\n", stderr);
    std::abort();
  }

  void (*function_)(void**) = nullptr;
  void** arguments_ = nullptr;
  Context main_;
  Fiber* current_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_, spare_;
  uint32_t next_ = 0, threads_ = 0;
  bool backwards_ = false;
  uint64_t slots_[1024][2];
};

thread_local Block block;

}  // namespace

void meet_block() { block.meet(State::at_block); }
void meet_warp() { block.meet(State::at_warp); }
void* slot(uint32_t thread) { return block.slot(thread); }

void run(const Entry& kernel, const Three& blocks, const Three& threads, void** arguments) {
  place.threads = threads;
  place.blocks = blocks;
  for (uint32_t z = blocks.z; z-- > 0;)
    for (uint32_t y = blocks.y; y-- > 0;)
      for (uint32_t x = blocks.x; x-- > 0;) {
        place.block = {x, y, z};
        block.run(kernel.run, threads.x, arguments);
      }
}

}  // namespace harmonics::cuda::emulated
