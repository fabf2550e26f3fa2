# Has programs run where Debian's libraries are not: of what find_package() has found, all but MPI is
# linked statically, and the compiler's own library too. Left are the C library, and CUDA's libraries,
# cuDNN and NCCL, which come with a GPU's driver or its frameworks.

# All headers, if asked; of their libraries nothing is needed then.
set_target_properties(fmt::fmt PROPERTIES INTERFACE_COMPILE_DEFINITIONS FMT_HEADER_ONLY=1)
set_target_properties(spdlog::spdlog PROPERTIES INTERFACE_COMPILE_DEFINITIONS SPDLOG_FMT_EXTERNAL)
set_target_properties(pugixml::pugixml PROPERTIES INTERFACE_LINK_LIBRARIES pugixml::static)
find_library(YAML_CPP_ARCHIVE libyaml-cpp.a REQUIRED)
find_library(XXHASH_ARCHIVE libxxhash.a REQUIRED)
set_target_properties(xxhash::xxhash PROPERTIES IMPORTED_LOCATION ${XXHASH_ARCHIVE})
get_target_property(configurations yaml-cpp IMPORTED_CONFIGURATIONS)
foreach(configuration ${configurations})
  set_target_properties(yaml-cpp PROPERTIES IMPORTED_LOCATION_${configuration} ${YAML_CPP_ARCHIVE})
endforeach()
add_link_options(-static-libstdc++ -static-libgcc -s LINKER:--as-needed)
