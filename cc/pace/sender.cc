#include "cc/pace/sender.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "cc/grant_limit.h"
#include "cc/pace/phase.h"
#include "cc/rate_law.h"
#include "transport/base/check.h"

namespace pacecar {
namespace {

// No flow goes below this, so that it always finds out when things get better: 4 KiB in a third of
// a second.
constexpr Rate kLeastRate = Rate::from_bps(100'000);

// --- beginning ---
// What a flow sends at first into a link that nothing is known of, in packets.
constexpr Bytes kFirstPackets = 16;
// That what another flow found of the network holds, in round trips.
constexpr int64_t kClearRoundTrips = 16;
// Of a round trip's worth: what a flow may send at first on a busy link.
constexpr int64_t kFirstShare = 4;
// Of a bandwidth-delay product: a message on a busy link that is so short goes at once.
constexpr int64_t kShortShare = 16;
// Messages of so many round trips of the whole link are brief.
constexpr int64_t kBriefRoundTrips = 1;
constexpr double kMostOvercommitted = 4;
// How many times faster than by even division brief messages leave when it is their turn.
constexpr double kInTurn = 3;
// Of what a flow can use: whose receiver gives so much is limited by its own link.
constexpr double kUnhindered = 0.6;
// Of the hold, where no grant came for a flow that began.
constexpr double kUnansweredShare = 16;

// --- grants ---
// Of the line rate: the least without a valid grant.
constexpr double kLapsedShare = 1.0 / 256;
constexpr Duration kMaxPhase = Duration::from_ms(5);
constexpr Duration kMinValidity = Duration::from_us(1);
constexpr Duration kMaxValidity = Duration::from_s(10);
// By which the grant of a CTS may be newer and still count.
constexpr int16_t kNearEpochs = 256;
// Acknowledgements are gathered at the receiver: so much is in flight beside a round trip's worth.
constexpr Bytes kWindowBursts = 3;
constexpr Bytes kWindowPackets = 4;
constexpr Duration kGathered = Duration::from_ms(1);  // longer than acknowledgements are
constexpr int64_t kWindowJitters = 4;
constexpr int kWindowShift = 6;  // what is beyond a round trip is kept in 64ths of one

// Of a gap: by so much a brief message may be late for its place in it.
constexpr int64_t kLateShare = 2;

// --- demands ---
// A backlog that is gone within this part of a round trip, or leaves at once, is not announced: no
// answer would come in time.
constexpr double kTooSmall = 0.25;
// More is announced when what was announced is gone within so many round trips.
constexpr double kAnnounceAhead = 4;
constexpr Bytes kMostAnnounced = Bytes{1} << 30;  // the word counts modulo 2^32
constexpr double kUsableChange = 1.0 / 32;        // smaller ones are not advertised
constexpr double kUsableChangeBeyond = 1.0 / 4;   // likewise where the grant is what limits
constexpr double kFarBeyond = 2;                  // of the grant: no change is advertised
// A flow that has been idle for so long (and for as long as its host may pause) says so, lest a
// count went wrong somewhere.
constexpr Duration kFarewell = Duration::from_ms(1);
// Round trips after which a demand that nothing has answered is repeated; twice as many each time:
// to what the flow has already, nothing is answered.
constexpr int64_t kPatience = 2;
constexpr int kMostDoublings = 16;
// Active flows are looked at so often within the validity of a grant.
constexpr int64_t kSweepsPerValidity = 4;

Rate rate_in(Bytes bytes, Duration span) {
  return Rate::from_bps(bytes * 8 * static_cast<uint64_t>(1e9 / static_cast<double>(span.ns())));
}

Rate rate_of(double bps) {
  return std::max(Rate::from_bps(static_cast<uint64_t>(std::max(bps, 0.0))), kLeastRate);
}

double bps(Rate rate) { return static_cast<double>(rate.bps()); }

}  // namespace

PaceController::PaceController(const FlowEnvironment& environment, const Constants& constants,
                               LinkShare& link, uint32_t flow)
    : environment_(environment),
      constants_(constants),
      link_(link),
      flow_(flow),
      gathered_rate_(rate_in(environment.burst_bytes, kGathered)),
      ahead_parts_(static_cast<Bytes>((constants.window_round_trips - 1) * (1 << kWindowShift))),
      window_jitter_(environment.jitter * kWindowJitters),
      brief_message_(
          environment.line_rate.bytes_in(base_round_trip(environment) * kBriefRoundTrips)),
      core_(environment, constants_) {
  PACECAR_CHECK(environment.line_rate > Rate() && environment.mtu > 0);
  link_.join();
}

PaceController::PaceController(const FlowEnvironment& environment, const Constants& constants,
                               std::unique_ptr<LinkShare> link)
    : PaceController(environment, constants, *link, 0) {
  own_link_ = std::move(link);
}

PaceController::PaceController(const FlowEnvironment& environment, const Constants& constants)
    : PaceController(environment, constants,
                     std::make_unique<LinkShare>(environment, 1, constants.regrant)) {}

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

void PaceController::on_ack(const AckSample& sample) {
  last_ack_ = sample.now;
  if (link_.listens()) report_to_link(sample);
  if (core_.on_ack(sample, static_cast<double>(decision_.rate.bps()))) refresh(sample.now);
  if (core_.clear()) link_.note_clear(sample.now);
}

void PaceController::report_to_link(const AckSample& sample) {
  const Bytes wire = on_wire(sample.acked);
  if (sample.rtt <= Duration()) {
    return link_.on_acked(sample.now, wire, Duration::max(), /*overtaken=*/false, flow_);
  }
  const Duration base = std::min(core_.base_rtt(), sample.rtt);
  const auto sent_ns = static_cast<uint32_t>((sample.now - sample.rtt).ns());
  const bool overtaken = echoes_.overtaken(sent_ns, link_.spread());
  link_.on_acked(sample.now, wire, sample.rtt - base, overtaken, flow_);
}

void PaceController::on_loss(const LossSample& sample) {
  if (core_.on_loss(sample)) refresh(sample.now);
  if (sample.kind == LossKind::kMissing) link_.on_lost(on_wire(sample.lost));
}

Bytes PaceController::on_wire(Bytes payload) const {
  const Bytes packets = (payload + environment_.mtu - 1) / environment_.mtu;
  return payload + packets * environment_.overhead;
}

void PaceController::on_timeout(Instant now) {
  core_.on_timeout(choose(now).rate);
  refresh(now);
}

// The newest epoch wins. That of a CTS (not aligned) may be of long ago, when epochs have wrapped
// since: it counts only if it is a little newer, and any word of its own outranks it.
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
  grant_.validity = std::clamp(grant.validity, kMinValidity, kMaxValidity);
  grant_.phase = std::clamp(grant.phase, Duration(), kMaxPhase);
  granted_at_ = now;
  has_grant_ = true;
  opening_ = opening_ && grant.guessed;
  if (announced_) {
    const bool enough = bps(grant.rate) >= bps(advertised_.usable) * kUnhindered;
    unhindered_ = enough && (unhindered_ || link_.backlogged() > 1);
  }
  short_ = short_ && grant.busy;
  if (alone_) core_.resume();
  alone_ = false;
  align_wanted_ |= grant.aligned;
  refresh(now);  // also when the rate is as before: it may have lapsed in between
}

// --- the rate ---

Duration PaceController::halving() const {
  return std::max({core_.base_rtt(), environment_.jitter, Duration::from_ns(1)});
}

// On a busy link, until the flow's own grant comes, or should have come.
bool PaceController::beginning(Instant now) const {
  return has_backlog() && grant_.busy && !short_ && now - busy_since_ < halving() * 2;
}

// Next to nothing: goes at once, whatever the flow is granted on a busy link.
bool PaceController::next_to_nothing(Bytes message) const {
  const Duration round_trip = base_round_trip(environment_);
  return grant_.busy && message <= environment_.line_rate.bytes_in(round_trip / kShortShare);
}

// How many times what it holds a flow begins with. Before anything is known of the fan-in, a host
// takes its own fan-out for that of its peers; a long message does so within limits, as others may
// begin that are one to many. Then: who serves several shares its own link among them, and does not
// use all that it holds; with those that wait for their last acknowledgements, the link would have
// nothing to do.
double PaceController::overcommitted() const {
  if (grant_.guessed && brief_) return link_.spare_fan_out();
  const double flows =
      grant_.guessed ? link_.spare_fan_out() : static_cast<double>(link_.backlogged());
  const double shared = std::clamp(flows, 1.0, kMostOvercommitted);
  return grant_.guessed ? shared : std::max(shared, queueing());
}

// Likewise, so that messages like this one make half of a round trip's queue when all begin at once
// that are expected to. A word about who was first would come too late for them; in a queue they
// are served in that order.
double PaceController::queueing() const {
  if (!brief_) return 1;
  const Bytes queued = grant_.rate.bytes_in(base_round_trip(environment_) / kQueueShare);
  const Bytes message = stats_.acked + stats_.backlog - (brief_until_ - brief_message_);
  if (queued >= message) return std::numeric_limits<double>::infinity();
  return static_cast<double>(message) / static_cast<double>(message - queued);
}

// The receiver gives about what the flow can use: it is our link that limits it.
bool PaceController::unhindered(double granted) const {
  if (unhindered_) return true;
  const auto flows = static_cast<double>(link_.backlogged());
  return flows > 1 && granted * flows >= link_.reach() * kUnhindered;
}

// How fast a brief message leaves when those before it are gone, while others wait behind it: the
// receivers are granted the same in all, and find out when it is too much.
double PaceController::in_its_turn() const {
  const auto flows = static_cast<double>(std::max<size_t>(link_.backlogged(), 1));
  return link_.reach() * std::min(kInTurn / flows, 1.0);
}

// What the receiver lets the flow have, in bit/s.
double PaceController::granted(Instant now) const {
  const auto line = static_cast<double>(environment_.line_rate.bps());
  if (!has_grant_ || alone_) return line;
  auto rate = static_cast<double>(grant_.rate.bps());
  if (short_) return line;
  if (opening_) rate = std::min(rate * overcommitted(), line);
  if (queues() && unhindered(rate)) rate = std::max(rate, in_its_turn());
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

// Shows the others on our link what this flow can use of it.
void PaceController::refresh(Instant now) {
  const double limit = has_unsent() ? std::min(granted(now), core_.rate()) : 0;
  link_.set(flow_, has_unsent() ? rate_of(limit) : Rate(), weight_);
}

Decision PaceController::decide(Instant now) {
  const Duration silence = now - std::max(granted_at_, busy_since_);
  if (has_grant_ && has_backlog() && silence >= grant_.validity) {
    if (!alone_ && silence >= grant_.validity * 2 && now - last_ack_ <= halving() * 2) {
      core_.restart(granted(now));
      alone_ = true;
    }
    refresh(now);
  }
  if (queues()) refresh(now);  // how fast it is in its turn depends on how many there are
  const Choice choice = choose(now);
  const Rate rate = std::min(rate_of(choice.rate), environment_.line_rate);
  const bool waits = beginning(now);
  decision_.credit = waits ? first_limit_ : ~Bytes{0};
  const Duration round_trip = core_.base_rtt();
  const Bytes burst =
      pace_burst(rate, pace_moment(environment_), environment_.mtu, environment_.burst_bytes);
  decision_.rate = rate;
  if (window_jitter_ > Duration()) at_once_ = rate.bytes_in(environment_.jitter);
  decision_.limited_by = choice.limited_by;
  decision_.burst = burst;
  const Bytes gathered =
      rate < gathered_rate_ ? rate.bytes_in(kGathered) : environment_.burst_bytes;
  const Bytes bursts = kWindowBursts * std::max(burst, gathered);
  const Bytes worth = rate.bytes_in(round_trip);
  const Bytes ahead = ((worth * ahead_parts_) >> kWindowShift) + kWindowPackets * environment_.mtu;
  decision_.window = worth + std::max(ahead, bursts);
  if (window_jitter_ > Duration()) decision_.window += rate.bytes_in(window_jitter_);
  if (link_.starting()) {  // what is acknowledged makes room for as much again
    const Bytes first = kFirstPackets * environment_.mtu + stats_.acked;
    decision_.window = std::min(decision_.window, first);
  }
  decision_.aligned = false;
  decision_.grid = {};
  // A guess is another one when others of the NIC begin at the same instant: then it begins anew.
  begins_ |=
      opening_ && grant_.guessed && now == busy_since_ && link_.backlogged() != begun_beside_;
  const bool begins = std::exchange(begins_, false) && has_backlog();
  if (begins) begun_beside_ = link_.backlogged();
  if (begins) align_wanted_ = grant_.aligned && stats_.backlog > environment_.mtu;
  if (align_wanted_ && has_backlog()) align(now, rate, burst);
  if (begins) begin(now);
  return decision_;
}

// The packets leave in the grid that the receiver gave.
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
  // A brief message would never make good for a gap that it loses.
  if (brief_) decision_.grid.late = decision_.grid.period / kLateShare;
}

// What was earned while idle is no licence to burst.
void PaceController::begin(Instant now) {
  decision_.first_send = decision_.grid.period > Duration() ? decision_.grid.point : now;
  decision_.aligned = true;
  decision_.grid = {};
}

// --- what is advertised ---

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
    short_ = has_grant_ && next_to_nothing(stats.backlog);
    brief_ = stats.backlog <= brief_message_;
    brief_until_ = stats.acked + brief_message_;
    unhindered_ = false;
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
  announced_ = farewell_due_ = has_backlog();
  advertised_at_ = now;
  advertised_wanted_ = stats.acked + std::min(stats.backlog, kMostAnnounced);
  ++advertised_.epoch;
  advertised_.usable = has_backlog() ? rate_of(usable) : Rate();
  advertised_.wanted = advertised_wanted_;
  const bool takes_turns = link_.backlogged() == 1;
  advertised_.turn = takes_turns ? static_cast<uint8_t>(1 + link_.turns() % Demand::kTurns) : 0;
  return advertised_;
}

// Of what was advertised as usable. What is far beyond the grant changes nothing for the receiver.
double PaceController::worthy_change(Instant now, double usable) const {
  const double grant = granted(now);
  if (usable > grant * kFarBeyond) return std::numeric_limits<double>::infinity();
  return usable > grant * (1 + kUsableChange) ? kUsableChangeBeyond : kUsableChange;
}

bool PaceController::worth_advertising(Instant now, double usable) const {
  if (!has_backlog())
    return farewell_due_ && now - advertised_at_ >= std::max(kFarewell, environment_.pause);
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
      std::abs(usable - before) > worthy_change(now, std::min(usable, before)) * before;
  const bool matters = has_unsent() && !(queues() && unhindered_);
  if (changed && matters && now - advertised_at_ >= environment_.jitter) return true;
  // A word that nothing has answered may be lost.
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
          .budget = environment_.budget};
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

// Grants lose their validity, and demands are repeated, by the passing of time.
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
