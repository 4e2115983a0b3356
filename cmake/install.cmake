# `cmake --install`: the program, the library with its headers, and what find_package(rullama) reads.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package "${CMAKE_INSTALL_LIBDIR}/cmake/rullama")
install(TARGETS rullama rullama_train rullama_runtime rullama_text rullama_lora rullama_models rullama_ops rullama_gpu rullama_formats rullama_base
                rullama_native rullama_webgpu rullama_options
        EXPORT rullama ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(EXPORT rullama NAMESPACE rullama:: DESTINATION "${package}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/rullama" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")

get_target_property(webgpu_library WebGPU::WebGPU IMPORTED_LOCATION)
get_filename_component(RULLAMA_WEBGPU_FILE "${webgpu_library}" NAME)
install(PROGRAMS "${webgpu_library}" DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(TARGETS rullama_cli RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
set_target_properties(rullama_cli PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")

configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/rullamaConfig.cmake.in"
  "${CMAKE_CURRENT_BINARY_DIR}/rullamaConfig.cmake" INSTALL_DESTINATION "${package}" PATH_VARS CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/rullamaConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/rullamaConfig.cmake" "${CMAKE_CURRENT_BINARY_DIR}/rullamaConfigVersion.cmake"
        DESTINATION "${package}")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE-MIT" "${PROJECT_SOURCE_DIR}/LICENSE-APACHE" "${PROJECT_SOURCE_DIR}/NOTICE"
        DESTINATION "${CMAKE_INSTALL_DOCDIR}")
