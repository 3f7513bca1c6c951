#include "bench/perf/message_place.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "gdr/gpu_system.h"

namespace pacecar::perf {
namespace {

constexpr size_t kDomainDigits = 4;

bool is_wanted(const Gpu& gpu, const GpuFlags& flags) {
  if (!flags.bus_id.empty()) return gpu.pci_bus_id == sysfs_bus_id(flags.bus_id);
  return gpu.device == flags.device;
}

}  // namespace

std::string sysfs_bus_id(std::string_view text) {
  std::string id(text);
  std::ranges::transform(id, id.begin(), [](unsigned char c) { return std::tolower(c); });
  if (std::ranges::count(id, ':') < 2) return std::string(kDomainDigits, '0') + ':' + id;
  const size_t digits = id.find(':');
  const size_t zeros = std::min(id.find_first_not_of('0'), digits);
  if (digits <= kDomainDigits) return std::string(kDomainDigits - digits, '0') + id;
  return id.substr(std::min(zeros, digits - kDomainDigits));
}

Result<MessagePlace> find_place(const TestOptions& options) {
  MessagePlace place{.huge_pages = options.huge_pages, .gpu = {}, .dma_buf = options.gpu.dma_buf};
  if (!options.gpu.wanted()) return place;
  const auto system = GpuSystem::open();
  if (!system) return tl::unexpected(system.error());
  std::vector<std::string> known;
  for (const Gpu& gpu : (*system)->gpus()) {
    known.push_back(fmt::format("{} at {}", gpu.device, gpu.pci_bus_id));
    if (!is_wanted(gpu, options.gpu)) continue;
    auto engine = (*system)->engine(gpu.device);
    if (!engine) return tl::unexpected(engine.error());
    place.gpu = std::move(*engine);
    return place;
  }
  const std::string wanted =
      options.gpu.bus_id.empty() ? fmt::format("{}", options.gpu.device) : options.gpu.bus_id;
  return fail(ErrorCode::kNotFound,
              fmt::format("there is no GPU {}: name one of {}", wanted, fmt::join(known, ", ")));
}

}  // namespace pacecar::perf
