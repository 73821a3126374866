#include "engine/cli/run/crash_report.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <fcntl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include "engine/cli/terminal/exit_codes.hpp"
#include "engine/cli/run/stop_signals.hpp"
#include "engine/plugin/plugin_code.hpp"

namespace harmonics::engine::cli {

namespace {

// The code below runs in signal handlers, and must not use locks, the heap or standard I/O.

constexpr std::array kCrashes = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
constexpr int kMostFrames = 256;

std::atomic<bool> crash_reports{false}, erases_line{false};
std::atomic<pid_t> crash_teller{0};  // the thread that reports the crash
std::atomic<int> crash_depth{0};     // nesting depth in that thread
std::array<char, PATH_MAX> way_on_folder{};
std::array<char, 4096> way_on_command{};
std::atomic<bool> has_way_on{false};

// Text in a fixed buffer that is written by one system call. Text beyond the buffer is dropped.
class CrashText {
 public:
  CrashText& operator<<(std::string_view text) {
    const size_t n = std::min(text.size(), text_.size() - used_);
    std::memcpy(text_.data() + used_, text.data(), n);
    used_ += n;
    return *this;
  }
  void write() const {
    for (size_t at = 0; at < used_;) {
      const ssize_t n = ::write(STDERR_FILENO, text_.data() + at, used_ - at);
      if (n <= 0) return;
      at += static_cast<size_t>(n);
    }
  }

