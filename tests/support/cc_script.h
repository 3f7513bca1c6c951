// Feeds scripted signals to a controller and writes down its reaction, for golden files. Windows
// are in packets and rates in Mb/s, rounded, so that compilers agree.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "cc/controller.h"

namespace pacecar::test {

class CcScript {
 public:
  CcScript(Controller& controller, Bytes mtu) : controller_(controller), mtu_(mtu) {
    text_ = fmt::format("{:>9} {:<26} {:>10} {:>10}  {}\n", "time_us", "signal", "window_pkt",
                        "rate_mbps", "limited_by");
    record("start");
  }

  CcScript& wait(Duration d) {
    now_ = now_ + d;
    return *this;
  }
  // `packets` are acknowledged, `rtt` after the previous signal; as many stay in flight.
  CcScript& ack(int64_t rtt_us, Bytes packets) {
    wait(Duration::from_us(rtt_us));
    ack_at_once(rtt_us, packets);
    return *this;
  }
  CcScript& ack_at_once(int64_t rtt_us, Bytes packets) {
    controller_.on_ack(
        now_,
        {.rtt = Duration::from_us(rtt_us), .acked = packets * mtu_, .in_flight = packets * mtu_});
    record(fmt::format("ack rtt={}us n={}", rtt_us, packets));
    return *this;
  }
  // `packets` are acknowledged while ten are in flight: with more than ten a round trip is over.
  // The rest is as in `sample`.
  CcScript& ack(const std::string& signal, Bytes packets, FlowSignal sample) {
    acked_ += packets * mtu_;
    sample.acked = packets * mtu_;
    sample.in_flight = 10 * mtu_;
    sample.sent = acked_ + sample.in_flight;
    controller_.on_ack(now_, sample);
    record(signal);
    return *this;
  }
  CcScript& loss() {
    controller_.on_loss(now_, {.lost = mtu_});
    record("loss");
    return *this;
  }
  // A packet is trimmed while ten are in flight.
  CcScript& trim() {
    controller_.on_loss(now_, {.kind = LossKind::kTrimmed,
                               .lost = mtu_,
                               .in_flight = 10 * mtu_,
                               .sent = acked_ + 11 * mtu_});
    record("trim");
    return *this;
  }
  CcScript& timeout() {
    controller_.on_timeout(now_);
    record("timeout");
    return *this;
  }
  CcScript& grant(Rate rate, Duration phase, Duration validity, uint16_t epoch,
                  bool aligned = false) {
    controller_.on_grant(
        now_,
        {.rate = rate, .phase = phase, .aligned = aligned, .validity = validity, .epoch = epoch});
    record(fmt::format("grant {}G epoch={}", rate.gbps(), epoch));
    return *this;
  }
  CcScript& demand(const FlowStats& stats) {
    const auto demand = controller_.demand(now_, stats);
    if (demand && demand->is_credit) {
      record(fmt::format("wish {} units, {:#x}", demand->credit / 64, demand->epoch));
      return *this;
    }
    record(demand ? fmt::format("usable {:.1f}G wanted {}", demand->usable.gbps(), demand->wanted)
                  : "nothing to say");
    return *this;
  }
  CcScript& credit(uint64_t units) {
    Grant grant;
    grant.is_credit = true;
    grant.credit = units * 64;
    controller_.on_grant(now_, grant);
    record(fmt::format("credit {} units", units));
    return *this;
  }
  CcScript& look() {
    record("");
    return *this;
  }
  CcScript& note(const std::string& line) {
    text_ += "# " + line + "\n";
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  void record(const std::string& signal) {
    const FlowLimits d = controller_.decide(now_);
    text_ += fmt::format("{:>9.1f} {:<26} {:>10.2f} {:>10.0f}  {}", us(now_), signal,
                         static_cast<double>(d.window) / static_cast<double>(mtu_),
                         static_cast<double>(d.rate.bps()) / 1e6, to_string(d.limited_by));
    if (d.grid.period > Duration()) text_ += fmt::format(" grid={:.1f}", us(d.grid.point));
    if (d.first_send > now_) text_ += fmt::format(" first_send={:.1f}", us(d.first_send));
    if (d.credit != ~Bytes{0}) text_ += fmt::format(" may_send={}", d.credit);
    text_ += "\n";
  }
  static double us(Instant t) { return static_cast<double>(t.ns()) * 1e-3; }

  Controller& controller_;
  Bytes mtu_;
  Bytes acked_ = 0;
  Instant now_ = Instant::from_ns(0);
  std::string text_;
};

}  // namespace pacecar::test
