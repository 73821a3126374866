#include "engine/plugin/loader.hpp"

#include <deque>
#include <dlfcn.h>
#include <fcntl.h>
#include <filesystem>
#include <mutex>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>

#define BOOST_DLL_USE_STD_FS  // header-only
#include <boost/dll/shared_library.hpp>
#include <fmt/core.h>

#include "engine/base/file.hpp"
#include "engine/base/nearest_file.hpp"
#include "engine/plugin/descriptor.hpp"
#include "engine/plugin/pending_items.hpp"
#include "engine/plugin/plugin_code.hpp"
#include "engine/plugin/trial.hpp"

namespace harmonics::engine {

namespace fs = std::filesystem;

FileStamp stamp_of(const std::string& path) {
  struct stat s {};
  if (::stat(path.c_str(), &s) != 0) return {};
  return {s.st_size, s.st_mtim.tv_sec, s.st_mtim.tv_nsec};
}

void* Library::symbol(const char* name) const { return opened_.has(name) ? &opened_.get<char>(name) : nullptr; }

namespace {

using EntryPoint = void (*)(FunctionRegistry&);

struct Opened {
  std::shared_ptr<Library> library;
  std::string id;
  EntryPoint entry;
  uint16_t contract_minor;
};

std::shared_ptr<const MappedFile> map_plugin(const std::string& path) {
  try {
    return MappedFile::open(path);
  } catch (const Error& e) {
    throw Error(ErrorKind::Plugin, fmt::format("plugin '{}' cannot be read: {}", path, e.what()));
  }
}
std::span<const std::byte> bytes_of(const MappedFile& file) {
  return {static_cast<const std::byte*>(file.data()), file.bytes()};
}

// Throws the system loader's message without its leading path.
[[noreturn]] void refuse_by_system(const std::string& path, const std::string& file) {
  const char* said = dlerror();
  std::string text = said ? said : "unknown reason";
  if (text.rfind(file + ": ", 0) == 0) text.erase(0, file.size() + 2);
  Error error(ErrorKind::Plugin, fmt::format("plugin '{}' cannot be loaded: {}", path, text));
  if (text.find("undefined symbol") != std::string::npos)
    error.note("link it with the library that has the symbol, or define it; the program exports no symbols to plugins");
  else if (text.find("cannot open shared object file") != std::string::npos)
    error.note("install the library it needs, or build the plugin with its folder in the run path");
  throw error;
}

// Opens a library with RTLD_NOW and RTLD_LOCAL. It is never closed, because closing a library with GNU unique symbols
// makes objects crash that still use them.
const boost::dll::shared_library& open_for_good(const std::string& path, const std::string& file) {
  namespace dll = boost::dll;
  static std::mutex mutex;
  static auto* const libraries = new std::deque<dll::shared_library>;  // never destroyed
  std::error_code failed;
  dll::shared_library library;
  library.load(file, dll::load_mode::rtld_now | dll::load_mode::rtld_local, failed);
  if (failed) refuse_by_system(path, file);
  const std::lock_guard lock(mutex);
  return libraries->emplace_back(std::move(library));
}

// Returns whether the file is this program. dlopen() refuses it, but Boost.DLL would return a handle.
bool is_this_program(const std::string& file) {
  std::error_code unknown;
  return fs::equivalent(file, "/proc/self/exe", unknown);
}

std::string stem_of(const fs::path& path) {
  std::string stem = path.stem().string();
  return stem.rfind("lib", 0) == 0 && stem.size() > 3 ? stem.substr(3) : stem;
}

// A temporary name for a new build of a library, because dlopen() loads a path only once. The name is a link beside the
// original, so that relative dependencies are found, or else a copy in the temporary folder. Removed by the destructor.
class Beside {
 public:
  explicit Beside(const std::string& file) {
    const fs::path original(file);
    std::error_code unset;
    std::string why = "no place for a copy";
    for (const fs::path& place : {original.parent_path(), fs::temp_directory_path(unset)}) {
      std::string name = (place / (".harmonics-" + original.filename().string() + "-XXXXXX")).string();
      const int made = place.empty() ? -1 : ::mkostemp(name.data(), O_CLOEXEC);
      if (made < 0) continue;
      ::close(made);
      std::error_code failed, ignored;
      fs::copy_file(file, name, fs::copy_options::overwrite_existing, failed);
      if (!failed) {
        path_ = name;
        return;
      }
      why = fmt::format("its copy '{}' cannot be written: {}", name, failed.message());
      fs::remove(name, ignored);
    }
    throw Error(ErrorKind::Plugin, fmt::format("plugin '{}' cannot be opened a second time: {}", file, why));
  }
  ~Beside() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

enum class How { Tried, Untried, Beside };

Opened open_library(const std::string& path, How how) {
  std::error_code unreachable;  // for example a loop of links
  const bool regular = fs::is_regular_file(path, unreachable);
  if (unreachable && unreachable != std::errc::no_such_file_or_directory)
    throw Error(ErrorKind::NoInput, fmt::format("plugin '{}' cannot be opened: {}", path, unreachable.message()));
  if (!fs::exists(path, unreachable)) {
    Error e(ErrorKind::NoInput, fmt::format("plugin '{}' does not exist", path));
    if (const std::string advice = advice_for_missing(path); !advice.empty()) e.note(advice);
    throw e;
  }
  if (fs::is_directory(path, unreachable))
    throw Error(ErrorKind::Plugin, fmt::format("plugin '{}' is a folder", path), {},
                {"give the library that was built in it, such as " + (fs::path(path) / "build/libNAME.so").string()});
  if (!regular) throw Error(ErrorKind::Plugin, fmt::format("plugin '{}' is not a file", path));
  check_trust(path);
  const std::string file = fs::canonical(path).string();
  const hx_plugin_abi descriptor = read_descriptor(path);
  const auto bytes = map_plugin(path);
  if (!read_whole(*bytes, [&] { return defines_symbol(bytes_of(*bytes), path, "harmonics_register"); }))
    throw Error(ErrorKind::Plugin, fmt::format("plugin '{}' has no function harmonics_register", path))
        .note("define: extern \"C\" void harmonics_register(harmonics::FunctionRegistry& registry) { ... }");
  const FileStamp stamp = stamp_of(file);
  const std::optional<Beside> copy = how == How::Beside ? std::optional<Beside>(std::in_place, file) : std::nullopt;
  const std::string& opened = copy ? copy->path() : file;
  if (is_this_program(file))
    throw Error(ErrorKind::Plugin, fmt::format("plugin '{}' is this program itself, not a library", path));
  if (how != How::Untried) try_to_open(path, opened);
  auto library = std::make_shared<Library>(file, open_for_good(path, opened), stamp);
  void* const symbol = library->symbol("harmonics_register");
  if (!symbol) throw Error(ErrorKind::Plugin, fmt::format("plugin '{}' does not export harmonics_register", path));
  std::string id = descriptor.id[0] ? descriptor.id : stem_of(path);
  remember_code(id, file, symbol);
  return {std::move(library), std::move(id), reinterpret_cast<EntryPoint>(symbol), descriptor.abi_minor};
}

// Calls the plugin's entry point and converts all its exceptions. Only what() is used, because a plugin's Error may
// have another memory layout.
void run_entry(const Opened& opened, const std::string& path, hx_registry& pending) {
  hx_registration registration{sizeof(hx_registration), api_for(opened.contract_minor), &pending};
  const auto failed = [&](const std::string& what) {
    return Error(ErrorKind::Plugin, fmt::format("plugin '{}' failed while registering: {}", path, what))
        .note("nothing of it is used: correct harmonics_register, or leave the plugin out");
  };
  take_refusal();
  try {
    opened.entry(reinterpret_cast<FunctionRegistry&>(registration));
  } catch (const std::exception& e) {
    throw failed(e.what());
  } catch (...) {
    throw failed("it threw something that is not a std::exception");
  }
  if (const std::string refused = take_refusal(); !refused.empty()) throw failed(refused);
}

template <typename Add>
void load(const std::string& path, Add&& add, How how = How::Tried) {
  const Opened opened = open_library(path, how);
  hx_registry pending;
  pending.plugin = opened.id;
  pending.path = opened.library->path();
  pending.library = opened.library;
  pending.contract_minor = opened.contract_minor;
  run_entry(opened, path, pending);
  for (std::shared_ptr<Item>& item : pending.pending) add(std::move(item));
}

}  // namespace

hx_plugin_abi read_descriptor(const std::string& path) {
  const auto file = map_plugin(path);
  const hx_plugin_abi descriptor = read_whole(*file, [&] { return parse_descriptor(bytes_of(*file), path); });
  check_contract(descriptor, path);
  return descriptor;
}

void load_plugin(const std::string& path, Registry& registry) {
  load(path, [&](std::shared_ptr<Item> item) { registry.add(std::move(item)); });
}

void load_untried(const std::string& path, Registry& registry) {
  load(
      path, [&](std::shared_ptr<Item> item) { registry.add(std::move(item)); }, How::Untried);
}

std::vector<std::shared_ptr<Item>> load_beside(const std::string& path) {
  std::vector<std::shared_ptr<Item>> items;
  load(
      path, [&](std::shared_ptr<Item> item) { items.push_back(std::move(item)); }, How::Beside);
  return items;
}

void load_announced(const std::string& path, Registry& registry) {
  load(path, [&](std::shared_ptr<Item> item) { registry.add_announced(std::move(item)); });
}

}  // namespace harmonics::engine
