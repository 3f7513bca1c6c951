#include "bench/top/remote.h"

#include <fmt/format.h>
#include <poll.h>

#include <array>
#include <optional>

#include "bench/hosts/child.h"

namespace pacecar::top {
namespace {

constexpr size_t kMaxLine = 64U << 20;
constexpr size_t kMaxComplaints = 1U << 16;
constexpr int kLookMs = 100;  // at the stop token
constexpr int kGraceMs = 2000;

// Posts the whole lines; a sentence where one is no evidence.
std::optional<std::string> take_lines(std::string& text,
                                      const std::function<void(doctor::Evidence)>& post) {
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    doctor::Evidence evidence;
    const auto line = std::string_view(text).substr(begin, end - begin);
    if (auto added = doctor::add_evidence(line, evidence); !added) {
      return "what it says is not from pacecar top: " + added.error().message;
    }
    post(std::move(evidence));
  }
  text.erase(0, begin);
  if (text.size() > kMaxLine) return "its output has no end: run the same version there";
  return std::nullopt;
}

std::string why_ended(const std::vector<std::string>& command, int status,
                      const std::string& complaint) {
  return fmt::format("'{}' ended ({}{}{}): does it work by hand?", fmt::join(command, " "),
                     hosts::how_ended(status), complaint.empty() ? "" : ", ", complaint);
}

}  // namespace

std::string watch_remote(const std::vector<std::string>& command, const std::stop_token& stop,
                         const std::function<void(doctor::Evidence)>& post) {
  auto child = hosts::Child::start(command, {});
  if (!child) {
    return child.error().message + ": install it, or name another way with --launch";
  }
  std::string text;
  std::string complaints;
  std::optional<std::string> wrong;
  bool speaks = true;
  bool complains = true;
  while (speaks && !wrong && !stop.stop_requested()) {
    std::array<pollfd, 2> waiting{pollfd{child->output().get(), POLLIN, 0},
                                  pollfd{complains ? child->errors().get() : -1, POLLIN, 0}};
    poll(waiting.data(), waiting.size(), kLookMs);
    if (waiting[1].revents != 0) complains = hosts::read_some(child->errors(), complaints);
    if (complaints.size() > kMaxComplaints) complaints.erase(0, kMaxComplaints / 2);
    if (waiting[0].revents != 0) {
      speaks = hosts::read_some(child->output(), text);
      wrong = take_lines(text, post);
    }
  }
  const int status = speaks ? child->end(kGraceMs) : child->wait();
  hosts::read_some(child->errors(), complaints);
  return wrong ? *wrong : why_ended(command, status, hosts::last_complaint(complaints));
}

}  // namespace pacecar::top
