#include "cc/pace/sender.h"

#include <cmath>
#include <limits>
#include <utility>

#include "cc/grant_limit.h"
#include "cc/pace/phase.h"
#include "cc/rate_law.h"
#include "transport/base/check.h"

namespace pacecar {
namespace {

// No flow goes below this, so it always notices when congestion ends: 4 KiB in a third of a second.
constexpr Rate kLeastRate = Rate::from_bps(100'000);

// --- beginning ---
// Packets that a flow first sends into an unknown link.
constexpr Bytes kFirstPackets = 16;
// Round trips for which another flow's finding that the network is clear counts.
constexpr int64_t kClearRoundTrips = 16;
// A flow may first send 1/4 of a round trip's worth on a busy link.
constexpr int64_t kFirstShare = 4;
// A message of up to 1/16 of a bandwidth-delay product goes at once on a busy link.
constexpr int64_t kShortShare = 16;
constexpr double kMostOvercommitted = 4;
// In their turn brief messages leave so many times faster than by even division.
constexpr double kTurnSpeedUp = 3;
// A flow that is granted this share of what it can use is limited by its own link.
constexpr double kOwnLinkShare = 0.6;
// A flow that began on a busy link and got no grant continues at the hold divided by this.
constexpr double kUnansweredShare = 16;

// --- grants ---
// The least rate without a valid grant, of the line rate.
constexpr double kLapsedShare = 1.0 / 256;
// How many epochs a CTS slot's grant may be ahead to count.
constexpr int16_t kNearEpochs = 256;
// Receivers gather acknowledgements: so much is in flight in addition to a round trip's worth. It
// is also the most that a flow adds to a queue before its rate is cut.
constexpr Bytes kWindowBursts = 3;
constexpr Bytes kWindowPackets = 4;
constexpr Duration kGathered = Duration::from_us(250);  // sent in it, at most the NIC's burst
constexpr int64_t kWindowJitters = 4;
constexpr int kWindowShift = 6;  // the window beyond a round trip, in 64ths of one

// A brief message may be late for its place in the grid by 1/2 of a gap.
constexpr int64_t kLateShare = 2;

// --- demands ---
// A backlog that is sent within this part of a round trip, or leaves at once, gets no demand: the
// grant would come too late.
constexpr double kTooSmall = 0.25;
// A demand is renewed when the announced bytes are sent within so many round trips.
constexpr double kAnnounceAhead = 4;
constexpr Bytes kMostAnnounced = Bytes{1} << 30;  // the demand counts modulo 2^32
constexpr double kUsableChange = 1.0 / 32;        // smaller ones are not advertised
constexpr double kUsableChangeBeyond = 1.0 / 4;   // likewise where the grant is the limit
constexpr double kFarBeyond = 2;                  // times the grant: no change is advertised
// A flow that has been idle for so long (and for the host's pause) sends a demand of 0, in case a
// count went wrong.
constexpr Duration kFinalDemandAfter = Duration::from_ms(1);
// Round trips after which an unanswered demand is repeated; twice as many each time, because a
// receiver does not answer if the grant does not change.
constexpr int64_t kPatience = 2;
constexpr int kMostDoublings = 16;
// Active flows are visited so often within the validity of a grant.
constexpr int64_t kSweepsPerValidity = 4;

Rate rate_of(double bps) {
  return std::max(Rate::from_bps(static_cast<uint64_t>(std::max(bps, 0.0))), kLeastRate);
}

double bps(Rate rate) { return static_cast<double>(rate.bps()); }

}  // namespace

PaceController::PaceController(const FlowEnvironment& environment, const PaceConstants& constants,
                               LinkShare& link, uint32_t flow)
    : environment_(environment),
      constants_(constants),
      link_(link),
      flow_(flow),
      ahead_parts_(static_cast<Bytes>((constants.window_round_trips - 1) * (1 << kWindowShift))),
      window_jitter_(environment.jitter * kWindowJitters),
      brief_message_(environment.line_rate.bytes_in(base_round_trip(environment))),
      core_(environment, constants_) {
  PACECAR_CHECK(environment.line_rate > Rate() && environment.mtu > 0);
  link_.join();
}

PaceController::~PaceController() {
  link_.set_queued(flow_, false);
  link_.set(flow_, Rate(), weight_);
  if (has_backlog()) link_.end();
  link_.leave();
}

void PaceController::set_weight(Instant now, uint32_t weight) {
  weight_ = weight;
  refresh(now);
}

// --- signals ---

void PaceController::on_ack(Instant now, const FlowSignal& ack) {
  last_ack_ = now;
  if (link_.listens()) report_to_link(now, ack);
  if (core_.on_ack(now, ack, static_cast<double>(decision_.rate.bps()))) refresh(now);
  if (core_.clear()) link_.note_clear(now);
}

void PaceController::report_to_link(Instant now, const FlowSignal& ack) {
  const Bytes wire = on_wire(ack.acked, environment_.mtu, environment_.overhead);
  if (ack.rtt <= Duration()) {
    return link_.on_acked(now, wire, Duration::max(), /*overtaken=*/false, flow_);
  }
  const Duration base = std::min(core_.base_rtt(), ack.rtt);
  const auto sent_ns = static_cast<uint32_t>((now - ack.rtt).ns());
  const bool overtaken = echoes_.overtaken(sent_ns, link_.spread());
  link_.on_acked(now, wire, ack.rtt - base, overtaken, flow_);
}

void PaceController::on_loss(Instant now, const Loss& loss) {
  if (core_.on_loss(now, loss)) refresh(now);
  if (loss.kind == LossKind::kMissing) {
    link_.on_lost(on_wire(loss.lost, environment_.mtu, environment_.overhead));
  }
}

void PaceController::on_timeout(Instant now) {
  core_.on_timeout(choose(now).rate);
  refresh(now);
}

// The newest epoch wins. A grant that is neither aligned nor busy may be a CTS slot's, old enough
// for epochs to have wrapped: it counts only if it is at most kNearEpochs newer, and a grant with
// either flag replaces it whatever the epochs.
bool PaceController::outranks(const Grant& grant) const {
  if (!has_grant_) return true;
  const auto ahead = static_cast<int16_t>(static_cast<uint16_t>(grant.epoch - grant_.epoch));
  const auto own = [](const Grant& word) { return word.aligned || word.busy; };
  if (!own(grant)) return ahead > 0 && ahead <= kNearEpochs;
  return ahead > 0 || !own(grant_);
}

void PaceController::on_grant(Instant now, const Grant& grant) {
  if (grant.is_credit || !outranks(grant)) return;
  grant_ = grant;
  grant_.rate = std::max(grant.rate, kLeastRate);
  grant_.validity =
      std::clamp(grant.validity, GrantedController::kMinValidity, GrantedController::kMaxValidity);
  grant_.phase = std::clamp(grant.phase, Duration(), GrantedController::kMaxPhase);
  granted_at_ = now;
  has_grant_ = true;
  opening_ = opening_ && grant.guessed;
  if (announced_) {
    const bool enough = bps(grant.rate) >= bps(advertised_.usable) * kOwnLinkShare;
    own_link_limits_ = enough && (own_link_limits_ || link_.backlogged() > 1);
  }
  short_ = short_ && grant.busy;
  if (grant_overdue_) core_.resume();
  grant_overdue_ = false;
  align_wanted_ |= grant.aligned;
  refresh(now);  // even if the rate is unchanged: the grant may have expired in between
}

// --- the rate ---

Duration PaceController::halving() const { return std::max(core_.base_rtt(), environment_.jitter); }

// True on a busy link until the flow's own grant arrives, or should have arrived.
bool PaceController::beginning(Instant now) const {
  return has_backlog() && grant_.busy && !short_ && now - busy_since_ < halving() * 2;
}

// Whether a message is so short that it leaves at once on a busy link, whatever the grant.
bool PaceController::negligible(Bytes message) const {
  const Duration round_trip = base_round_trip(environment_);
  return grant_.busy && message <= environment_.line_rate.bytes_in(round_trip / kShortShare);
}

// The factor of the hold with which a flow begins. Before the fan-in is known, a host assumes that
// its peers have its own fan-out; for a long message within a bound, because the others may be
// one-to-many. Afterwards: a sender that serves several flows divides its own link among them and
// does not use all of their holds; while some only wait for their last acknowledgements, the link
// would be idle.
double PaceController::overcommitted() const {
  if (grant_.guessed && brief_) return link_.spare_fan_out();
  const double flows =
      grant_.guessed ? link_.spare_fan_out() : static_cast<double>(link_.backlogged());
  const double shared = std::clamp(flows, 1.0, kMostOvercommitted);
  return grant_.guessed ? shared : std::max(shared, queueing());
}

// The factor with which messages like this one make a queue of half a round trip if all expected
// flows begin at once. Grants that decide the order would come too late for such messages; the
// queue serves them in order of arrival.
double PaceController::queueing() const {
  if (!brief_) return 1;
  const Bytes queued = grant_.rate.bytes_in(base_round_trip(environment_) / kQueueShare);
  const Bytes message = stats_.acked + stats_.backlog - (brief_until_ - brief_message_);
  if (queued >= message) return std::numeric_limits<double>::infinity();
  return static_cast<double>(message) / static_cast<double>(message - queued);
}

// Whether the receiver grants about what the flow can use, so that our own link is the limit.
bool PaceController::limited_by_own_link(double granted) const {
  if (own_link_limits_) return true;
  const auto flows = static_cast<double>(link_.backlogged());
  return flows > 1 && granted * flows >= link_.reach() * kOwnLinkShare;
}

// The rate at which a brief message leaves in its turn, when those before it are gone and others
// wait: the sum of what the receivers get is the same, and they cut it if it is too much.
double PaceController::rate_in_turn() const {
  const auto flows = static_cast<double>(std::max<size_t>(link_.backlogged(), 1));
  return link_.reach() * std::min(kTurnSpeedUp / flows, 1.0);
}

// The granted rate as in force now, in bit/s.
double PaceController::granted(Instant now) const {
  const auto line = static_cast<double>(environment_.line_rate.bps());
  if (!has_grant_ || grant_overdue_) return line;
  auto rate = static_cast<double>(grant_.rate.bps());
  if (short_) return line;
  if (opening_) rate = std::min(rate * overcommitted(), line);
  if (queues() && limited_by_own_link(rate)) rate = std::max(rate, rate_in_turn());
  if (grant_.busy && !beginning(now)) rate /= kUnansweredShare;
  const Duration over = now - std::max(granted_at_, busy_since_) - grant_.validity;
  if (over < Duration() || !has_backlog()) return rate;
  const int64_t halvings = std::min<int64_t>(1 + over.ns() / halving().ns(), 60);
  return std::max(std::ldexp(rate, static_cast<int>(-halvings)),
                  std::min(rate, link_.line() * kLapsedShare));
}

PaceController::Choice PaceController::choose(Instant now) const {
  const double grant = granted(now);
  const double share = link_.share(flow_);
  const double core = core_.rate();
  const auto line = static_cast<double>(environment_.line_rate.bps());
  Choice choice{.rate = std::min(share, line), .limited_by = limit_at_line(environment_)};
  if (core < choice.rate) choice = {core, LimitedBy::kNetwork};
  if (grant < choice.rate) choice = {grant, LimitedBy::kGrant};
  return choice;
}

// Updates this flow's limit on our link.
void PaceController::refresh(Instant now) {
  const Rate limit = has_unsent() ? rate_of(std::min(granted(now), core_.rate())) : Rate();
  link_.set(flow_, limit, weight_);
}

FlowLimits PaceController::decide(Instant now) {
  const Duration silence = now - std::max(granted_at_, busy_since_);
  if (has_grant_ && has_backlog() && silence >= grant_.validity) {
    if (!grant_overdue_ && silence >= grant_.validity * 2 && now - last_ack_ <= halving() * 2) {
      core_.restart(granted(now));
      grant_overdue_ = true;
    }
    refresh(now);
  }
  if (queues()) refresh(now);  // its rate in its turn depends on the number of flows
  const Choice choice = choose(now);
  const Rate rate = std::min(rate_of(choice.rate), environment_.line_rate);
  const bool waits = beginning(now);
  decision_.credit = waits ? first_limit_ : ~Bytes{0};
  const Duration round_trip = core_.base_rtt();
  const Bytes burst =
      pace_burst(rate, pace_moment(environment_), environment_.mtu, environment_.burst_bytes);
  decision_.rate = rate;
  at_once_ = rate.bytes_in(environment_.jitter);
  decision_.limited_by = choice.limited_by;
  decision_.burst = burst;
  const Bytes gathered = std::min(rate.bytes_in(kGathered), environment_.burst_bytes);
  const Bytes bursts = kWindowBursts * std::max(burst, gathered);
  const Bytes worth = rate.bytes_in(round_trip);
  const Bytes ahead = ((worth * ahead_parts_) >> kWindowShift) + kWindowPackets * environment_.mtu;
  decision_.window = worth + std::max(ahead, bursts) + rate.bytes_in(window_jitter_);
  if (link_.starting()) {  // each acknowledged byte makes room for two
    const Bytes first = kFirstPackets * environment_.mtu + stats_.acked;
    decision_.window = std::min(decision_.window, first);
  }
  decision_.aligned = false;
  decision_.grid = {};
  // The guess changes when other flows of the NIC begin at the same instant: then it begins again.
  begins_ |= opening_ && grant_.guessed && now == busy_since_ &&
             link_.backlogged() != backlogged_at_begin_;
  const bool begins = std::exchange(begins_, false) && has_backlog();
  if (begins) backlogged_at_begin_ = link_.backlogged();
  if (begins) align_wanted_ = grant_.aligned && stats_.backlog > environment_.mtu;
  if (align_wanted_ && has_backlog()) align(now, rate, burst);
  if (begins) begin(now);
  return decision_;
}

// Aligns the packets to the receiver's grid.
void PaceController::align(Instant now, Rate rate, Bytes burst) {
  align_wanted_ = false;
  const bool possible = grant_.aligned && decision_.limited_by == LimitedBy::kGrant &&
                        rate == grant_.rate && keeps_phases(environment_);
  if (!possible) return;
  const double gap = pace_gap_ns(rate, burst, environment_.mtu, environment_.overhead);
  const Instant grid = granted_at_ - base_round_trip(environment_) + grant_.phase;
  const double wait = modulo(static_cast<double>((grid - now).ns()), gap);
  decision_.grid = {.point = now + Duration::from_ns(static_cast<int64_t>(wait)),
                    .period = Duration::from_ns(static_cast<int64_t>(gap))};
  // A brief message could not make up for a lost gap.
  if (brief_) decision_.grid.late = decision_.grid.period / kLateShare;
}

// Idle time earns a burst, and where the NIC's burst is shorter than the hosts' jitter, the bytes
// that leave within the jitter.
void PaceController::begin(Instant now) {
  const bool several = at_once_ > environment_.burst_bytes;
  const Duration earned = several ? std::min(environment_.jitter, now - Instant()) : Duration();
  decision_.first_send = decision_.grid.period > Duration() ? decision_.grid.point : now - earned;
  decision_.aligned = true;
  decision_.grid = {};
}

// --- demands ---

std::optional<Demand> PaceController::demand(Instant now, const FlowStats& stats) {
  const bool had_backlog = has_backlog();
  const bool had_unsent = has_unsent();
  short_ = short_ && stats.backlog <= stats_.backlog;
  brief_ = brief_ && stats.acked + stats.backlog <= brief_until_;
  stats_ = stats;
  if (has_backlog() && !had_backlog) {
    busy_since_ = now;
    begins_ = true;
    announced_ = false;
    core_.begin(now, now - link_.clear_since() <= core_.base_rtt() * kClearRoundTrips);
    const Bytes first = grant_.rate.bytes_in(base_round_trip(environment_) / kFirstShare);
    first_limit_ = stats.sent + std::max(first, environment_.mtu);
    short_ = has_grant_ && negligible(stats.backlog);
    brief_ = stats.backlog <= brief_message_;
    brief_until_ = stats.acked + brief_message_;
    own_link_limits_ = false;
    opening_ = has_grant_ && !grant_.busy && (grant_.guessed || brief_);
  }
  link_.set_queued(flow_, queues() && has_unsent());
  if (has_backlog() != had_backlog) has_backlog() ? link_.begin() : link_.end();
  if (has_unsent() != had_unsent || opening_) refresh(now);
  const double usable = std::min(link_.usable(flow_), core_.rate());
  if (!worth_advertising(now, usable))
    return ever_advertised_ ? std::optional(advertised_) : std::nullopt;
  ever_advertised_ = true;
  unanswered_ =
      announced_ && granted_at_ < advertised_at_ ? std::min(unanswered_ + 1, kMostDoublings) : 0;
  announced_ = final_demand_due_ = has_backlog();
  advertised_at_ = now;
  advertised_wanted_ = stats.acked + std::min(stats.backlog, kMostAnnounced);
  ++advertised_.epoch;
  advertised_.usable = has_backlog() ? rate_of(usable) : Rate();
  advertised_.wanted = advertised_wanted_;
  const bool takes_turns = link_.backlogged() == 1;
  advertised_.turn = takes_turns ? static_cast<uint8_t>(1 + link_.turns() % Demand::kTurns) : 0;
  return advertised_;
}

// The least change of `usable` that is worth a demand. Changes far beyond the grant do not matter
// to the receiver.
double PaceController::least_change(Instant now, double usable) const {
  const double grant = granted(now);
  if (usable > grant * kFarBeyond) return std::numeric_limits<double>::infinity();
  return usable > grant * (1 + kUsableChange) ? kUsableChangeBeyond : kUsableChange;
}

bool PaceController::worth_advertising(Instant now, double usable) const {
  if (!has_backlog())
    return final_demand_due_ &&
           now - advertised_at_ >= std::max(kFinalDemandAfter, environment_.pause);
  const double round_trip_bytes =
      choose(now).rate / 8 * std::max(core_.base_rtt(), environment_.jitter).seconds();
  const auto backlog = static_cast<double>(stats_.backlog);
  if (!announced_) return backlog > kTooSmall * round_trip_bytes && unsent() >= at_once_;
  const Bytes advertised_left = advertised_wanted_ - std::min(stats_.acked, advertised_wanted_);
  if (stats_.acked + stats_.backlog > advertised_wanted_ &&
      static_cast<double>(advertised_left) <
          std::max(kAnnounceAhead * round_trip_bytes,
                   std::min(backlog, static_cast<double>(kMostAnnounced)) / 2)) {
    return true;
  }
  const auto before = static_cast<double>(advertised_.usable.bps());
  const bool changed =
      std::abs(usable - before) > least_change(now, std::min(usable, before)) * before;
  const bool matters = has_unsent() && !(queues() && own_link_limits_);
  if (changed && matters && now - advertised_at_ >= environment_.jitter) return true;
  // An unanswered demand may be lost.
  const bool answered = granted_at_ >= advertised_at_;
  const Duration patience = answered
                                ? grant_.validity
                                : std::min(grant_.validity, halving() * (kPatience << unanswered_));
  return has_grant_ && now - advertised_at_ >= patience;
}

Explanation PaceController::explain(Instant now) {
  const Choice choice = choose(now);
  return {.limited_by = has_backlog() ? choice.limited_by : LimitedBy::kApplication,
          .rate = rate_of(choice.rate),
          .grant = has_grant_ ? rate_of(granted(now)) : Rate(),
          .grant_age = has_grant_ ? now - granted_at_ : Duration(),
          .phase = grant_.phase,
          .epoch = grant_.epoch,
          .share = rate_of(link_.share(flow_)),
          .core = rate_of(core_.rate()),
          .rate_max = environment_.rate_max};
}

// --- all flows of a NIC ---

PaceSenders::PaceSenders(const FlowEnvironment& environment, const PaceConstants& constants,
                         uint32_t max_flows)
    : environment_(environment),
      constants_(constants),
      sweep_(std::max(constants.validity, environment.pause * kSweepsPerValidity) /
             kSweepsPerValidity),
      link_(environment, max_flows, constants.regrant),
      controllers_(max_flows) {}

Controller& PaceSenders::add_flow(Instant, uint32_t flow) {
  PACECAR_CHECK(flow < controllers_.size() && controllers_[flow] == nullptr);
  controllers_[flow] = std::make_unique<PaceController>(environment_, constants_, link_, flow);
  return *controllers_[flow];
}

void PaceSenders::remove_flow(Instant, uint32_t flow) { controllers_[flow].reset(); }

void PaceSenders::set_weight(Instant now, uint32_t flow, uint32_t weight) {
  controllers_[flow]->set_weight(now, weight);
}

// Visits all active flows from time to time: grants expire, and demands are repeated.
size_t PaceSenders::poll_changed(Instant now, std::span<uint32_t> flows) {
  link_.poll(now);
  if (link_.active() > 0 && now >= next_sweep_) {
    next_sweep_ = now + sweep_;
    link_.touch_all();
  }
  return link_.poll_changed(flows);
}

Instant PaceSenders::next_deadline() const {
  return link_.active() > 0 ? std::min(next_sweep_, link_.next_deadline()) : Instant::never();
}

}  // namespace pacecar