 private:
  std::array<char, 3 * PATH_MAX> text_;
  size_t used_ = 0;
};

struct FrameWalk {
  const PluginCode* found = nullptr;
  int frames = 0;
};

_Unwind_Reason_Code look_at_frame(_Unwind_Context* context, void* data) {
  auto& walk = *static_cast<FrameWalk*>(data);
  walk.found = plugin_at(reinterpret_cast<const void*>(_Unwind_GetIP(context)));
  return walk.found || ++walk.frames == kMostFrames ? _URC_END_OF_STACK : _URC_NO_REASON;
}

// Returns the innermost plugin on this thread's call stack.
const PluginCode* plugin_on_stack() {
  FrameWalk walk;
  _Unwind_Backtrace(look_at_frame, &walk);
  return walk.found;
}

// Returns the plugin at the address of the crash, or at the caller's address if a null function was called.
const PluginCode* plugin_at_crash(const void* context) {
  const auto& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  const auto at = static_cast<uintptr_t>(machine.gregs[REG_RIP]);
  if (at == 0) return plugin_at(*reinterpret_cast<void* const*>(machine.gregs[REG_RSP]));
#else
  const auto at = static_cast<uintptr_t>(machine.pc);
  if (at == 0) return plugin_at(reinterpret_cast<const void*>(machine.regs[30]));
#endif
  return plugin_at(reinterpret_cast<const void*>(at));
}

// Returns whether the stack overflowed.
bool used_up_stack(int signal, const siginfo_t& info, const void* context) {
  if (signal != SIGSEGV || info.si_code <= 0) return false;
  const auto& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  const auto top = static_cast<uintptr_t>(machine.gregs[REG_RSP]);
#else
  const auto top = static_cast<uintptr_t>(machine.sp);
#endif
  const auto at = reinterpret_cast<uintptr_t>(info.si_addr);
  constexpr uintptr_t kNear = 64 << 10;
  return at < top + 4096 && at + kNear > top;
}

// Returns the number in "checkpoint-000012-step-6000.safetensors", or 0 for other names.
uint64_t number_of_checkpoint(std::string_view name) {
  constexpr std::string_view kBegin = "checkpoint-", kEnd = ".safetensors";
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) return 0;
  uint64_t number = 0;
  for (size_t at = kBegin.size(); at < name.size() && name[at] >= '0' && name[at] <= '9'; ++at)
    number = 10 * number + static_cast<uint64_t>(name[at] - '0');
  return number;
}

struct DirectoryEntry {
  uint64_t inode;
  int64_t offset;
  unsigned short length;
  unsigned char type;
};

// Finds the newest checkpoint in the folder by the number in its name. Returns false if there is none.
bool newest_checkpoint(std::array<char, NAME_MAX + 1>& into) {
  const int folder = ::open(way_on_folder.data(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return false;
  uint64_t newest = 0;
  alignas(uint64_t) std::array<char, 8192> entries;
  constexpr size_t kName = sizeof(uint64_t) + sizeof(int64_t) + sizeof(unsigned short) + sizeof(unsigned char);
  for (long n; (n = ::syscall(SYS_getdents64, folder, entries.data(), entries.size())) > 0;)
    for (long at = 0; at < n;) {
      DirectoryEntry head;
      std::memcpy(&head, entries.data() + at, sizeof head);
      const std::string_view name(entries.data() + at + kName);
      if (const uint64_t number = number_of_checkpoint(name);
          number >= newest && number > 0 && name.size() < into.size()) {
        newest = number;
        std::memcpy(into.data(), name.data(), name.size());
        into[name.size()] = 0;
      }
      at += head.length;
    }
  ::close(folder);
  return newest > 0;
}

void tell_crash(const PluginCode* plugin, std::string_view what) {
  CrashText text;
  if (erases_line) text << "\r\x1b[K";
  if (plugin)
    text << "error: plugin '" << plugin->id << "' " << what << "\nnote: its file is " << plugin->path << "\n";
  else
    text << "error: the program " << what
         << "\nnote: no code of a plugin was running\nhelp: this is a bug; please report the command line and the "
            "files it read\n";
  std::array<char, NAME_MAX + 1> checkpoint;
  if (has_way_on && newest_checkpoint(checkpoint))
    text << "the last checkpoint: " << way_on_folder.data() << "/" << checkpoint.data()
         << "\nto continue:  " << way_on_command.data() << "\n";
  text.write();
  LeftBehind::remove();
}

std::string_view name_of_crash(int signal) {
  switch (signal) {
    case SIGSEGV:
      return "crashed with SIGSEGV";
    case SIGBUS:
      return "crashed with SIGBUS";
    case SIGFPE:
      return "crashed with SIGFPE";
    case SIGILL:
      return "crashed with SIGILL";
    default:
      return "crashed with SIGABRT";
  }
}

void on_crash(int signal, siginfo_t* info, void* context) {
  const auto self = static_cast<pid_t>(::syscall(SYS_gettid));
  pid_t none = 0;
  const bool first = crash_teller.compare_exchange_strong(none, self);
  if (!first && none != self)
    for (;;) ::pause();  // another thread reports the crash and ends the program
  const int depth = crash_depth++;
  const PluginCode* plugin = nullptr;
  if (depth == 0) {  // otherwise the lookup of the plugin crashed
    plugin = plugin_at_crash(context);
    if (!plugin) plugin = plugin_on_stack();
  }
  const bool stack = used_up_stack(signal, *info, context);
  if (depth < 2) tell_crash(plugin, stack ? "crashed with SIGSEGV: stack overflow" : name_of_crash(signal));
  std::signal(signal, SIG_DFL);
  ::raise(signal);
}

void on_exit_call() {
  if (!crash_reports) return;
  tell_crash(plugin_on_stack(), "ended the process with exit() before the run was over");
  ::_exit(kFailed);
}

}  // namespace

CrashReport::CrashReport() {
  plugin_on_stack();  // the first stack walk loads code, which a signal handler must not do
  static const int registered = std::atexit(on_exit_call);
  crash_reports = registered == 0;
  erases_line = ::isatty(STDERR_FILENO) != 0;
  for (const int signal : kCrashes) {
    struct sigaction before {};
    if (::sigaction(signal, nullptr, &before) != 0 || before.sa_handler != SIG_DFL) continue;
    struct sigaction act {};
    act.sa_sigaction = on_crash;
    act.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    ::sigaction(signal, &act, nullptr);
  }
}

CrashReport::~CrashReport() {
  crash_reports = has_way_on = false;
  for (const int signal : kCrashes) {
    struct sigaction now {};
    if (::sigaction(signal, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_crash)
      std::signal(signal, SIG_DFL);
  }
}

void CrashReport::set_resume_command(const std::string& folder, const std::string& text) {
  has_way_on = false;
  if (folder.size() >= way_on_folder.size() || text.size() >= way_on_command.size()) return;
  std::memcpy(way_on_folder.data(), folder.c_str(), folder.size() + 1);
  std::memcpy(way_on_command.data(), text.c_str(), text.size() + 1);
  has_way_on = true;
}

}  // namespace harmonics::engine::cli
