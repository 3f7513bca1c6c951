# Run at every build: writes OUTPUT from INPUT with the commit of SOURCE as it is now, or the one
# that is given; the file is touched only when that changed.
if(NOT PACECAR_COMMIT)
  set(PACECAR_COMMIT unknown)
  find_package(Git QUIET)
endif()
if(Git_FOUND)
  execute_process(COMMAND ${GIT_EXECUTABLE} describe --always --dirty --abbrev=12 --exclude=*
                  WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE described
                  RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT failed)
    set(PACECAR_COMMIT ${described})
  endif()
endif()
configure_file(${INPUT} ${OUTPUT} @ONLY)
