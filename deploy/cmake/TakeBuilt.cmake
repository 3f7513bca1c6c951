# cmake -DFROM=FOLDER -DTO=FOLDER -P TakeBuilt.cmake: copies the program, the libraries, the plugin, the
# modules and the manual that the build folder FROM has into TO, a folder that was configured from
# the same tree for other places of installation, and where nothing was built. `cmake --install TO`
# then finds all that it looks for.
set(binaries bench/pacecar modules/libpacecar-dpdk.so modules/libpacecar-switch-dpdk.so
             net_plugin/libnccl-net-pacecar.so net_plugin/libfabric/libpacecar-fi.so
             net_plugin/verbs/libpacecar-verbs.so)
file(GLOB libraries RELATIVE ${FROM} ${FROM}/deploy/library/libpacecar.so*)
set(others ${libraries} deploy/library/libpacecar.a deploy/library/manual
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

# They have the path of the modules in FROM, of which TO's installation does not know.
foreach(name ${binaries} ${libraries})
  if(NOT IS_SYMLINK ${TO}/${name})
    file(RPATH_REMOVE FILE ${TO}/${name})
  endif()
endforeach()
