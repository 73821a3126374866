// Runs a fuzz target over files and folders without libFuzzer: the regression corpus as an ordinary test.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

void run(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
  std::fprintf(stderr, "%s: %zu bytes\n", path.c_str(), bytes.size());  // the last line names the crashing file
  // A copy of exact size, so that a sanitizer detects reads beyond its end.
  const std::vector<uint8_t> exact(bytes.begin(), bytes.end());
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

}  // namespace

int main(int count, char** arguments) {
  size_t runs = 0;
  for (int i = 1; i < count; ++i) {
    const std::filesystem::path path = arguments[i];
    if (!std::filesystem::is_directory(path)) {
      run(path);
      ++runs;
      continue;
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
      if (!entry.is_regular_file()) continue;
      run(entry.path());
      ++runs;
    }
  }
  std::printf("%zu inputs\n", runs);
  if (runs == 0) std::fprintf(stderr, "no inputs: name files or folders that hold some\n");
  return runs == 0 ? 1 : 0;
}
