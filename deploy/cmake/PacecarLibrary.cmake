# pacecar_ships(NAME): a target that users run; see PACECAR_LTO.
function(pacecar_ships name)
  if(PACECAR_LTO)
    target_link_options(${name} PRIVATE -flto=auto -O2)
  endif()
endfunction()

# pacecar_without_lto(NAME...): libraries for whose speed nobody waits, and programs that measure
# something else than their own. Programs link in a tenth of the time.
function(pacecar_without_lto)
  if(PACECAR_LTO)
    foreach(name ${ARGN})
      target_compile_options(${name} PRIVATE -fno-lto)
      target_link_options(${name} PRIVATE -fno-lto)
    endforeach()
  endif()
endfunction()

# pacecar_library(NAME [TOGETHER] SOURCES a.cc b.cc DEPS x y): one static library per folder. Its
# dependencies are PUBLIC because our headers include one another by their path from the repository's
# root. TOGETHER: eight files are compiled as one, where the headers of large libraries (command
# lines, JSON) take most of the time.
function(pacecar_library name)
  cmake_parse_arguments(ARG "TOGETHER" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  if(ARG_SOURCES)
    add_library(${name} STATIC ${ARG_SOURCES})
    target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
    if(ARG_TOGETHER)
      set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
      target_compile_options(${name} PRIVATE -fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=)
    endif()
    target_link_libraries(${name} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
  else()
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE ${CMAKE_SOURCE_DIR})
    target_link_libraries(${name} INTERFACE ${ARG_DEPS})
  endif()
endfunction()
