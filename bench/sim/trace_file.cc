#include "bench/sim/trace_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

namespace pacecar {

Result<std::unique_ptr<TraceFile>> TraceFile::create(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) {
    return fail(ErrorCode::kSystem,
                fmt::format("cannot write the trace '{}': {}", path, std::strerror(errno)));
  }
  return std::unique_ptr<TraceFile>(new TraceFile(path, file));
}

void TraceFile::write(Duration time, std::string_view event, std::string_view what,
                      uint64_t number) {
  fmt::print(file_.get(), "{{\"time_ns\": {}, \"event\": \"{}\", \"{}\": {}}}\n", time.ns(), event,
             what, number);
}

void TraceFile::write_rate(Duration time, uint64_t flow, const Explanation& why) {
  if (rates_ > kMostRates) return;
  if (rates_++ == kMostRates) return write(time, "rates-left-out", "flow", flow);
  fmt::print(file_.get(),
             "{{\"time_ns\": {}, \"event\": \"rate\", \"flow\": {}, \"rate_bps\": {}, "
             "\"limited_by\": \"{}\", \"grant_bps\": {}, \"grant_age_ns\": {}, \"epoch\": {}, "
             "\"phase_ns\": {}, \"share_bps\": {}, \"core_bps\": {}, \"budget_bps\": {}}}\n",
             time.ns(), flow, why.rate.bps(), to_string(why.limited_by), why.grant.bps(),
             why.grant_age.ns(), why.epoch, why.phase.ns(), why.share.bps(), why.core.bps(),
             why.rate_max.bps());
}

Result<void> TraceFile::close() {
  const bool good = std::ferror(file_.get()) == 0 && std::fflush(file_.get()) == 0;
  if (good) return {};
  return fail(ErrorCode::kSystem,
              fmt::format("cannot write the trace '{}': is its disk full?", path_));
}

}  // namespace pacecar
