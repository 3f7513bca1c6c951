#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "bench/perf/options.h"

namespace pacecar::perf {
namespace {

struct Answer {
  std::string_view letter;  // "-R", or empty
  std::string_view name;    // "--rdma_cm", or empty
  std::string_view reason;  // continues "of perftest's: "
};

constexpr std::string_view kKeys =
    "packets are encrypted by PACECAR_SECURITY=encrypt, and hosts have a key by PACECAR_KEY_FILE";
constexpr std::string_view kOneConnectionType = "every connection is reliable and ordered, as RC";
constexpr std::string_view kSleeps =
    "the client polls, and sleeps without traffic; PACECAR_PROGRESS and PACECAR_SPIN set how";
constexpr std::string_view kPaced =
    "packets are paced one by one, by the NIC where it can; --rate_limit sets the rate";
constexpr std::string_view kMemory = "messages lie in memory of this process, which is registered";
constexpr std::string_view kChannel =
    "the two ends always talk over a TCP connection of their own (-p, --bind, --source_ip)";
constexpr std::string_view kMulticast = "a flow has one sender and one receiver";
constexpr std::string_view kOtherGpus = "GPU memory is that of NVIDIA's GPUs: --use_cuda";

constexpr std::array kAnswers = {
    Answer{"-R", "--rdma_cm", kChannel},
    Answer{"-z", "--com_rdma_cm", kChannel},
    Answer{"-L", "--hop_limit", "packets leave with a hop limit of 64, enough for any data centre"},
    Answer{"-O", "--dualport", "name two NICs that serve as one: -d mlx5_0+mlx5_1"},
    Answer{"", "--report-per-port", "'pacecar doctor' prints the rate of each NIC"},
    Answer{"-Q", "--cq-mod", "the transport itself leaves most of its writes unsignaled"},
    Answer{"-I", "--inline_size", "the transport itself puts small control writes inline"},
    Answer{"", "--inline_recv", "nothing is received into work requests but written in place"},
    Answer{"", "--recv_post_list", "receives are posted in groups already, as many as -r needs"},
    Answer{"", "--use-srq", "a message is written straight into its buffer: no receive queue"},
    Answer{"-e", "--events", kSleeps},
    Answer{"-X", "--vector", kSleeps},
    Answer{"-g", "--mcg", kMulticast},
    Answer{"-M", "--MGID", kMulticast},
    Answer{"-C", "--report-cycles",
           "times are printed in microseconds, whatever the CPU's frequency"},
    Answer{"", "--burst_size", kPaced},
    Answer{"", "--typical_pkt_size", kPaced},
    Answer{"", "--rate_limit_type", kPaced},
    Answer{"", "--retry_count", "-u sets how long a peer may be silent before it is dead"},
    Answer{"", "--log_dci_streams", kOneConnectionType},
    Answer{"", "--log_active_dci_streams", kOneConnectionType},
    Answer{"", "--dlid", "the peer sends its own LID"},
    Answer{"", "--dont_xchg_versions", "both ends must have the same version, and check it"},
    Answer{"", "--force-link", "the port determines it"},
    Answer{"", "--ipv6", "-x chooses the GID by its index, and with it the kind of address"},
    Answer{"", "--mmap", kMemory},
    Answer{"", "--mmap-offset", kMemory},
    Answer{"", "--odp", kMemory},
    Answer{"", "--disable_pcie_relaxed",
           "'pacecar preflight' prints the state of PCIe, and the BIOS or setpci changes it"},
    Answer{"", "--use_old_post_send", "PACECAR_VERBS_WITHOUT=calls posts by ibv_post_send"},
    Answer{"", "--wait_destroy", "what a test has made goes when it ends"},
    Answer{"", "--aes_xts", kKeys},
    Answer{"", "--encrypt_on_tx", kKeys},
    Answer{"", "--sig_before", kKeys},
    Answer{"", "--aes_block_size", kKeys},
    Answer{"", "--data_enc_keys_number", kKeys},
    Answer{"", "--kek_path", kKeys},
    Answer{"", "--credentials_path", kKeys},
    Answer{"", "--data_enc_key_app_path", kKeys},
    Answer{"", "--use_rocm", kOtherGpus},
};

}  // namespace

std::string answer_to_perftest_flag(std::string_view name) {
  // A letter may have its value attached: "-L64".
  const bool letter = name.size() >= 2 && name[1] != '-';
  const auto found = std::ranges::find_if(kAnswers, [&](const Answer& answer) {
    return letter ? answer.letter == name.substr(0, 2) : answer.name == name;
  });
  if (found == kAnswers.end()) return {};
  return fmt::format("there is no {} as perftest has it: {}", letter ? found->letter : found->name,
                     found->reason);
}

}  // namespace pacecar::perf
