/* Products of bf16 by CUTLASS 4, whose epilogues (EVT, trees of visitors) have GELU. Compiled for sm_90a alone.

   Two warpgroups take turns: while one has the tensor cores for a tile of 64 × 256, the other computes the epilogue of
   the tile before (ping-pong). Two epilogues never run at once, nor do two tiles' products. So an epilogue costs
   nothing as long as it takes no longer than the products of a tile. All sums go along k in order, whatever m is: a row
   has the same bits in any bucket. */
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/epilogue/fusion/operations.hpp>
#include <cutlass/epilogue/fusion/sm90_callbacks_tma_warpspecialized.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/gemm/kernel/gemm_universal.hpp>
#include <cutlass/version.h>

#include "kernels/cuda/gelu.cuh"

#include "kernels/cuda/fused_gelu.h"

namespace
{

using cute::_0, cute::_1, cute::_64, cute::Int, cute::Shape, cute::Stride, cute::seq;
namespace epilogue = cutlass::epilogue;
namespace fusion = cutlass::epilogue::fusion;

typedef cutlass::bfloat16_t Value;
typedef Shape<Int<FUSED_ROWS>, Int<FUSED_COLUMNS>, _64> TileShape;
typedef Shape<Int<2>, _1, _1> ClusterShape; /* two tiles of the same columns read w once */
typedef cutlass::layout::RowMajor Rows;
typedef cutlass::layout::ColumnMajor Turned;
typedef epilogue::TmaWarpSpecialized Store;
constexpr auto NEAREST = cutlass::FloatRoundStyle::round_to_nearest;

/* ---- functions of fragments ---- */

template <int N> using Fragment = cutlass::Array<float, N>;

template <class> struct GeluOf;
template <int N> struct GeluOf<Fragment<N>> {
    CUTLASS_DEVICE Fragment<N> operator()(const Fragment<N> &pre) const
    {
        Fragment<N> g;
        CUDA_UNROLL for (int i = 0; i < N; i++) g[i] = Gelu<__nv_bfloat16, GELU_ERF>::at(pre[i]).g;
        return g;
    }
};

/* gelu'(pre) times the product, which is rounded first, as where it is an op of its own. */
template <class> struct GradientOf;
template <int N> struct GradientOf<Fragment<N>> {
    CUTLASS_DEVICE Fragment<N> operator()(const Fragment<N> &product, const Fragment<N> &pre) const
    {
        cutlass::Array<Value, N> rounded = cutlass::NumericArrayConverter<Value, float, N>()(product);
        Fragment<N> d = cutlass::NumericArrayConverter<float, Value, N>()(rounded);
        CUDA_UNROLL for (int i = 0; i < N; i++) d[i] *= Gelu<__nv_bfloat16, GELU_ERF>::at(pre[i]).slope;
        return d;
    }
};

/* ---- epilogues ---- */

template <template <class> class F> using Compute = fusion::Sm90Compute<F, Value, float, NEAREST>;

typedef epilogue::collective::detail::EpilogueDescriptor<TileShape, epilogue::collective::EpilogueTileAuto, Value,
                                                         Value, Store>
    Described;
typedef epilogue::collective::detail::AuxStoreDescriptor<Described, Rows, Value> G;
/* Writes what it is given to g, unless that is NULL, and passes it on. */
typedef fusion::Sm90AuxStore<G::Stages, Described::EpilogueTile, Value, NEAREST, G::Stride, G::SmemLayoutAtom,
                             G::CopyOpR2S>
    StoreG;
typedef fusion::Sm90RowBroadcast<0, TileShape, Value, float, Stride<_0, _1, _0>, 8, false> Bias;
/* Sums of a tile's columns to parts, unless that is NULL. Rows beyond the matrix add 0: their products are 0. */
typedef fusion::Sm90RowReduction<cutlass::plus, cutlass::plus, cutlass::plus, 0, TileShape, float, float, NEAREST,
                                 Stride<_0, _1, _0>, 4, true, false, false>
    Sums;

/* out = product + bias, g = gelu(out) */
typedef fusion::Sm90SplitTreeVisitor<fusion::Sm90EVT<Compute<cutlass::plus>, fusion::Sm90AccFetch, Bias>,
                                     fusion::Sm90AccFetch,
                                     fusion::Sm90EVT<StoreG, fusion::Sm90EVT<Compute<GeluOf>, fusion::Sm90AccFetch>>>
    ForwardTree;

/* Nodes by number: 0 the product, 1 pre, 2 out, 3 gelu(pre), 4 g, 5 the sums of out. The last one's result, out as it
   was given, is what is stored. */
typedef fusion::Sm90TopologicalVisitor<float, cute::tuple<seq<>, seq<>, seq<0, 1>, seq<1>, seq<3>, seq<2>>,
                                       fusion::Sm90AccFetch, fusion::Sm90SrcFetch<Value>, Compute<GradientOf>,
                                       Compute<GeluOf>, StoreG, Sums>
    BackwardTree;

/* ---- kernels ---- */

/* `Source`: type of a matrix that the epilogue reads; void: none. */
template <class LayoutW, class Source, class Tree> struct KernelOf {
    typedef
        typename epilogue::collective::CollectiveBuilder<cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileShape,
                                                         ClusterShape, epilogue::collective::EpilogueTileAuto, float,
                                                         float, Source, Rows, 8, Value, Rows, 8, Store,
                                                         Tree>::CollectiveOp Epilogue;
    typedef typename cutlass::gemm::collective::CollectiveBuilder<
        cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Value, Rows, 8, Value, LayoutW, 8, float, TileShape,
        ClusterShape, cutlass::gemm::collective::StageCountAutoCarveout<(int)sizeof(typename Epilogue::SharedStorage)>,
        cutlass::gemm::KernelTmaWarpSpecializedPingpong>::CollectiveOp Products;
    typedef cutlass::gemm::kernel::GemmUniversal<Shape<int, int, int, int>, Products, Epilogue> Kernel;
};
typedef cutlass::gemm::device::GemmUniversalAdapter<typename KernelOf<Turned, void, ForwardTree>::Kernel> Forward;
typedef cutlass::gemm::device::GemmUniversalAdapter<typename KernelOf<Rows, Value, BackwardTree>::Kernel> Backward;

template <class Product> Status load()
{
    cudaFuncAttributes attributes;
    cudaError_t error = cudaFuncGetAttributes(&attributes, cutlass::device_kernel<typename Product::GemmKernel>);
    return error == cudaSuccess ? OK : fail(E_FAIL, "loading CUTLASS's kernels failed: %s", cudaGetErrorString(error));
}

template <class Product> Status launch(typename Product::Arguments arguments)
{
    CHECK(Product::get_workspace_size(arguments) == 0, "CUTLASS's product wants a workspace");
    arguments.hw_info.sm_count = device_info()->multiprocessors;
    Product product;
    cutlass::Status status = product.run(arguments, NULL, static_cast<cudaStream_t>(device_stream(NULL)));
    if (status != cutlass::Status::kSuccess) {
        (void)cudaGetLastError();
        return fail(E_FAIL, "CUTLASS: %s", cutlassGetStatusString(status));
    }
    return cuda_launched(__FILE__, __LINE__);
}

const Value *values(const void *p) { return static_cast<const Value *>(p); }
Value *values(void *p) { return static_cast<Value *>(p); }

} // namespace

