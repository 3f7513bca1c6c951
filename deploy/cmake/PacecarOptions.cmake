# Optional parts: AUTO builds a part when its dependency is found, ON insists, OFF leaves it out.
foreach(part VERBS DPDK OFI CUDA)
  set(PACECAR_WITH_${part} AUTO CACHE STRING "Build the ${part} part: AUTO, ON or OFF")
  set_property(CACHE PACECAR_WITH_${part} PROPERTY STRINGS AUTO ON OFF)
  if(NOT PACECAR_WITH_${part} MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "PACECAR_WITH_${part} is '${PACECAR_WITH_${part}}': use AUTO, ON or OFF")
  endif()
endforeach()

# pacecar_part(PART TARGET LIBRARY VERSION): sets PACECAR_HAVE_<PART>, and makes PkgConfig::<TARGET>.
macro(pacecar_part part target library version)
  set(PACECAR_HAVE_${part} OFF)
  set(PACECAR_BUILT_${part} "not built")
  if(NOT PACECAR_WITH_${part} STREQUAL OFF)
    pkg_check_modules(${target} QUIET IMPORTED_TARGET ${library}>=${version})
    set(PACECAR_HAVE_${part} ${${target}_FOUND})
  endif()
  if(PACECAR_HAVE_${part})
    set(PACECAR_BUILT_${part} "${library} ${${target}_VERSION}")
  elseif(PACECAR_WITH_${part} STREQUAL ON)
    message(FATAL_ERROR "PACECAR_WITH_${part}=ON, but ${library} ${version} is not found: install "
                        "${library}-dev")
  endif()
endmacro()
pacecar_part(VERBS ibverbs libibverbs 1.12)  # RDMA NICs
pacecar_part(DPDK dpdk libdpdk 22.11)  # software NICs on DPDK's Ethernet devices
pacecar_part(OFI libfabric libfabric 1.17)  # its providers

function(pacecar_print_summary)
  message(STATUS "Pacecar ${PROJECT_VERSION}")
  message(STATUS "  build type   ${CMAKE_BUILD_TYPE} ${PACECAR_SANITIZE}")
  message(STATUS "  NICs         soft:udp soft:raw")
  message(STATUS "  LTO          ${PACECAR_LTO}")
  message(STATUS "  AES-GCM      ${PACECAR_CIPHER}")
  foreach(part VERBS DPDK OFI)
    message(STATUS "  ${part}: ${PACECAR_WITH_${part}} (${PACECAR_BUILT_${part}})")
  endforeach()
  message(STATUS "  CUDA: ${PACECAR_WITH_CUDA} (loaded at run time)")
  message(STATUS "  tests ${PACECAR_TESTS}, benchmarks ${PACECAR_BENCH}, ccache ${PACECAR_CCACHE}")
endfunction()
