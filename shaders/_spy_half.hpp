// Conversions between half and float. slang/corrections/half.py and slang/cpp_textures.py put this text behind Slang's
// prelude.
//
// clang makes one instruction for 8 or 16 conversions to and from _Float16. g++ 12 has no such type in C++, and its loops
// over instructions for one number take 1.6 times as long as the bit operations below, of which it makes 16 at once.
// These select without jumps. Where |x| is below the least normal number, 2^-14, an addition rounds to its bits.
#ifndef _spy_has_half
#define _spy_has_half
#if defined(__clang__) && defined(__F16C__) && defined(__FLT16_MAX__)
inline float _spy_f16tof32(uint32_t bits) { return float(slang_bit_cast<_Float16>(uint16_t(bits))); }
inline uint32_t _spy_f32tof16(float x) { return slang_bit_cast<uint16_t>(_Float16(x)); }
#else
inline float _spy_f16tof32(uint32_t bits)
{
    uint32_t size = bits << 13 & 0x0fffe000, exponent = size & 0x0f800000;
    uint32_t normal = size + (exponent == 0x0f800000 ? 0x70000000 : 0x38000000);
    uint32_t small = _bitCastFloatToUInt(_bitCastUIntToFloat(size + 0x38800000) - 0x1p-14f);
    return _bitCastUIntToFloat((exponent == 0 ? small : normal) | (bits & 0x8000) << 16);
}
inline uint32_t _spy_f32tof16(float x)
{
    uint32_t bits = _bitCastFloatToUInt(x), size = bits & 0x7fffffff;
    uint32_t small = _bitCastFloatToUInt(_bitCastUIntToFloat(size) + 0.5f) - 0x3f000000;
    uint32_t normal = (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13;
    uint32_t found = size < 0x38800000 ? small : normal;
    found = size >= 0x477ff000 ? 0x7c00 : found;
    found = size > 0x7f800000 ? 0x7e00 : found;
    return found | (bits >> 16 & 0x8000);
}
#endif
#endif
