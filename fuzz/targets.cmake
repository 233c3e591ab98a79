# Every fuzz target: fuzz/<name>_fuzz.cc with its seeds in fuzz/corpus/<name>/. The file is read
# twice, with two meanings of minke_fuzz: fuzz/CMakeLists.txt makes libFuzzer programs of them and
# tests/fuzz/CMakeLists.txt makes plain tests over the seeds. SOURCES are files below src.
minke_fuzz(json DEPS minke_core)
minke_fuzz(safetensors DEPS minke_checkpoint)
# Two files of minke_model, because the others bring the kernels along.
minke_fuzz(config SOURCES model/config.cc model/weights.cc DEPS minke_checkpoint)
minke_fuzz(tokenizer DEPS minke_text)
minke_fuzz(chat DEPS minke_text)
minke_fuzz(output_parser DEPS minke_text)
minke_fuzz(answer_parser DEPS minke_text)
minke_fuzz(replay_map DEPS minke_text)
minke_fuzz(trace DEPS minke_simulator)
minke_fuzz(block_store_recovery DEPS minke_prefix_cache)
# Without the rest of minke_server and the engine below it.
minke_fuzz(server_files SOURCES server/prices.cc server/utc_day.cc server/api_keys.cc
  DEPS minke_core PkgConfig::CRYPTO)
# Without the sockets.
minke_fuzz(http_request SOURCES server/http_server_reader.cc DEPS minke_core)
