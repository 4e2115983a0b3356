# ctest reads this before it runs anything: without a GPU the tests run on Mesa's CPU driver for Vulkan.
file(GLOB gpus /dev/dri/renderD* /dev/nvidia0)
if(NOT gpus AND NOT DEFINED ENV{VK_DRIVER_FILES} AND NOT DEFINED ENV{VK_ICD_FILENAMES})
  execute_process(COMMAND sh "${CMAKE_CURRENT_LIST_DIR}/../tools/get-lavapipe.sh"
                  RESULT_VARIABLE status OUTPUT_VARIABLE manifest OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(status EQUAL 0)
    set(ENV{VK_DRIVER_FILES} "${manifest}")
  else()
    set(ENV{RULLAMA_TEST_NO_GPU} 1)  # these tests are skipped
  endif()
endif()
