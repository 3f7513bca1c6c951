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
constexpr int64_t kAskingRoundTrips = 2;  // Round trips for which it waits for its grant.
// Most of a guessed hold with which a long message begins: the others may be one-to-many.
constexpr double kMostOvercommitted = 4;
// In its turn a brief message leaves this much faster than by even division.
constexpr int64_t kTurnSpeedUp = 3;
// A flow that is granted this share of its usable rate is limited by its own link.
constexpr double kOwnLinkShare = 0.6;

// --- grants ---
// The least rate without a valid grant, of the line rate.
constexpr double kLapsedShare = 1.0 / 256;
constexpr int16_t kNearEpochs = 256;  // How many epochs a CTS slot's grant may be ahead to count.
// Receivers gather acknowledgements, so a flow may have this in flight beyond the bytes of a round
// trip. It is also the most that a flow adds to a queue before its rate is cut.
constexpr Bytes kWindowBursts = 3;
constexpr Bytes kWindowPackets = 4;
constexpr Duration kGathered = Duration::from_us(250);  // sent in it, at most the NIC's burst
constexpr int64_t kWindowJitters = 4;
// A brief message may be late for its place in the grid by 1/2 of a gap.
constexpr int64_t kLateShare = 2;

// The last bursts of a brief message are not moved to another grid: it could not make up for it.
constexpr Bytes kLastBursts = 2;

// --- demands ---
// A backlog that leaves within this part of a round trip gets no demand: the grant would be late.
constexpr double kTooSmall = 0.25;
// A demand is renewed when the announced bytes are sent within this many round trips.
constexpr double kAnnounceAhead = 4;
constexpr Bytes kMostAnnounced = Bytes{1} << 30;  // the demand counts modulo 2^32
constexpr double kUsableChange = 1.0 / 32;        // smaller ones are not advertised
constexpr double kUsableChangeBeyond = 1.0 / 4;   // smaller ones, where the grant is the limit
constexpr double kFarBeyond = 2;                  // times the grant: no change is advertised
// After this idle time and the host's pause a flow sends a demand of 0, in case a count went wrong.
constexpr Duration kFinalDemandAfter = Duration::from_ms(1);
// Round trips after which an unanswered demand is repeated; twice as many each time, because a
// receiver does not answer if the grant does not change.
constexpr int64_t kPatience = 2;
constexpr int kMostDoublings = 16;
// Visits of every active flow within the validity of a grant.
constexpr int64_t kSweepsPerValidity = 4;

Rate rate_of(double bps) {
  return std::max(Rate::from_bps(static_cast<uint64_t>(std::max(bps, 0.0))), kLeastRate);
}

}  // namespace

PaceController::PaceController(const FlowEnvironment& environment, const PaceConstants& constants,
                               LinkShare& link, uint32_t flow)
    : environment_(environment),
      constants_(constants),
      link_(link),
      flow_(flow),
      round_trip_(base_round_trip(environment)),
      brief_message_(environment.line_rate.bytes_in(round_trip_)),
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
  if (core_.on_ack(now, ack, decision_.rate.real_bps())) refresh(now);
  if (core_.clear()) link_.note_clear(now);
}

void PaceController::on_loss(Instant now, const Loss& loss) {
  if (core_.on_loss(now, loss)) refresh(now);
}

void PaceController::on_timeout(Instant now) {
  core_.on_timeout(choose(now).rate);
  refresh(now);
}

// The newest epoch wins. A grant that is neither aligned nor busy may come from a CTS slot, so old
// that epochs have wrapped: it counts only if it is at most kNearEpochs newer, and a grant with
// either flag replaces it whatever the epochs.
bool PaceController::outranks(const Grant& grant) const {
  if (held_ == Held::kNothing) return true;
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
  if (std::exchange(held_, Held::kGrant) == Held::kOverdue) core_.resume();
  if (has_backlog() && grant.busy) {
    phase_ = Phase::kAsking;
  } else if (has_backlog() && !(phase_ == Phase::kOpening && grant.guessed)) {
    phase_ = obeying();
  }
  if (grant.aligned && place_ == Place::kKeep) place_ = Place::kAlign;
  refresh(now);  // even if the rate is unchanged: the grant may have expired in between
}

