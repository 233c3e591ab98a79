// Exists so that libtorch's header is compiled once (cmake/train.cmake).
#include <torch/torch.h>
