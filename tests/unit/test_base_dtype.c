/* Conversions between f32 and the 16-bit types: nearest, ties to even, by definition and compared with the CPU's. */
#include <math.h>

#if defined(__x86_64__)
#    include <immintrin.h>
#endif

#include "testing.h"

/* A 16-bit format: the value of a magnitude by its definition. The code of infinity has the next power of two, the
   value that rounding compares with. */
typedef struct {
    int fraction_bits, bias;
    uint16_t infinity;
    uint16_t (*from)(float);
    float (*to)(uint16_t);
} Format;

static const Format bf16 = {7, 127, 0x7f80, bf16_from_f32, bf16_to_f32};
static const Format f16 = {10, 15, 0x7c00, f16_from_f32, f16_to_f32};

static double value_of(const Format *f, uint16_t magnitude)
{
    int exponent = magnitude >> f->fraction_bits, fraction = magnitude & ((1 << f->fraction_bits) - 1);
    if (exponent == 0) return ldexp(fraction, 1 - f->bias - f->fraction_bits);
    return ldexp(fraction + (1 << f->fraction_bits), exponent - f->bias - f->fraction_bits);
}

static void check_rounding(const Format *f, float x)
{
    uint16_t h = f->from(x), magnitude = h & 0x7fff;
    assert_int_equal(h >> 15, signbit(x) != 0);
    assert_true(magnitude <= f->infinity);
    double wanted = fabs((double)x);
    if (isinf(x) || wanted > value_of(f, f->infinity)) {
        assert_int_equal(magnitude, f->infinity);
        return;
    }
    double error = fabs(wanted - value_of(f, magnitude));
    bool even = (magnitude & 1) == 0;
    double below = magnitude > 0 ? fabs(wanted - value_of(f, magnitude - 1)) : HUGE_VAL;
    double above = magnitude < f->infinity ? fabs(wanted - value_of(f, magnitude + 1)) : HUGE_VAL;
    if (!(error < below || (even && error == below)) || !(error < above || (even && error == above))) {
        fail_msg("%a became %04x", (double)x, h);
    }
}

static void check_format(const Format *f)
{
    for (uint32_t h = 0; h <= 0xffff; h++) {
        float x = f->to((uint16_t)h);
        uint16_t magnitude = h & 0x7fff;
        if (magnitude > f->infinity) {
            assert_true(isnan(x));
            assert_true(isnan(f->to(f->from(x))));
            continue;
        }
        assert_int_equal(f->from(x), h); /* a round trip */
        if (magnitude == f->infinity) {
            assert_true(isinf(x) && (signbit(x) != 0) == (h >> 15));
            continue;
        }
        assert_true((double)fabsf(x) == value_of(f, magnitude));
        /* The tie above this value, and its two neighbours in f32. */
        double tie = (value_of(f, magnitude) + value_of(f, magnitude + 1)) / 2;
        uint32_t bits = f32_bits((float)tie) | (h & 0x8000) << 16;
        for (int step = -1; step <= 1; step++) check_rounding(f, f32_from_bits(bits + (uint32_t)step));
    }
    for (uint32_t bits = 0; bits < 0x7f800000u; bits += 4099) { /* all of f32 with its subnormal numbers */
        check_rounding(f, f32_from_bits(bits));
        check_rounding(f, f32_from_bits(bits | 0x80000000u));
    }
    check_rounding(f, INFINITY);
    check_rounding(f, -INFINITY);
    for (uint32_t bits = 0x7f800001u; bits <= 0x7fffffffu && bits > 0x7f800000u; bits += 65521) { /* NaN stays NaN */
        assert_true((f->from(f32_from_bits(bits)) & 0x7fff) > f->infinity);
        assert_true(f->from(f32_from_bits(bits | 0x80000000u)) > (0x8000 | f->infinity));
    }
    assert_true((f->from(f32_from_bits(0x7f800001u)) & 0x7fff) > f->infinity);
}

static void test_bf16(void **state)
{
    (void)state;
    check_format(&bf16);
    assert_int_equal(bf16_from_f32(1.0f), 0x3f80);
    assert_int_equal(bf16_from_f32(0x1.01p0f), 0x3f80); /* a tie, to even below */
    assert_int_equal(bf16_from_f32(0x1.03p0f), 0x3f82); /* a tie, to even above */
    assert_int_equal(bf16_from_f32(0x1.fffffep127f), 0x7f80);
    assert_int_equal(bf16_from_f32(-0.0f), 0x8000);
}

static void test_f16(void **state)
{
    (void)state;
    check_format(&f16);
    assert_int_equal(f16_from_f32(1.0f), 0x3c00);
    assert_int_equal(f16_from_f32(65504.0f), 0x7bff);
    assert_int_equal(f16_from_f32(65519.996f), 0x7bff);
    assert_int_equal(f16_from_f32(65520.0f), 0x7c00);
    assert_int_equal(f16_from_f32(0x1p-24f), 0x0001);
    assert_int_equal(f16_from_f32(0x1p-25f), 0x0000); /* a tie, to zero */
    assert_int_equal(f16_from_f32(0x1.8p-24f), 0x0002);
    assert_int_equal(f16_from_f32(0x1.ffcp-15f), 0x0400); /* subnormal rounds up to the smallest normal */
}

#if defined(__x86_64__)
__attribute__((target("f16c"))) static uint16_t cpu_from_f32(float x)
{
    return (uint16_t)_mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT), 0);
}

__attribute__((target("f16c"))) static uint32_t cpu_to_bits(uint16_t h)
{
    return (uint32_t)_mm_cvtsi128_si32(_mm_castps_si128(_mm_cvtph_ps(_mm_cvtsi32_si128(h))));
}

static void test_f16_as_the_cpu_does(void **state)
{
    (void)state;
    if (!__builtin_cpu_supports("avx2")) { /* every CPU with AVX2 has F16C */
        print_message("skipped: this CPU converts no f16\n");
        skip();
    }
    for (uint32_t h = 0; h <= 0xffff; h++)
        assert_int_equal(f32_bits(f16_to_f32((uint16_t)h)), cpu_to_bits((uint16_t)h));
    for (uint64_t bits = 0; bits <= 0xffffffffu; bits += 1021) {
        float x = f32_from_bits((uint32_t)bits);
        if (f16_from_f32(x) != cpu_from_f32(x)) {
            fail_msg("%08x became %04x, the CPU says %04x", (unsigned)bits, f16_from_f32(x), cpu_from_f32(x));
        }
    }
}
#else
static void test_f16_as_the_cpu_does(void **state)
{
    (void)state;
    print_message("skipped: only where there is F16C\n");
    skip();
}
#endif

static void test_sizes_and_names(void **state)
{
    (void)state;
    static const struct {
        Dtype dtype;
        size_t bytes;
        const char *name;
    } cases[] = {{F32, 4, "f32"}, {BF16, 2, "bf16"}, {F16, 2, "f16"}, {F64, 8, "f64"}, {I32, 4, "i32"},
                 {I64, 8, "i64"}, {I16, 2, "i16"},   {I8, 1, "i8"},   {U8, 1, "u8"}};
    assert_int_equal(sizeof cases / sizeof *cases, N_DTYPES);
    for (int i = 0; i < N_DTYPES; i++) {
        assert_int_equal(dtype_size(cases[i].dtype), cases[i].bytes);
        assert_string_equal(dtype_name(cases[i].dtype), cases[i].name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_f16),
        cmocka_unit_test(test_f16_as_the_cpu_does),
        cmocka_unit_test(test_sizes_and_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