// --- the rate ---

Duration PaceController::halving() const { return std::max(core_.base_rtt(), environment_.jitter); }

// How a flow begins.
PaceController::Phase PaceController::governed() const {
  if (held_ != Held::kGrant) return Phase::kUngoverned;
  if (grant_.busy) return Phase::kAsking;
  return grant_.guessed || brief_ ? Phase::kOpening : Phase::kObeying;
}

// How the flow goes on with a grant: it leads its link if the grant answers a demand of this
// backlog with most of its usable rate, and several flows share the link.
PaceController::Phase PaceController::obeying() const {
  if (!announced()) return phase_ == Phase::kLeading ? phase_ : Phase::kObeying;
  const bool enough = grant_.rate.real_bps() >= advertised_->usable.real_bps() * kOwnLinkShare;
  const bool shared = phase_ == Phase::kLeading || link_.backlogged() > 1;
  return enough && shared ? Phase::kLeading : Phase::kObeying;
}

bool PaceController::waits(Instant now) const {
  return phase_ == Phase::kAsking && now - busy_since_ < halving() * kAskingRoundTrips;
}

// The factor of the hold with which a flow begins. Before the fan-in is known, a host assumes that
// its peers have its own fan-out. Afterwards a brief message makes a queue of half a round trip if
// all expected flows begin at once: grants that decide the order would come too late for it, and
// the queue serves the messages in order of arrival.
double PaceController::overcommitted() const {
  if (grant_.guessed) {
    const double spare = link_.spare_fan_out();
    return brief_ ? spare : std::clamp(spare, 1.0, kMostOvercommitted);
  }
  const Bytes queued = grant_.rate.bytes_in(round_trip_ / kQueueShare);
  const Bytes message = stats_.acked + stats_.backlog - (brief_until_ - brief_message_);
  if (!brief_) return 1;
  if (queued >= message) return std::numeric_limits<double>::infinity();
  return static_cast<double>(message) / static_cast<double>(message - queued);
}

// The rate at which a brief message leaves in its turn, when the messages before it are gone and
// others wait: the sum over all receivers does not change, and they cut a rate that is too high. 0
// where the grant is well below an even part of our link, unless the flow leads it.
double PaceController::rate_in_turn(double granted) const {
  const auto flows = static_cast<double>(std::max<size_t>(link_.backlogged(), 1));
  const bool own_link = flows > 1 && granted * flows >= link_.reach() * kOwnLinkShare;
  if (!own_link && phase_ != Phase::kLeading) return 0;
  return link_.reach() * std::min(static_cast<double>(kTurnSpeedUp) / flows, 1.0);
}

// The granted rate as in force now, in bit/s.
double PaceController::granted(Instant now) const {
  const double line = environment_.line_rate.real_bps();
  if (held_ != Held::kGrant) return line;
  double rate = grant_.rate.real_bps();
  if (phase_ == Phase::kOpening) rate = std::min(rate * overcommitted(), line);
  if (queues()) rate = std::max(rate, rate_in_turn(rate));
  const Duration over = now - std::max(granted_at_, busy_since_) - grant_.validity;
  if (over < Duration() || !has_backlog()) return rate;
  const int64_t halvings = std::min<int64_t>(1 + over.ns() / halving().ns(), 60);
  return std::max(std::ldexp(rate, static_cast<int>(-halvings)),
                  std::min(rate, link_.line() * kLapsedShare));
}