#define VERSION_TEXT(major, minor, patch) VERSION_OF(major, minor, patch)
#define VERSION_OF(major, minor, patch)   "CUTLASS " #major "." #minor "." #patch

const char *fused_gelu_library(void) { return VERSION_TEXT(CUTLASS_MAJOR, CUTLASS_MINOR, CUTLASS_PATCH); }

Status fused_gelu_load(void)
{
    TRY(load<Forward>());
    return load<Backward>();
}

Status fused_gelu_forward(const FusedGelu *f)
{
    int64_t n = f->n, k = f->k;
    return launch<Forward>({cutlass::gemm::GemmUniversalMode::kGemm,
                            {f->m, f->n, f->k, 1},
                            {values(f->a), {k, _1{}, 0}, values(f->w), {k, _1{}, 0}},
                            {{{{}, {values(f->bias)}, {}}, {{{}, {}}, {values(f->g), {n, _1{}, 0}}}, {}},
                             nullptr,
                             {},
                             values(f->out),
                             {n, _1{}, 0}}});
}

Status fused_gelu_backward(const FusedGelu *f)
{
    int64_t n = f->n, k = f->k;
    return launch<Backward>({cutlass::gemm::GemmUniversalMode::kGemm,
                             {f->m, f->n, f->k, 1},
                             {values(f->a), {k, _1{}, 0}, values(f->w), {_1{}, n, 0}},
                             {{{}, {}, {}, {}, {values(f->g), {n, _1{}, 0}}, {f->parts}},
                              values(f->pre),
                              {n, _1{}, 0},
                              values(f->out),
                              {n, _1{}, 0}}});
}
