# Every source file of the program, folder by folder, lowest layer first.
minke_library(core
  SOURCES result.cc tensor.cc block_pool.cc processors.cc thread_pool.cc thread_start.cc
    available_memory.cc page_memory.cc file.cc storage_system.cc json.cc numeric_formats.cc
  DEPS Threads::Threads PkgConfig::FMT)
minke_library(kernels
  SOURCES reference.cc reference_selection.cc dispatch.cc matmul.cc few_rows.cc
    weight_decoding.cc fp4_products.cc fp4_blocks.cc index_scores.cc sparse_attention.cc
    elementwise.cc quantize.cc selection.cc self_check.cc
  DEPS minke_core PkgConfig::HWY)
# Highway leaves out the target with the multiply-adds of bytes (AVX3_DL) unless it is asked for.
target_compile_definitions(minke_kernels PRIVATE HWY_WANT_AVX3_DL)
minke_library(checkpoint
  SOURCES safetensors.cc safetensors_writer.cc direct_file.cc read_pool.cc
    piece_cache.cc checkpoint_reader.cc
  DEPS minke_core)
minke_library(text
  SOURCES utf8.cc tokenizer_splitter.cc tokenizer_bpe.cc tokenizer_file.cc tokenizer.cc
    compressed_vocabulary.cc request_fields.cc chat_tools.cc chat_request.cc prompt_writer.cc
    chat_encoding.cc output_parser.cc answer_tools.cc answer_markup.cc answer_filters.cc
    answer_call.cc answer_parser.cc replay_turn.cc replay_map.cc replay_file.cc
  DEPS minke_core PkgConfig::PCRE2 PkgConfig::UTF8PROC)
minke_library(recall
  SOURCES words.cc facts.cc filler.cc recall_case.cc scoring.cc
  DEPS minke_core minke_text)
minke_library(model
  SOURCES config.cc weights.cc weight_stream.cc weight_copy.cc state.cc snapshot.cc forward.cc
    hyper_connections.cc window_kv.cc compressor.cc indexer.cc attention.cc moe.cc engram.cc
    engram_hash.cc linear.cc rope_tables.cc
  DEPS minke_core minke_kernels minke_checkpoint)
minke_library(prefix_cache
  SOURCES block_key.cc eviction.cc record_format.cc segment_file.cc store_directory.cc
    store_index.cc store_index_database.cc store_reader.cc store_queue.cc store_writer.cc
    store_eviction.cc store_recovery.cc store_admin.cc store_view.cc block_store.cc
    block_store_admin.cc damaged_records.cc cache_tree.cc cache_audit.cc cache_search.cc
    prefix_cache.cc
  DEPS minke_core PkgConfig::CRYPTO PkgConfig::SQLITE PkgConfig::XXHASH)
minke_library(simulator
  SOURCES trace.cc simulator.cc capacity.cc report.cc plot.cc line_chart.cc
  DEPS minke_core minke_prefix_cache)
minke_library(planner
  SOURCES inspect.cc
  DEPS minke_core minke_model)
minke_library(engine
  SOURCES chat_prompt.cc engine.cc session.cc resume.cc cache_tiers.cc fingerprint.cc generation.cc
    model_loader.cc sampler.cc sequence.cc step.cc scheduler.cc service.cc service_steps.cc
  DEPS minke_core minke_model minke_text minke_prefix_cache)
minke_library(server
  SOURCES api.cc api_fields.cc chat_api.cc chat_writer.cc completions_api.cc openai_shapes.cc
    model_table.cc
    answer_task.cc kept_turns.cc turn_recorder.cc worker_pool.cc request_guard.cc server.cc
    routes.cc request_run.cc operator_pages.cc
    utc_day.cc prices.cc ledger.cc ledger_database.cc metrics.cc metrics_report.cc api_keys.cc
    agent_fields.cc tool_list.cc custom_input.cc responses_api.cc responses_input.cc
    responses_tools.cc responses_writer.cc messages_api.cc messages_input.cc messages_writer.cc
    http_server_reader.cc http_server_answer.cc http_server_connection.cc http_server.cc
  DEPS minke_core minke_text minke_engine PkgConfig::CRYPTO PkgConfig::SQLITE)
# Boost is all headers, and large ones: what includes it is never compiled together with more.
target_link_libraries(minke_server PRIVATE $<BUILD_INTERFACE:Boost::headers>)
set_source_files_properties(src/server/http_server_reader.cc src/server/http_server_connection.cc
  src/server/http_server.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
# Adds the web page to the server.
include(cmake/web.cmake)
minke_library(bench
  SOURCES foreign_cpu.cc measured_memory.cc peaks.cc samples.cc disk_rate.cc machine.cc
    random_weights.cc kernel_bench.cc layer_cut.cc synthetic_weights.cc synthetic_checkpoint.cc
    model_work.cc synthetic_context.cc layer_clock.cc stream_report.cc decode_bench.cc
    prefill_bench.cc
  DEPS minke_core minke_kernels minke_checkpoint minke_model minke_text minke_recall minke_engine)

minke_program(minke
  SOURCES cpu_check.cc main.cc last_words.cc flags.cc model_flags.cc cache_flags.cc
    cache_command_flags.cc flag_checks.cc common.cc terminal.cc interrupts.cc prompt_input.cc
    chat_input.cc conversation.cc
    chat_command.cc cache_report.cc cache_listing.cc cache_command.cc explain_command.cc
    generate_command.cc inspect_command.cc
    logits_command.cc simulate_command.cc tokenize_command.cc progress_bar.cc token_pass.cc
    cost_flags.cc cost_command.cc cost_report.cc serve_flags.cc serve_command.cc
    client_settings.cc
    eval_flags.cc eval_command.cc eval_recall.cc eval_perplexity.cc eval_report.cc
    bench_flags.cc bench_command.cc bench_synth.cc bench_model.cc bench_plots.cc
  DEPS minke_core minke_kernels minke_checkpoint minke_text minke_model minke_planner
    minke_engine minke_simulator minke_recall minke_server minke_bench)

# What computes little is compiled for the compiler's time under the sanitizers.
foreach(edge minke_planner minke_server minke_bench minke)
  target_compile_options(${edge} PRIVATE ${MINKE_EDGE_FLAGS})
endforeach()

# CLI11's templates take UBSan's compiler minutes, and these files only name flags.
if(MINKE_SANITIZE MATCHES undefined)
  set_source_files_properties(src/apps/flags.cc src/apps/cache_flags.cc
    src/apps/cost_flags.cc src/apps/serve_flags.cc src/apps/eval_flags.cc
    src/apps/bench_flags.cc PROPERTIES
    COMPILE_OPTIONS -fno-sanitize=undefined)
endif()

# Highway includes each of these files once per instruction set, under a name of its own.
set_source_files_properties(src/kernels/matmul.cc src/kernels/few_rows.cc
  src/kernels/weight_decoding.cc
  src/kernels/fp4_products.cc src/kernels/fp4_blocks.cc src/kernels/index_scores.cc
  src/kernels/sparse_attention.cc src/kernels/elementwise.cc src/kernels/quantize.cc
  PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
