// `pacecar switch`: an Ethernet switch in user space whose queues are the simulator's.
#pragma once

namespace pacecar {

int run_switch(int argc, char** argv);

}  // namespace pacecar