PaceController::Choice PaceController::choose(Instant now) const {
  const double grant = granted(now);
  const double core = core_.rate();
  Choice choice{.rate = std::min(link_.share(flow_), environment_.line_rate.real_bps()),
                .limited_by = limit_at_line(environment_)};
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
  const bool lapsed = held_ == Held::kGrant && has_backlog() && silence >= grant_.validity;
  if (lapsed && silence >= grant_.validity * 2 && now - last_ack_ <= halving() * 2) {
    core_.restart(granted(now));
    phase_ = Phase::kUngoverned;
    held_ = Held::kOverdue;
  }
  if (lapsed || queues()) refresh(now);  // a rate in turn depends on the number of flows
  const Choice choice = choose(now);
  const Rate rate = std::min(rate_of(choice.rate), environment_.line_rate);
  const Bytes burst = pace_burst(rate, environment_);
  decision_.rate = rate;
  decision_.limited_by = choice.limited_by;
  decision_.burst = burst;
  decision_.credit = waits(now) ? first_limit_ : ~Bytes{0};
  at_once_ = rate.bytes_in(environment_.jitter);
  limit_window(rate, burst);
  const Bytes credit = decision_.credit - std::min(decision_.credit, stats_.sent);
  const Bytes window = decision_.window - std::min(decision_.window, stats_.in_flight);
  leaving_ = stats_.acked + brief_message_ == brief_until_ &&
             stats_.backlog <= stats_.in_flight + std::min(credit, window);
  if (queues() && has_unsent()) {
    const Duration longest = rate.time_for(unsent_ - at_once_) * kTurnSpeedUp;
    const Instant sure = now + longest + Duration::from_ns(kTurnSpeedUp);
    link_.leaves_at(flow_, leaving_ ? sure : Instant::never());
  }
  decision_.aligned = false;
  decision_.grid = {};
  const Place place = has_backlog() ? std::exchange(place_, Place::kKeep) : Place::kKeep;
  const bool in_grid = place == Place::kBegin ? stats_.backlog > environment_.mtu : grant_.aligned;
  const bool ends = brief_ && place == Place::kAlign && unsent_ <= kLastBursts * burst;
  if (place != Place::kKeep && in_grid && !ends) align(now, rate, burst);
  if (place == Place::kBegin) begin(now);
  return decision_;
}

void PaceController::limit_window(Rate rate, Bytes burst) {
  const auto worth = static_cast<double>(rate.bytes_in(core_.base_rtt()));
  const Bytes gathered = std::min(rate.bytes_in(kGathered), environment_.burst_bytes);
  const Bytes ahead = static_cast<Bytes>(worth * (constants_.window_round_trips - 1)) +
                      kWindowPackets * environment_.mtu;
  decision_.window = static_cast<Bytes>(worth) +
                     std::max(ahead, kWindowBursts * std::max(burst, gathered)) +
                     rate.bytes_in(environment_.jitter * kWindowJitters);
  if (environment_.first_rate > Rate()) {  // each acknowledged byte makes room for two
    const Bytes first = kFirstPackets * environment_.mtu + stats_.acked;
    decision_.window = std::min(decision_.window, first);
  }
}

void PaceController::align(Instant now, Rate rate, Bytes burst) {
  const bool possible = grant_.aligned && decision_.limited_by == LimitedBy::kGrant &&
                        rate == grant_.rate && keeps_phases(environment_);
  if (!possible) return;
  const double gap = pace_gap_ns(rate, burst, environment_.mtu, environment_.overhead);
  const Instant grid = granted_at_ - round_trip_ + grant_.phase;
  const double wait = modulo((grid - now).real_ns(), gap);
  decision_.grid = {.point = now + Duration::from_ns(static_cast<int64_t>(wait)),
                    .period = Duration::from_ns(static_cast<int64_t>(gap))};
  // A brief message could not make up for a lost gap.
  if (brief_) decision_.grid.late = decision_.grid.period / kLateShare;
}

// Idle time earns a burst, or the bytes of the hosts' jitter if that exceeds the NIC's burst.
void PaceController::begin(Instant now) {
  const bool several = at_once_ > environment_.burst_bytes;
  const Duration earned = several ? std::min(environment_.jitter, now - Instant()) : Duration();
  decision_.first_send = decision_.grid.period > Duration() ? decision_.grid.point : now - earned;
  decision_.aligned = true;
  decision_.grid = {};
}

// --- demands ---

// The first signal may come a round trip after the last packet has left; the next message in the
// queue need not wait for it. By then the message has left at least as fast as by even division.
void PaceController::count_sent(Instant now, const FlowStats& stats) {
  const bool signalled = stats.acked != stats_.acked || stats.sent != stats_.sent;
  if (signalled) {
    unsent_ = stats.backlog - std::min(stats.in_flight, stats.backlog);
  } else {
    const Bytes more = stats.backlog - std::min(stats_.backlog, stats.backlog);
    const Bytes gone = leaving_ ? decision_.rate.bytes_in((now - counted_at_) / kTurnSpeedUp) : 0;
    unsent_ = std::min(unsent_ + more - std::min(unsent_, gone), stats.backlog);
  }
  counted_at_ = now;
}

