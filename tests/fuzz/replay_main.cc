// Replays a corpus through a libFuzzer entry point where the compiler has no libFuzzer: every file
// of the directories named on the command line, and each of its prefixes; after --whole only whole
// files.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  size_t inputs = 0;
  bool whole = false;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--whole") {
      whole = true;
      continue;
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i])) {
      if (!entry.is_regular_file()) continue;
      std::ifstream file(entry.path(), std::ios::binary);
      const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
      for (size_t size = whole ? bytes.size() : 0; size <= bytes.size(); ++size) {
        // A copy of exactly this size, so that the address sanitizer sees every overrun.
        const std::vector<uint8_t> input(bytes.begin(), bytes.begin() + static_cast<long>(size));
        LLVMFuzzerTestOneInput(input.data(), input.size());
        ++inputs;
      }
    }
  }
  std::printf("replayed %zu inputs\n", inputs);
  return inputs == 0 ? 1 : 0;
}
