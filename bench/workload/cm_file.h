// Connection matrices (.cm files): flows between hosts, and the triggers that start them.
//
//   Nodes 128                        hosts
//   Connections 3                    lines with -> below
//   Triggers 2                       lines with trigger below; optional when there are none
//   3->7 id 1 start 2.5 size 1000000 send_done_trigger 1
//   7->9 id 2 trigger 1 size 1000000 recv_done_trigger 2
//   9->3 id 3 trigger 2 start 10 size 1000000
//   trigger id 1 oneshot
//   trigger id 2 barrier count 1
//
// `start` is in microseconds after the begin of the run, or after the flow's trigger has fired;
// `size` is in bytes. send_done_trigger fires when the sender has the last acknowledgement,
// recv_done_trigger when the receiver has all bytes; each may be given several times. A trigger is
// oneshot, multishot, or barrier with a count (workload.h). Ids of flows and triggers begin at 1; a
// flow without an id is numbered by its position. Lines may come in any order; # begins a comment.
#pragma once

#include <string>
#include <string_view>

#include "bench/workload/workload.h"
#include "transport/base/result.h"

namespace pacecar {

// Errors: kInvalidArgument, one sentence with file, line, cause and cure. `file` is for messages
// and becomes the workload's name.
Result<Workload> parse_cm(std::string_view text, const std::string& file);
// Further error: kSystem when the file cannot be read.
Result<Workload> read_cm_file(const std::string& path);

}  // namespace pacecar