// The flow was idle.
void PaceController::start(Instant now) {
  busy_since_ = now;
  place_ = Place::kBegin;
  brief_ = stats_.backlog <= brief_message_;
  brief_until_ = stats_.acked + brief_message_;
  phase_ = governed();
  first_limit_ =
      stats_.sent + std::max(grant_.rate.bytes_in(round_trip_ / kFirstShare), environment_.mtu);
  core_.begin(now, now - link_.clear_since() <= core_.base_rtt() * kClearRoundTrips);
  link_.begin();
}

std::optional<Demand> PaceController::demand(Instant now, const FlowStats& stats) {
  const bool had_unsent = has_unsent();
  brief_ = brief_ && stats.acked + stats.backlog <= brief_until_;
  count_sent(now, stats);
  stats_ = stats;
  if (stats.backlog > 0 && !has_backlog()) {
    start(now);
  } else if (stats.backlog == 0 && has_backlog()) {
    phase_ = Phase::kIdle;
    link_.end();
  }
  link_.set_queued(flow_, queues() && has_unsent());
  if (has_unsent() != had_unsent || phase_ == Phase::kOpening) refresh(now);
  const double usable = std::min(link_.usable(flow_), core_.rate());
  if (!worth_advertising(now, usable)) return advertised_;
  const bool again = announced() && granted_at_ < advertised_at_;
  unanswered_ = again ? std::min(unanswered_ + 1, kMostDoublings) : 0;
  advertised_at_ = now;
  advertised_wanted_ = stats.acked + std::min(stats.backlog, kMostAnnounced);
  if (!advertised_) advertised_.emplace();
  ++advertised_->epoch;
  advertised_->usable = has_backlog() ? rate_of(usable) : Rate();
  advertised_->wanted = advertised_wanted_;
  return advertised_;
}

// Whether a demand for this backlog was sent.
bool PaceController::announced() const {
  return has_backlog() && advertised_ && advertised_at_ >= busy_since_ &&
         advertised_->usable > Rate();
}

bool PaceController::worth_advertising(Instant now, double usable) const {
  const double before = advertised_ ? advertised_->usable.real_bps() : 0;
  if (!has_backlog()) {
    return before > 0 && now - advertised_at_ >= std::max(kFinalDemandAfter, environment_.pause);
  }
  const double round_trip_bytes = choose(now).rate / 8 * halving().seconds();
  if (!announced()) {
    const auto backlog = static_cast<double>(stats_.backlog);
    return backlog > kTooSmall * round_trip_bytes && unsent_ >= at_once_;
  }
  const Bytes advertised_left = advertised_wanted_ - std::min(stats_.acked, advertised_wanted_);
  if (stats_.acked + stats_.backlog > advertised_wanted_ &&
      static_cast<double>(advertised_left) < kAnnounceAhead * round_trip_bytes) {
    return true;
  }
  // Changes far beyond the grant do not matter to the receiver.
  const double grant = granted(now);
  const double least = std::min(usable, before);
  const bool matters =
      has_unsent() && !(queues() && phase_ == Phase::kLeading) && least <= grant * kFarBeyond;
  const double tolerance =
      least > grant * (1 + kUsableChange) ? kUsableChangeBeyond : kUsableChange;
  const bool changed = std::abs(usable - before) > tolerance * before;
  if (changed && matters && now - advertised_at_ >= environment_.jitter) return true;
  // An unanswered demand may be lost.
  const bool answered = granted_at_ >= advertised_at_;
  const Duration patience = answered
                                ? grant_.validity
                                : std::min(grant_.validity, halving() * (kPatience << unanswered_));
  return held_ != Held::kNothing && now - advertised_at_ >= patience;
}

Explanation PaceController::explain(Instant now) {
  const Choice choice = choose(now);
  return {.limited_by = has_backlog() ? choice.limited_by : LimitedBy::kApplication,
          .rate = rate_of(choice.rate),
          .grant = held_ == Held::kNothing ? Rate() : rate_of(granted(now)),
          .grant_age = held_ == Held::kNothing ? Duration() : now - granted_at_,
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
