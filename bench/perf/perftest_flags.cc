#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "bench/perf/options.h"

namespace pacecar::perf {
namespace {

struct Answer {
  std::string_view flags;   // each followed by a blank
  std::string_view reason;  // continues "as perftest has it: "
};

constexpr Answer kAnswers[] = {
    {"-R --rdma_cm -z --com_rdma_cm ",
     "the two ends always talk over a TCP connection of their own (-p, --bind, --source_ip)"},
    {"-L --hop_limit ", "packets leave with a hop limit of 64, enough for any data centre"},
    {"-O --dualport ", "name two NICs that serve as one: -d mlx5_0+mlx5_1"},
    {"--report-per-port ", "'pacecar doctor' prints the rate of each NIC"},
    {"-Q --cq-mod ", "the transport itself leaves most of its writes unsignaled"},
    {"-I --inline_size ", "the transport itself puts small control writes inline"},
    {"--inline_recv ", "nothing is received into work requests but written in place"},
    {"--recv_post_list ", "receives are posted in groups already, as many as -r needs"},
    {"--use-srq ", "a message is written straight into its buffer: no receive queue"},
    {"-e --events -X --vector ",
     "the client polls, and sleeps without traffic; PACECAR_PROGRESS sets who drives the engine"},
    {"-g --mcg -M --MGID ", "a flow has one sender and one receiver"},
    {"-C --report-cycles ", "times are printed in microseconds, whatever the CPU's frequency"},
    {"--burst_size --typical_pkt_size --rate_limit_type ",
     "packets are paced one by one, by the NIC where it can; --rate_limit sets the rate"},
    {"--retry_count ", "-u sets how long a peer may be silent before it is dead"},
    {"--log_dci_streams --log_active_dci_streams ",
     "every connection is reliable and ordered, as RC"},
    {"--dlid ", "the peer sends its own LID"},
    {"--dont_xchg_versions ", "both ends must have the same version, and check it"},
    {"--force-link ", "the port determines it"},
    {"--ipv6 ", "-x chooses the GID by its index, and with it the kind of address"},
    {"--mmap --mmap-offset --odp ", "messages lie in memory of this process, which is registered"},
    {"--disable_pcie_relaxed ",
     "'pacecar preflight' prints the state of PCIe, and the BIOS or setpci changes it"},
    {"--use_old_post_send ", "work requests are always posted by ibv_post_send"},
    {"--wait_destroy ", "what a test has made goes when it ends"},
    {"--aes_xts --encrypt_on_tx --sig_before --aes_block_size --data_enc_keys_number "
     "--kek_path --credentials_path --data_enc_key_app_path ",
     "packets are encrypted by PACECAR_SECURITY=encrypt, and hosts have a key by "
     "PACECAR_KEY_FILE"},
    {"--use_rocm ", "GPU memory is that of NVIDIA's GPUs: --use_cuda"},
};

}  // namespace

std::string answer_to_perftest_flag(std::string_view name) {
  // A letter may have its value attached: "-L64".
  const std::string_view flag = name.starts_with("--") ? name : name.substr(0, 2);
  const auto found = std::ranges::find_if(kAnswers, [&](const Answer& answer) {
    return answer.flags.find(fmt::format("{} ", flag)) != std::string_view::npos;
  });
  if (found == std::end(kAnswers)) return {};
  return fmt::format("there is no {} as perftest has it: {}", flag, found->reason);
}

}  // namespace pacecar::perf
