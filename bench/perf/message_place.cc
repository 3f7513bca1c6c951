#include "bench/perf/message_place.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "gdr/gpu_system.h"
#include "transport/base/return_if_error.h"

namespace pacecar::perf {
namespace {

// A PCI address however it is written: sysfs has 0000:3b:00.0, nvidia-smi 00000000:3B:00.0, lspci
// 3b:00.0.
std::string bare_bus_id(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text.erase(0, text.find_first_not_of("0:"));
}

bool is_wanted(const Gpu& gpu, const GpuFlags& flags) {
  if (!flags.bus_id.empty()) return bare_bus_id(gpu.pci_bus_id) == bare_bus_id(flags.bus_id);
  return gpu.device == flags.device;
}

}  // namespace

Result<MessagePlace> find_place(const TestOptions& options) {
  MessagePlace place{.huge_pages = options.huge_pages, .gpu = {}, .dma_buf = options.gpu.dma_buf};
  if (!options.gpu.wanted()) return place;
  ASSIGN_OR_RETURN(const auto system, GpuSystem::open());
  std::vector<std::string> known;
  for (const Gpu& gpu : system->gpus()) {
    known.push_back(fmt::format("{} at {}", gpu.device, gpu.pci_bus_id));
    if (!is_wanted(gpu, options.gpu)) continue;
    ASSIGN_OR_RETURN(place.gpu, system->engine(gpu.device));
    return place;
  }
  const std::string wanted =
      options.gpu.bus_id.empty() ? fmt::format("{}", options.gpu.device) : options.gpu.bus_id;
  return fail(ErrorCode::kNotFound,
              fmt::format("there is no GPU {}: name one of {}", wanted, fmt::join(known, ", ")));
}

}  // namespace pacecar::perf
