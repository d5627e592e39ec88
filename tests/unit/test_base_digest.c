/* XXH3-128: the pieces of a stream do not matter. CRC-32C: published values, and a bit by bit computation. */
#include "testing.h"

static void fill(uint8_t *data, size_t len)
{
    uint64_t seed = 7;
    for (size_t i = 0; i < len; i++) data[i] = (uint8_t)(testing_random(&seed) >> 56);
}

static void test_format(void **state)
{
    (void)state;
    char text[33];
    digest_format((Digest){UINT64_C(0x0123456789abcdef), UINT64_C(0x00000000fedcba98)}, text);
    assert_string_equal(text, "0123456789abcdef00000000fedcba98");
    digest_format(digest_of("", 0), text); /* xxh128sum of an empty file */
    assert_string_equal(text, "99aa06d3014798d86001c324468d497f");
    digest_format(digest_of(NULL, 0), text);
    assert_string_equal(text, "99aa06d3014798d86001c324468d497f");
    assert_true(digest_equal((Digest){1, 2}, (Digest){1, 2}));
    assert_false(digest_equal((Digest){1, 2}, (Digest){1, 3}));
    assert_false(digest_equal((Digest){1, 2}, (Digest){3, 2}));
}

static void test_stream_equals_one_shot(void **state)
{
    (void)state;
    enum { MOST = 70000 };
    uint8_t *data = mem_alloc(MOST);
    fill(data, MOST);
    uint64_t seed = 3;
    for (size_t len = 0; len <= MOST; len += len < 600 ? 1 : 1 + testing_random(&seed) % 5000) {
        DigestStream *s = digest_new();
        for (size_t at = 0; at < len;) {
            size_t n = testing_random(&seed) % (len < 600 ? 40 : 3000);
            if (n > len - at) n = len - at;
            digest_update(s, data + at, n);
            at += n;
        }
        assert_true(digest_equal(digest_value(s), digest_of(data, len)));
        digest_value(s); /* reading the value changes nothing */
        digest_update(s, data, len);
        digest_update(s, NULL, 0);
        Digest twice = digest_value(s);
        digest_free(s);
        if (len) assert_false(digest_equal(twice, digest_of(data, len)));
    }
    digest_free(NULL);
    free(data);
}

static void test_every_bit_counts(void **state)
{
    (void)state;
    uint8_t data[100];
    fill(data, sizeof data);
    Digest whole = digest_of(data, sizeof data);
    for (size_t bit = 0; bit < 8 * sizeof data; bit++) {
        data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_false(digest_equal(whole, digest_of(data, sizeof data)));
        data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_true(digest_equal(whole, digest_of(data, sizeof data)));
}

static uint32_t crc_by_bits(const uint8_t *data, size_t len)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < len; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

static void test_crc_published(void **state)
{
    (void)state;
    uint8_t block[32];
    assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283);
    assert_int_equal(crc32c(0, NULL, 0), 0);
    memset(block, 0, sizeof block); /* RFC 3720, B.4 */
    assert_int_equal(crc32c(0, block, 32), 0x8a9136aa);
    memset(block, 0xff, sizeof block);
    assert_int_equal(crc32c(0, block, 32), 0x62a8ab43);
    for (int i = 0; i < 32; i++) block[i] = (uint8_t)i;
    assert_int_equal(crc32c(0, block, 32), 0x46dd794e);
    for (int i = 0; i < 32; i++) block[i] = (uint8_t)(31 - i);
    assert_int_equal(crc32c(0, block, 32), 0x113fdb5c);
}

static void test_crc_any_length_and_pieces(void **state)
{
    (void)state;
    uint8_t data[400];
    fill(data, sizeof data);
    for (size_t start = 0; start < 9; start++) {
        for (size_t len = 0; len + start <= sizeof data; len++) {
            uint32_t expected = crc_by_bits(data + start, len);
            assert_int_equal(crc32c(0, data + start, len), expected);
            /* Pieces shorter than a word never take the CPU's instruction, so both forms are compared. */
            uint32_t crc = 0;
            for (size_t at = 0; at < len; at += 7) crc = crc32c(crc, data + start + at, len - at < 7 ? len - at : 7);
            assert_int_equal(crc, expected);
        }
    }
}

static void test_crc_mask(void **state)
{
    (void)state;
    assert_int_equal(crc32c_mask(0), 0xa282ead8);
    assert_int_equal(crc32c_mask(0x8000), 0xa282ead9);
    assert_int_equal(crc32c_mask(1), 0xa282ead8 + 0x20000);
    for (uint32_t crc = 1; crc < 0xf0000000u; crc += 0x01234567u) { /* a reader removes the mask */
        uint32_t rotated = crc32c_mask(crc) - 0xa282ead8u;
        assert_int_equal(rotated >> 17 | rotated << 15, crc);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_format),
        cmocka_unit_test(test_stream_equals_one_shot),
        cmocka_unit_test(test_every_bit_counts),
        cmocka_unit_test(test_crc_published),
        cmocka_unit_test(test_crc_any_length_and_pieces),
        cmocka_unit_test(test_crc_mask),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
