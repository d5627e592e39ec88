#include "kernels/cpu/vec.h"
#include "kernels/cpu/vec/simd.h"

#define NAME_(isa) #isa
#define NAME(isa)  NAME_(isa)

const Vec V(cpu_vec) = {.name = NAME(CAIRN_VEC),
#define X(result, name, arguments) .name = V(name),
                        VEC_LIST(X)
#undef X
};
