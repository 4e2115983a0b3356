# Installs into a folder of its own, builds the examples against that with find_package and runs them on a tiny model.
set(work "${BUILD}/install-test")
file(REMOVE_RECURSE "${work}")
set(model "${SOURCE}/tests/data/models/g3-270m.f16.gguf")

# Runs a command; `said` becomes its output.
function(step what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE out ERROR_VARIABLE out)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${what} failed (${status}):\n${out}")
  endif()
  set(said "${out}" PARENT_SCOPE)
endfunction()

step("Installing" "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${work}/prefix")
step("Configuring the examples" "${CMAKE_COMMAND}" -S "${SOURCE}/examples" -B "${work}/examples" -G Ninja
     "-DCMAKE_PREFIX_PATH=${work}/prefix" "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror")
step("Building the examples" "${CMAKE_COMMAND}" --build "${work}/examples")
step("The example `continue`" "${work}/examples/continue" "${model}" "ab" cpu)
if(NOT said MATCHES "tokens on CPU")
  message(FATAL_ERROR "The example `continue` said:\n${said}")
endif()
step("The example `scores`" "${work}/examples/scores" "${model}" "a" "b" "c" cpu)
if(NOT said MATCHES "b: -[0-9]" OR NOT said MATCHES "c: -[0-9]")
  message(FATAL_ERROR "The example `scores` said:\n${said}")
endif()
step("The installed program" "${work}/prefix/bin/rullama" devices)
