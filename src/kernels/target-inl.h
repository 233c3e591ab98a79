// What the compiler may use on the target AVX3_DL, for kernels with intrinsics of their own. To be
// included before HWY_BEFORE_NAMESPACE(), once per instruction set, as Highway's own files are.
#include <hwy/highway.h>

#if defined(MINKE_KERNELS_TARGET_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MINKE_KERNELS_TARGET_INL_H_
#undef MINKE_KERNELS_TARGET_INL_H_
#else
#define MINKE_KERNELS_TARGET_INL_H_
#endif

#if HWY_TARGET == HWY_AVX3_DL
// This release of Highway asks the processor for the multiply-adds of bytes (VNNI), but does not
// let the compiler use them; dispatch.cc asks for the matrix products of bits (GFNI). The rest is
// what Highway's own functions have, or they could not be inlined.
#undef HWY_TARGET_STR
#define HWY_TARGET_STR                                                                 \
  HWY_TARGET_STR_AVX3                                                                  \
  ",vpclmulqdq,avx512vbmi,avx512vbmi2,vaes,avxvnni,avx512bitalg,avx512vpopcntdq,gfni," \
  "avx512vnni"
#endif

#endif  // include guard of each instruction set
