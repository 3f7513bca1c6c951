// Documents of any content, read, judged and printed by the doctor, exported as metrics and shown
// by top: no crash, and the printed document has the same samples when it is read again.
#include <nlohmann/json.hpp>

#include "bench/doctor/documents.h"
#include "bench/doctor/report.h"
#include "bench/metrics/exporter.h"
#include "bench/top/page.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/json_mutator.h"
#include "transport/base/check.h"
#include "transport/base/printable.h"

namespace pacecar::doctor_fuzz {

FUZZ_TARGET(doctor) {
  doctor::Evidence evidence;
  if (!doctor::add_evidence(fuzz::Input(data, size).text(), evidence)) return 0;
  doctor::Job job;
  for (const doctor::SilentProcess& process : evidence.silent) job.add(process);
  for (const doctor::Samples& samples : evidence.seen) {
    auto process = doctor::read_samples(samples);
    if (process) job.add(std::move(*process));
  }
  const auto findings = doctor::examine(job);
  const doctor::Verdict verdict = doctor::conclude(job, findings);
  static_cast<void>(doctor::to_text(job, findings, verdict));
  metrics::ProcessNumbers numbers;
  const metrics::Host host = metrics::host_of({evidence, {}}, numbers);
  PACECAR_CHECK(metrics::page_of(host).ends_with('\n'));
  top::View view;
  std::vector<std::string> notes;
  for (const top::Line& line : top::page_of(top::rows_of(evidence, notes), view, {}, 0)) {
    PACECAR_CHECK(printable(line.text) == line.text);
  }
  nlohmann::json document = doctor::to_json(evidence);
  doctor::add_conclusions(findings, verdict, document);
  const std::string printed =
      document.dump(1, ' ', false, nlohmann::json::error_handler_t::replace);
  doctor::Evidence again;
  PACECAR_CHECK(doctor::add_evidence(printed, again).has_value());
  PACECAR_CHECK(again.seen.size() == evidence.seen.size());
  return 0;
}

}  // namespace pacecar::doctor_fuzz
