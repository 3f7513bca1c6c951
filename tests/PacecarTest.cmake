# How tests are declared. Two tiers: ctest -LE all is what every change runs; the label `all` marks
# entries, and TESTS_ALL=1 the numbers of draws, that only a full run needs.

# Seconds after which a test hangs. A sanitizer, or a busy machine, makes it take several times as
# long as it should; both together must not end it.
set(PACECAR_HANGS_AFTER 600)
if(PACECAR_SANITIZE)
  set(PACECAR_HANGS_AFTER 1800)
endif()

# pacecar_test_objects(NAME SOURCES...): what several programs link, compiled once for all of them.
function(pacecar_test_objects name)
  add_library(${name} OBJECT ${ARGN})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE GTest::gmock)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)  # Clang wants the same definitions in all that share headers
    if(name STREQUAL test_main)
      target_precompile_headers(${name} PRIVATE <gmock/gmock.h> <gtest/gtest.h>)
    else()
      target_precompile_headers(${name} REUSE_FROM test_main)
    endif()
    # As programs are compiled; ccache requires the other.
    set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${name} PRIVATE -fPIE -fpch-preprocess)
  endif()
endfunction()

# The programs' main(), and the headers that all of them precompile.
pacecar_test_objects(test_main ${CMAKE_CURRENT_SOURCE_DIR}/support/test_main.cc)

# pacecar_program(NAME [FOLDERS f] [SOURCES a.cc] [DEPS x] [DEFINE A=b] [NEEDS target]): a program of
# the *_test.cc and *_property.cc in the FOLDERS and of further SOURCES. They are compiled twenty at a
# time as one file, which takes a third of the time: a file whose helpers have the names of another's
# puts them into a namespace of its own (pacecar::send_queue_test). NEEDS are built before it runs.
function(pacecar_program name)
  cmake_parse_arguments(ARG "" "" "FOLDERS;SOURCES;DEPS;DEFINE;NEEDS" ${ARGN})
  foreach(folder IN LISTS ARG_FOLDERS)
    file(GLOB found CONFIGURE_DEPENDS ${folder}/*_test.cc ${folder}/*_property.cc)
    list(APPEND ARG_SOURCES ${found})
  endforeach()
  add_executable(${name} ${ARG_SOURCES} $<TARGET_OBJECTS:test_main>)
  pacecar_together(${name} 20)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gmock rapidcheck_gtest)
  target_compile_definitions(${name} PRIVATE ${ARG_DEFINE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_precompile_headers(${name} REUSE_FROM test_main)
    target_compile_options(${name} PRIVATE -fpch-preprocess)
  endif()
  if(ARG_NEEDS)
    add_dependencies(${name} ${ARG_NEEDS})
  endif()
endfunction()

# pacecar_entry(NAME [ALL] [SHARDS n] [COST seconds] [PROCESSORS n] [ENVIRONMENT A=b] COMMAND c): an
# entry of ctest, of the label that its folder names (unit, plugin), and `all` where only a full run
# has it. A COMMAND that ends with 77 cannot run here. SHARDS entries, NAME.1 and on, divide the cases
# of one program. ctest starts those of the highest COST first.
function(pacecar_entry name)
  cmake_parse_arguments(ARG "ALL" "SHARDS;COST;PROCESSORS" "ENVIRONMENT;COMMAND" ${ARGN})
  file(RELATIVE_PATH label ${CMAKE_SOURCE_DIR}/tests ${CMAKE_CURRENT_SOURCE_DIR})
  string(REGEX REPLACE "/.*" "" label "${label}")
  set(labels ${label})
  if(ARG_ALL)
    list(APPEND labels all)
  endif()
  set(parts ${name})
  if(ARG_SHARDS)
    set(parts)
    foreach(shard RANGE 1 ${ARG_SHARDS})
      list(APPEND parts ${name}.${shard})
    endforeach()
  endif()
  set(shard 0)
  foreach(part IN LISTS parts)
    add_test(NAME ${part} COMMAND ${ARG_COMMAND})
    set(environment ${ARG_ENVIRONMENT})
    if(ARG_SHARDS)
      list(APPEND environment GTEST_TOTAL_SHARDS=${ARG_SHARDS} GTEST_SHARD_INDEX=${shard})
      math(EXPR shard "${shard} + 1")
    endif()
    set_tests_properties(${part} PROPERTIES TIMEOUT ${PACECAR_HANGS_AFTER} SKIP_RETURN_CODE 77
                         ENVIRONMENT "${environment}" LABELS "${labels}")
    foreach(property COST PROCESSORS)
      if(ARG_${property})
        set_tests_properties(${part} PROPERTIES ${property} ${ARG_${property}})
      endif()
    endforeach()
  endforeach()
endfunction()

# pacecar_test(NAME [FILTER f] ...): a program, and the entry that runs all its cases (or FILTER's) in
# one process. One case alone: build/release/tests/NAME --gtest_filter=Suite.Case
function(pacecar_test name)
  set(lists FOLDERS SOURCES DEPS DEFINE NEEDS)
  cmake_parse_arguments(ARG "ALL" "FILTER;SHARDS;COST;PROCESSORS" "${lists};ENVIRONMENT" ${ARGN})
  set(program)
  foreach(list IN LISTS lists)
    list(APPEND program ${list} ${ARG_${list}})
  endforeach()
  pacecar_program(${name} ${program})
  set(all)
  if(ARG_ALL)
    set(all ALL)
  endif()
  if(ARG_FILTER)
    set(ARG_FILTER --gtest_filter=${ARG_FILTER})
  endif()
  pacecar_entry(${name} ${all} SHARDS "${ARG_SHARDS}" COST "${ARG_COST}" PROCESSORS "${ARG_PROCESSORS}"
                ENVIRONMENT ${ARG_ENVIRONMENT} COMMAND ${name} --gtest_brief=1 ${ARG_FILTER})
endfunction()

# Programs over a hostile RDMA device. Tests that run at the same time, of this build or another, must
# not meet: each appends its name to the world's.
string(MD5 world "${CMAKE_BINARY_DIR}")
string(SUBSTRING ${world} 0 8 world)
set(hostile_device LD_PRELOAD=$<TARGET_FILE:hostile_verbs> HOSTILE_VERBS_WORLD=${world})
set(with_nics ${CMAKE_CURRENT_SOURCE_DIR}/support/with_nics)
set(python Python3::Interpreter -B)
