# cmake -DFROM=FOLDER -DTO=FOLDER -P TakeBuilt.cmake: copies the programs, the libraries, the plugin, the
# modules and the manual from the build folder FROM into TO. TO was configured from the same tree for
# other installation folders, and nothing was built in it. `cmake --install TO` then works.
set(binaries bench/pacecar bench/nccl/programs/collectives cpu_device/libcudart.so.12
             modules/libpacecar-diagnose.so modules/libpacecar-dpdk.so modules/libpacecar-simulate.so
             net_plugin/libnccl-net-pacecar.so net_plugin/libfabric/libpacecar-fi.so
             net_plugin/verbs/libpacecar-verbs.so)
file(GLOB libraries RELATIVE ${FROM} ${FROM}/deploy/library/libpacecar.so*)
set(others ${libraries} cpu_device/libcuda.so.1 cpu_device/libnvidia-ml.so.1 deploy/library/libpacecar.a deploy/library/manual
           net_plugin/librccl-net-pacecar.so net_plugin/verbs/libibverbs.so
           net_plugin/verbs/libibverbs.so.1
           net_plugin/verbs/librdmacm.so.1)

foreach(name ${binaries} ${others} deploy/library/libpacecar.so)
  if(NOT EXISTS ${FROM}/${name})
    message(FATAL_ERROR "${FROM} has no ${name}: build it there, on a host with libdpdk-dev")
  endif()
  cmake_path(GET name PARENT_PATH folder)
  file(COPY ${FROM}/${name} DESTINATION ${TO}/${folder})
endforeach()

# These files have the path of FROM's modules, which must not be in an installation.
foreach(name ${binaries} ${libraries})
  if(NOT IS_SYMLINK ${TO}/${name})
    file(RPATH_REMOVE FILE ${TO}/${name})
  endif()
endforeach()
