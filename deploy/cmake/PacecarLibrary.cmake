# pacecar_ships(NAME): NAME is a target that users run: it is linked with PACECAR_LTO.
function(pacecar_ships name)
  if(PACECAR_LTO)
    target_link_options(${name} PRIVATE -flto=auto -O2)
  endif()
endfunction()

# pacecar_without_lto(NAME...): for programs that measure other code than their own, and libraries of
# which files call one another little. Programs link in a tenth of the time.
function(pacecar_without_lto)
  if(PACECAR_LTO)
    foreach(name ${ARGN})
      target_compile_options(${name} PRIVATE -fno-lto)
      target_link_options(${name} PRIVATE -fno-lto)
    endforeach()
  endif()
endfunction()

# pacecar_seldom_runs(NAME...): for libraries that run for moments, such as parsers of flags and writers
# of reports. Where nothing ships they are compiled in two thirds of the time.
function(pacecar_seldom_runs)
  pacecar_without_lto(${ARGN})
  if(NOT PACECAR_LTO AND NOT CMAKE_BUILD_TYPE STREQUAL Debug)
    foreach(name ${ARGN})
      target_compile_options(${name} PRIVATE -Og)
    endforeach()
  endif()
endfunction()

# pacecar_together(NAME FILES [APART a.cc]): compiles FILES sources of a target as one (0: all), because
# headers take two thirds of a source's compile time. APART: sources with conflicting names.
function(pacecar_together name files)
  cmake_parse_arguments(ARG "" "" "APART" ${ARGN})
  set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${files})
  set_source_files_properties(${ARG_APART} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  # The combined source includes its parts by absolute paths; without these paths in __FILE__ ccache
  # works across clones. GCC takes the included parts for headers, hence the warning that is off.
  target_compile_options(${name} PRIVATE -fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=
                                         $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endfunction()

# pacecar_library(NAME SOURCES a.cc b.cc APART c.cc DEPS x y): one static library per folder, its
# SOURCES compiled together. Its dependencies are PUBLIC because our headers include one another by
# their path from the repository's root.
function(pacecar_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;APART;DEPS;PRIVATE_DEPS" ${ARGN})
  if(ARG_SOURCES OR ARG_APART)
    add_library(${name} STATIC ${ARG_SOURCES} ${ARG_APART})
    target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
    pacecar_together(${name} 16 APART ${ARG_APART})
    target_link_libraries(${name} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
  else()
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE ${CMAKE_SOURCE_DIR})
    target_link_libraries(${name} INTERFACE ${ARG_DEPS})
  endif()
endfunction()

# pacecar_exports_only(NAME MAP...): of the module NAME, in which everything of ours is linked, nothing is
# visible but what these version scripts name.
function(pacecar_exports_only name)
  list(TRANSFORM ARGN PREPEND -Wl,--version-script= OUTPUT_VARIABLE version_scripts)
  set_target_properties(${name} PROPERTIES LINK_DEPENDS "${ARGN}")
  # Our threads may outlive the dlclose of a program that exits without closing or finalizing.
  target_link_options(${name} PRIVATE ${version_scripts} -Wl,-Bsymbolic -Wl,-z,nodelete)
  if(NOT PACECAR_SANITIZE)  # clang leaves the sanitizer's own symbols to the program
    target_link_options(${name} PRIVATE -Wl,--no-undefined)
  endif()
  pacecar_ships(${name})
endfunction()
