# The trainer (src/train), built with -DMINKE_TRAIN=ON from libtorch and OpenBLAS of the system.
# libtorch's own CMake package asks for much that a user of the library does not need, hence the
# plain look-up.
find_path(TORCH_INCLUDE_DIR torch/csrc/api/include/torch/torch.h REQUIRED)
foreach(library torch torch_cpu c10)
  find_library(MINKE_${library}_LIBRARY ${library} REQUIRED)
endforeach()
find_path(OPENBLAS_INCLUDE_DIR cblas.h PATH_SUFFIXES openblas-pthread x86_64-linux-gnu REQUIRED)
find_library(OPENBLAS_LIBRARY openblas REQUIRED)

add_library(minke_torch INTERFACE)
target_include_directories(minke_torch SYSTEM INTERFACE
  ${TORCH_INCLUDE_DIR} ${TORCH_INCLUDE_DIR}/torch/csrc/api/include)
target_link_libraries(minke_torch INTERFACE
  ${MINKE_torch_LIBRARY} ${MINKE_torch_cpu_LIBRARY} ${MINKE_c10_LIBRARY})
add_library(minke_openblas INTERFACE)
target_include_directories(minke_openblas SYSTEM INTERFACE ${OPENBLAS_INCLUDE_DIR})
target_link_libraries(minke_openblas INTERFACE ${OPENBLAS_LIBRARY})

# torch/torch.h takes the compiler 30 s: every target that includes it links this and calls
# target_precompile_headers(TARGET REUSE_FROM minke_train_headers).
add_library(minke_train_headers OBJECT src/train/torch_header.cc)
target_include_directories(minke_train_headers PRIVATE src)
target_link_libraries(minke_train_headers PRIVATE minke_options minke_torch)
target_precompile_headers(minke_train_headers PRIVATE
  ${CMAKE_SOURCE_DIR}/src/train/torch.h <string> <vector> <memory> <unordered_map>)
# -O3 and OpenMP's simd pragmas (no threads) make the fused loops vector code. Through a
# precompiled header g++ 12 warns of inlined standard classes, for nothing.
set(MINKE_TRAIN_FLAGS -O3 -fopenmp-simd -Wno-unknown-pragmas -Wno-array-bounds -Wno-restrict
  -Wno-stringop-overflow -Wno-stringop-overread -Wno-maybe-uninitialized)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  list(APPEND MINKE_TRAIN_FLAGS -fpch-preprocess)
endif()
target_compile_options(minke_train_headers PRIVATE ${MINKE_TRAIN_FLAGS})

# The part of the trainer that knows no libtorch.
minke_library(train
  SOURCES weight_encoder.cc ascii_text.cc text_extraction.cc text_cleaning.cc corpus.cc
    tokenizer_trainer.cc row_generator.cc
  DEPS minke_core minke_text minke_recall)

# The arithmetic of the fused functions, without libtorch: compiles in seconds.
add_library(minke_train_kernels STATIC
  src/train/gemm.cc src/train/sinkhorn.cc src/train/row_rounding.cc src/train/attention_blocks.cc
  src/train/index_scores.cc src/train/expert.cc src/train/router.cc)
target_include_directories(minke_train_kernels PUBLIC src)
target_compile_options(minke_train_kernels PRIVATE ${MINKE_TRAIN_FLAGS})
target_link_libraries(minke_train_kernels
  PUBLIC minke_core minke_kernels minke_openblas PRIVATE minke_options)

# The model as a differentiable function.
add_library(minke_train_model STATIC
  src/train/fake_quantization.cc src/train/rms_norm.cc src/train/rope.cc src/train/linear.cc
  src/train/hyper_connections.cc src/train/attention.cc src/train/compressor.cc src/train/draft.cc
  src/train/indexer.cc src/train/moe.cc src/train/engram.cc src/train/model_parameters.cc
  src/train/structured_initialisation.cc src/train/forward_pass.cc src/train/model.cc)
target_include_directories(minke_train_model PUBLIC src)
# Reading the precompiled header takes longer than compiling one of these files.
set_target_properties(minke_train_model PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 7)
# The loop's tests link a stand-in for it, which only works while it is an object of its own.
set_source_files_properties(src/train/model.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
target_compile_options(minke_train_model PRIVATE ${MINKE_TRAIN_FLAGS})
target_link_libraries(minke_train_model
  PUBLIC minke_train minke_train_kernels minke_core minke_kernels minke_checkpoint minke_text
    minke_model minke_torch minke_openblas
  PRIVATE minke_options)
target_precompile_headers(minke_train_model REUSE_FROM minke_train_headers)

# The loop around the model: optimizer, stages, state, export.
add_library(minke_train_loop STATIC
  src/train/ablation_plan.cc src/train/ablation_report.cc
  src/train/adamw.cc src/train/agreement.cc src/train/blas_check.cc src/train/digest.cc
  src/train/evaluation.cc src/train/export.cc src/train/generated_rows.cc src/train/loss.cc
  src/train/model_folder.cc src/train/muon.cc src/train/optimizer.cc src/train/recall_probe.cc
  src/train/replicas.cc src/train/row_source.cc src/train/run_folder.cc
  src/train/stage_config.cc src/train/trainer.cc src/train/training_state.cc)
target_include_directories(minke_train_loop PUBLIC src)
set_target_properties(minke_train_loop PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 10)
target_compile_options(minke_train_loop PRIVATE ${MINKE_TRAIN_FLAGS})
# The square root of AdamW in vectors needs to know that nobody reads errno.
set_source_files_properties(src/train/adamw.cc PROPERTIES
  COMPILE_OPTIONS -fno-math-errno SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
target_link_libraries(minke_train_loop
  PUBLIC minke_train_model PkgConfig::XXHASH ${CMAKE_DL_LIBS} PRIVATE minke_options)
target_precompile_headers(minke_train_loop REUSE_FROM minke_train_headers)

add_executable(minke-train
  src/apps/train/main.cc src/apps/train/progress.cc src/apps/train/output_files.cc
  src/apps/train/run_command.cc src/apps/train/export_command.cc
  src/apps/train/evaluate_command.cc src/apps/train/compare_command.cc
  src/apps/train/data_commands.cc src/apps/train/ablate_command.cc)
target_compile_definitions(minke-train PRIVATE MINKE_VERSION="${PROJECT_VERSION}")
target_compile_options(minke-train PRIVATE ${MINKE_TRAIN_FLAGS} -O1)
target_link_libraries(minke-train PRIVATE minke_train_loop minke_engine minke_recall
  minke_options)
target_precompile_headers(minke-train REUSE_FROM minke_train_headers)
set_target_properties(minke-train PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}
  UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
