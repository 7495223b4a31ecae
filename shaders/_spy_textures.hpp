// Textures and samplers of the CPU: what Slang's C++ calls Texture2D, RWTexture2D and so on, over plain memory.
// slang/cpp_textures.py puts this text behind Slang's prelude in kernels that use textures. backends/cpu/images.py
// writes the records. _spy_half.hpp comes before it. Reads outside of an image give zeros, writes outside of it do nothing.

typedef float _spy_Color __attribute__((vector_size(16)));
typedef uint32_t _spy_Whole __attribute__((vector_size(16)));

struct _spy_Level
{
    uint8_t* texels;
    int32_t width, height, depth, unused;
    int64_t row, slice;
};
struct _spy_Image
{
    // kind: 0 unorm, 1 unorm_srgb, 2 half, 3 float, 4 integers of 32 bits and less. layers: of a cube six for each, its faces.
    // curve: the linear light of each byte of unorm_srgb.
    // size: bytes of a texel. border: texels of transparent black, opaque black and opaque white.
    int32_t kind, channels, levels, layers;
    const float* curve;
    int64_t size;
    uint8_t border[3][16];
    _spy_Level level[15];
};
struct _spy_Sampler
{
    // mip: 0 the first level alone, 1 the nearest, 2 linear. wrap: 0 repeat, 1 mirror, 2 clamp, 3 border.
    // border: 0 transparent black, 1 opaque black, 2 opaque white.
    int32_t linear, mip, wrap[3], border;
    float bias, least, most;
};
// What a texture means that nothing has set.
static _spy_Image _spy_no_image;
static const _spy_Sampler _spy_no_sampler = {};

struct _spy_SamplerState
{
    const _spy_Sampler* record = &_spy_no_sampler;
};

#define _SPY_INLINE inline __attribute__((always_inline))

// A texel as it is blended: of unorm by 255 too large. FOUR says that it has four channels.
template<int KIND, bool FOUR> _SPY_INLINE _spy_Color _spy_texel(const _spy_Image* image, const uint8_t* at)
{
    _spy_Color c = {0, 0, 0, KIND == 0 ? 255.0f : 1.0f};
    const int n = FOUR ? 4 : image->channels;
    if (KIND == 3)
    {
        if (n == 4)
            __builtin_memcpy(&c, at, 16);
        else if (n == 2)
            __builtin_memcpy(&c, at, 8);
        else
            __builtin_memcpy(&c, at, 4);
    }
    else if (KIND == 2)
    {
        // A number: memory that is written in parts and read as a whole would be waited for.
        uint64_t bits = 0;
        uint32_t two = 0;
        uint16_t one = 0;
        if (n == 4)
            __builtin_memcpy(&bits, at, 8);
        else if (n == 2)
        {
            __builtin_memcpy(&two, at, 4);
            bits = 0x3c00ull << 48 | two;
        }
        else
        {
            __builtin_memcpy(&one, at, 2);
            bits = 0x3c00ull << 48 | one;
        }
#if defined(__clang__) && defined(__F16C__) && defined(__FLT16_MAX__)
        typedef _Float16 Halves __attribute__((vector_size(8)));
        c = __builtin_convertvector(slang_bit_cast<Halves>(bits), _spy_Color);
#elif !defined(__clang__) && defined(__F16C__)
        typedef short Eight __attribute__((vector_size(16)));
        typedef uint64_t Two __attribute__((vector_size(16)));
        c = (_spy_Color)__builtin_ia32_vcvtph2ps((Eight)Two{bits, 0});
#else
        for (int k = 0; k < 4; ++k)
            c[k] = _spy_f16tof32(uint32_t(bits >> 16 * k & 0xffff));
#endif
    }
    else if (KIND == 0 && FOUR)
    {
        typedef int32_t Whole __attribute__((vector_size(16)));
        int32_t bytes;
        __builtin_memcpy(&bytes, at, 4);
#if defined(__SSE4_1__) && !defined(__clang__)
        typedef char Many __attribute__((vector_size(16)));
        c = __builtin_convertvector((Whole)__builtin_ia32_pmovzxbd128((Many)Whole{bytes, 0, 0, 0}), _spy_Color);
#else
        c = __builtin_convertvector(Whole{bytes, bytes, bytes, bytes} >> Whole{0, 8, 16, 24} & 255, _spy_Color);
#endif
    }
    else if (KIND == 0)
        for (int k = 0; k < n; ++k)
            c[k] = float(at[k]);
    else
        c = _spy_Color{image->curve[at[0]], image->curve[at[1]], image->curve[at[2]], float(at[3]) / 255.0f};
    return c;
}
template<int KIND> _SPY_INLINE _spy_Color _spy_scaled(_spy_Color c) { return KIND == 0 ? c / 255.0f : c; }

_SPY_INLINE int32_t _spy_wrap(int32_t mode, int32_t i, int32_t n)
{
    if (uint32_t(i) < uint32_t(n))
        return i;
    if (mode == 2)
        return i < 0 ? 0 : n - 1;
    if (mode == 3)
        return -1;
    if (mode == 0)
    {
        i %= n;
        return i < 0 ? i + n : i;
    }
    int64_t t = int64_t(i) % (2 * int64_t(n));
    t = t < 0 ? t + 2 * int64_t(n) : t;
    return int32_t(t < n ? t : 2 * int64_t(n) - 1 - t);
}
_SPY_INLINE float _spy_floor(float x) { return __builtin_floorf(x); }
// The place of a coordinate among n texels. Far away ones of a repeated texture lose no digits; NaN is far left.
_SPY_INLINE float _spy_place(int32_t mode, float u, int32_t n)
{
    if (mode == 0)
        u -= _spy_floor(u);
    else if (mode == 1)
        u -= 2 * _spy_floor(0.5f * u);
    float x = u * float(n);
    return x > -1e9f ? (x < 1e9f ? x : 1e9f) : -1e9f;
}
struct _spy_Axis
{
    int32_t low, high;
    float part;
};
_SPY_INLINE _spy_Axis _spy_axis(const _spy_Sampler* s, int axis, float u, int32_t offset, int32_t n)
{
    int32_t mode = s->wrap[axis];
    float x = _spy_place(mode, u, n);
    if (!s->linear)
    {
        int32_t i = _spy_wrap(mode, int32_t(_spy_floor(x)) + offset, n);
        return {i, i, 0};
    }
    x -= 0.5f;
    float whole = _spy_floor(x);
    int32_t i = int32_t(whole) + offset;
    return {_spy_wrap(mode, i, n), _spy_wrap(mode, i + 1, n), x - whole};
}

// Four texels around a place; of a sampler that blends none, the first alone counts.
struct _spy_Quad
{
    const uint8_t *a, *b, *c, *d;
    float x, y;
};
template<int KIND, bool FOUR> _SPY_INLINE _spy_Color _spy_blend(const _spy_Image* image, const _spy_Quad& q, bool linear)
{
    _spy_Color a = _spy_texel<KIND, FOUR>(image, q.a);
    if (!linear)
        return _spy_scaled<KIND>(a);
    _spy_Color b = _spy_texel<KIND, FOUR>(image, q.b), c = _spy_texel<KIND, FOUR>(image, q.c);
    a += q.x * (b - a);
    c += q.x * (_spy_texel<KIND, FOUR>(image, q.d) - c);
    return _spy_scaled<KIND>(a + q.y * (c - a));
}
_SPY_INLINE _spy_Color _spy_blended(const _spy_Image* image, const _spy_Quad& q, bool linear)
{
    switch (image->channels == 4 ? image->kind : image->kind + 8)
    {
    case 0: return _spy_blend<0, true>(image, q, linear);
    case 1: return _spy_blend<1, true>(image, q, linear);
    case 2: return _spy_blend<2, true>(image, q, linear);
    case 3: return _spy_blend<3, true>(image, q, linear);
    case 8: return _spy_blend<0, false>(image, q, linear);
    case 10: return _spy_blend<2, false>(image, q, linear);
    default: return _spy_blend<3, false>(image, q, linear);
    }
}
_SPY_INLINE _spy_Color _spy_plane(
    const _spy_Image* image, const _spy_Level& l, const _spy_Sampler* s, _spy_Axis x, _spy_Axis y, int64_t z)
{
    const uint8_t *texels = l.texels + z * l.slice, *low = texels + y.low * l.row, *high = texels + y.high * l.row;
    int64_t size = image->size;
    _spy_Quad q = {low + x.low * size, low + x.high * size, high + x.low * size, high + x.high * size, x.part, y.part};
    if (__builtin_expect((x.low | x.high | y.low | y.high) < 0, 0))
    {
        const uint8_t* border = image->border[s->border];
        q.a = (x.low | y.low) < 0 ? border : q.a;
        q.b = (x.high | y.low) < 0 ? border : q.b;
        q.c = (x.low | y.high) < 0 ? border : q.c;
        q.d = (x.high | y.high) < 0 ? border : q.d;
    }
    return _spy_blended(image, q, s->linear);
}

// One level. Of a volume the third coordinate is blended too; else z is the layer.
template<bool VOLUME> _SPY_INLINE _spy_Color _spy_level(
    const _spy_Image* image, int32_t level, const _spy_Sampler* s, const float* u, const int32_t* o, int32_t layer)
{
    const _spy_Level& l = image->level[level];
    _spy_Axis x = _spy_axis(s, 0, u[0], o[0], l.width), y = _spy_axis(s, 1, u[1], o[1], l.height);
    if (!VOLUME)
        return _spy_plane(image, l, s, x, y, layer);
    _spy_Axis z = _spy_axis(s, 2, u[2], o[2], l.depth);
    _spy_Color two[2];
    for (int k = 0; k < 2; ++k)
    {
        int32_t at = k ? z.high : z.low;
        _spy_Axis none = {-1, -1, 0};
        two[k] = _spy_plane(image, l, s, at < 0 ? none : x, y, at < 0 ? 0 : at);
    }
    return two[0] + z.part * (two[1] - two[0]);
}

// The first of two levels that are blended, and the part of the second.
_SPY_INLINE int32_t _spy_lod(const _spy_Image* image, const _spy_Sampler* s, float lod, float* part)
{
    lod += s->bias;
    lod = lod > s->least ? (lod < s->most ? lod : s->most) : s->least;
    float last = float(image->levels - 1);
    float d = s->mip == 0 ? 0 : lod > 0 ? (lod < last ? lod : last) : 0;
    int32_t low = s->mip == 2 ? int32_t(d) : int32_t(__builtin_ceilf(d + 0.5f)) - 1;
    *part = s->mip == 2 ? d - float(low) : 0;
    return low;
}
template<bool VOLUME> _SPY_INLINE _spy_Color _spy_sampled(
    const _spy_Image* image, const _spy_Sampler* s, const float* u, float lod, const int32_t* o, int32_t layer)
{
    if (__builtin_expect(!image->levels, 0))
        return _spy_Color{0, 0, 0, 0};
    float part;
    int32_t level = _spy_lod(image, s, lod, &part);
    _spy_Color first = {0, 0, 0, 0};
    // A loop, so that the code of a level stands here once.
    for (;; ++level)
    {
        _spy_Color c = _spy_level<VOLUME>(image, level, s, u, o, layer);
        if (part == 0)
            return c;
        if (part < 0)
            return first - part * (c - first);
        first = c;
        part = -part;
    }
}

// One level of a plane of four channels in floats or bytes, blended, both axes repeated or clamped: what most samples
// are, at half the cost of the code above, because both axes are computed at once. False for all others, and for NaN.
_SPY_INLINE bool _spy_quick(const _spy_Image* image, const _spy_Sampler* s, float u, float v, float lod, _spy_Color* out)
{
    typedef int32_t Whole __attribute__((vector_size(16)));
    auto floors = [](_spy_Color c) -> _spy_Color
    {
#ifdef __SSE4_1__
        return (_spy_Color)__builtin_ia32_roundps(c, 9);
#else
        for (int k = 0; k < 4; ++k)
            c[k] = _spy_floor(c[k]);
        return c;
#endif
    };
    bool clamps = s->wrap[0] == 2;
    if (s->wrap[0] != s->wrap[1] || s->wrap[0] & ~2 || !s->linear || image->channels != 4)
        return false;
    float blend = 0;
    int32_t level = s->mip && image->levels != 1 ? _spy_lod(image, s, lod, &blend) : 0;
    if (blend != 0)
        return false;
    const _spy_Level& l = image->level[level];
    Whole n = {l.width, l.height, l.width, l.height};
    _spy_Color at = {u, v, u, v}, size = __builtin_convertvector(n, _spy_Color);
    if (!clamps)
        at -= floors(at);
    // One column and one row more on each side, so that nothing is too large for a whole number.
    at = at * size - 0.5f;
    at = at > -1.0f ? at : _spy_Color{-1, -1, -1, -1};
    at = at < size ? at : size;
    _spy_Color low = floors(at), part = at - low;
    Whole i = __builtin_convertvector(low, Whole) + Whole{0, 0, 1, 1};
    if (clamps)
    {
        i = i > 0 ? i : Whole{0, 0, 0, 0};
        i = i < n ? i : n - 1;
    }
    else
    {
        i += n & (i < 0);
        i -= n & (i >= n);
    }
    const uint8_t *first = l.texels + i[1] * l.row, *second = l.texels + i[3] * l.row;
    if (image->kind == 3)
    {
        int64_t left = int64_t(i[0]) * 16, right = int64_t(i[2]) * 16;
        _spy_Quad q = {first + left, first + right, second + left, second + right, part[0], part[1]};
        *out = _spy_blend<3, true>(image, q, true);
    }
    else if (image->kind == 0)
    {
        int64_t left = int64_t(i[0]) * 4, right = int64_t(i[2]) * 4;
        _spy_Quad q = {first + left, first + right, second + left, second + right, part[0], part[1]};
        *out = _spy_blend<0, true>(image, q, true);
    }
    else
        return false;
    return u == u && v == v;
}

// The face of a direction (+x, -x, +y, -y, +z, -z), and the place on it from 0 to 1.
inline int32_t _spy_face(const float* d, float* u)
{
    float x = d[0], y = d[1], z = d[2], ax = __builtin_fabsf(x), ay = __builtin_fabsf(y), az = __builtin_fabsf(z);
    float across, down, most;
    int32_t face;
    if (az >= ax && az >= ay)
        face = z < 0 ? 5 : 4, across = z < 0 ? -x : x, down = -y, most = az;
    else if (ay >= ax)
        face = y < 0 ? 3 : 2, across = x, down = y < 0 ? -z : z, most = ay;
    else
        face = x < 0 ? 1 : 0, across = x < 0 ? z : -z, down = -y, most = ax;
    u[0] = 0.5f * (across / most + 1);
    u[1] = 0.5f * (down / most + 1);
    return face;
}
// The direction of a place on a face, which may lie beyond its edges.
inline void _spy_direction(int32_t face, float u, float v, float* d)
{
    float a = 2 * u - 1, b = 2 * v - 1, one = face & 1 ? -1 : 1;
    if (face < 2)
        d[0] = one, d[1] = -b, d[2] = -one * a;
    else if (face < 4)
        d[0] = a, d[1] = one, d[2] = one * b;
    else
        d[0] = one * a, d[1] = -b, d[2] = one;
}
// One level of a cube. Beyond an edge lies the next face; beyond a corner the mean of the three texels around it.
inline _spy_Color _spy_cube(
    const _spy_Image* image, int32_t level, const _spy_Sampler* s, int32_t face, const float* u, int32_t first)
{
    const _spy_Level& l = image->level[level];
    int32_t n = l.width;
    auto on = [&](int32_t f, int32_t i, int32_t j)
    {
        const uint8_t* at = l.texels + (first + f) * l.slice + j * l.row + i * image->size;
        return _spy_blended(image, _spy_Quad{at, at, at, at, 0, 0}, false);
    };
    auto in = [&](int32_t i) { return i < 0 ? 0 : i < n ? i : n - 1; };
    float x = u[0] * float(n), y = u[1] * float(n);
    x = x > 0 ? (x < float(n) ? x : float(n)) : 0;
    y = y > 0 ? (y < float(n) ? y : float(n)) : 0;
    if (!s->linear)
        return on(face, in(int32_t(x)), in(int32_t(y)));
    auto beyond = [&](int32_t i, int32_t j) -> _spy_Color
    {
        float d[3], place[2];
        _spy_direction(face, (float(i) + 0.5f) / float(n), (float(j) + 0.5f) / float(n), d);
        int32_t other = _spy_face(d, place);
        return on(other, in(int32_t(place[0] * float(n))), in(int32_t(place[1] * float(n))));
    };
    x -= 0.5f;
    y -= 0.5f;
    int32_t i = int32_t(_spy_floor(x)), j = int32_t(_spy_floor(y));
    float px = x - float(i), py = y - float(j);
    _spy_Color four[4];
    for (int k = 0; k < 4; ++k)
    {
        int32_t a = i + (k & 1), b = j + (k >> 1);
        bool left = uint32_t(a) < uint32_t(n), low = uint32_t(b) < uint32_t(n);
        if (left && low)
            four[k] = on(face, a, b);
        else if (left || low)
            four[k] = beyond(a, b);
        else
            four[k] = (on(face, in(a), in(b)) + beyond(a, in(b)) + beyond(in(a), b)) / 3.0f;
    }
    _spy_Color a = four[0] + px * (four[1] - four[0]), c = four[2] + px * (four[3] - four[2]);
    return a + py * (c - a);
}
inline _spy_Color _spy_cubeSampled(
    const _spy_Image* image, const _spy_Sampler* s, const float* direction, float lod, int32_t number)
{
    if (!image->levels)
        return _spy_Color{0, 0, 0, 0};
    float u[2], part;
    int32_t face = _spy_face(direction, u), low = _spy_lod(image, s, lod, &part);
    _spy_Color a = _spy_cube(image, low, s, face, u, 6 * number);
    return part == 0 ? a : a + part * (_spy_cube(image, low + 1, s, face, u, 6 * number) - a);
}

// The texel at a place, for whole numbers, of which samplers blend none. Null if nothing has set the image.
template<bool VOLUME> inline const uint8_t* _spy_nearest(
    const _spy_Image* image, const _spy_Sampler* s, const float* u, float lod, const int32_t* o, int32_t layer)
{
    if (!image->levels)
        return nullptr;
    _spy_Sampler one = *s;
    one.linear = 0;
    one.mip = s->mip != 0;
    float part;
    const _spy_Level& l = image->level[_spy_lod(image, &one, lod, &part)];
    int64_t x = _spy_axis(&one, 0, u[0], o[0], l.width).low, y = _spy_axis(&one, 1, u[1], o[1], l.height).low;
    int64_t z = VOLUME ? _spy_axis(&one, 2, u[2], o[2], l.depth).low : layer;
    return (x | y | z) < 0 ? image->border[s->border] : l.texels + z * l.slice + y * l.row + x * image->size;
}
inline const uint8_t* _spy_cubeNearest(
    const _spy_Image* image, const _spy_Sampler* s, const float* direction, float lod, int32_t number)
{
    float u[2];
    const int32_t none[3] = {};
    _spy_Sampler inside = *s;
    inside.wrap[0] = inside.wrap[1] = 2;
    int32_t face = _spy_face(direction, u);
    return _spy_nearest<false>(image, &inside, u, lod, none, 6 * number + face);
}

// Whole numbers are read as they are; floats as above.
template<typename S> struct _spy_Channels
{
    static const bool BLENDS = true;
    typedef _spy_Color Texel;
    static Texel load(const _spy_Image* image, const uint8_t* at)
    {
        return _spy_blended(image, _spy_Quad{at, at, at, at, 0, 0}, false);
    }
    static void store(const _spy_Image* image, uint8_t* at, const Texel& c)
    {
        if (image->kind == 3)
            part(at, &c, image->channels, 4);
        else if (image->kind == 2)
        {
            uint16_t bits[4];
            for (int k = 0; k < 4; ++k)
                bits[k] = uint16_t(_spy_f32tof16(c[k]));
            part(at, bits, image->channels, 2);
        }
        else if (image->kind == 0)
        {
            uint32_t bytes = 0;
            for (int k = 0; k < 4; ++k)
            {
                float x = c[k];
                bytes |= uint32_t(int32_t(__builtin_rintf((x > 0 ? (x < 1 ? x : 1) : 0) * 255.0f))) << 8 * k;
            }
            part(at, &bytes, image->channels, 1);
        }
    }
    // Copies of known sizes, which are no calls.
    static _SPY_INLINE void part(uint8_t* at, const void* from, int channels, int size)
    {
        if (channels == 4)
            __builtin_memcpy(at, from, 4 * size);
        else if (channels == 2)
            __builtin_memcpy(at, from, 2 * size);
        else
            __builtin_memcpy(at, from, size);
    }
};
// Of 32, 16 and 8 bits.
template<typename S, typename Short, typename Byte> struct _spy_WholeChannels
{
    static const bool BLENDS = false;
    typedef _spy_Whole Texel;
    static Texel load(const _spy_Image* image, const uint8_t* at)
    {
        const int64_t bytes = image->size / image->channels;
        return bytes == 4 ? widened<S>(image, at) : bytes == 2 ? widened<Short>(image, at) : widened<Byte>(image, at);
    }
    static void store(const _spy_Image* image, uint8_t* at, const Texel& c)
    {
        const int64_t bytes = image->size / image->channels;
        if (bytes == 4)
            narrowed<S>(image, at, c);
        else if (bytes == 2)
            narrowed<Short>(image, at, c);
        else
            narrowed<Byte>(image, at, c);
    }
    template<typename N> static Texel widened(const _spy_Image* image, const uint8_t* at)
    {
        N stored[4] = {0, 0, 0, 1};
        __builtin_memcpy(stored, at, sizeof(N) * image->channels);
        Texel c;
        for (int k = 0; k < 4; ++k)
            c[k] = uint32_t(stored[k]);
        return c;
    }
    template<typename N> static void narrowed(const _spy_Image* image, uint8_t* at, const Texel& c)
    {
        const N stored[4] = {N(c[0]), N(c[1]), N(c[2]), N(c[3])};
        __builtin_memcpy(at, stored, sizeof(N) * image->channels);
    }
};
template<> struct _spy_Channels<uint32_t> : _spy_WholeChannels<uint32_t, uint16_t, uint8_t> {};
template<> struct _spy_Channels<int32_t> : _spy_WholeChannels<int32_t, int16_t, int8_t> {};

// The type of a texel in a kernel, T, as S and a number of channels.
template<typename T> struct _spy_Texel
{
    typedef T S;
    template<typename C> static T from(const C& c) { return T(c[0]); }
    template<typename C> static void to(C& c, const T& x) { c[0] = decltype(c[0] + c[0])(x); }
};
template<typename E, int N> struct _spy_Texel<Vector<E, N>>
{
    typedef E S;
    template<typename C> static Vector<E, N> from(const C& c)
    {
        Vector<E, N> x;
        for (int k = 0; k < N; ++k)
            *_slang_vector_get_element_ptr(&x, k) = E(c[k]);
        return x;
    }
    template<typename C> static void to(C& c, const Vector<E, N>& x)
    {
        for (int k = 0; k < N; ++k)
            c[k] = decltype(c[0] + c[0])(_slang_vector_get_element(x, k));
    }
};

// The numbers of a scalar or vector argument.
template<typename A, typename X> inline void _spy_put(A* out, X x) { *out = A(x); }
template<typename A, typename X, int N> inline void _spy_put(A* out, Vector<X, N> x)
{
    for (int k = 0; k < N; ++k)
        out[k] = A(_slang_vector_get_element(x, k));
}

// AXES: coordinates beside the layer. SHAPE: 1 line, 2 plane, 3 volume, 6 cube.
template<typename T, int SHAPE, bool ARRAY> struct _spy_Texture
{
    static const int AXES = SHAPE == 6 ? 3 : SHAPE;
    typedef _spy_Texel<T> Convert;
    typedef _spy_Channels<typename Convert::S> Channels;

    const _spy_Image* image = &_spy_no_image;

    template<typename U> T SampleLevel(_spy_SamplerState s, U at, float lod) const
    {
        if (SHAPE == 2 && !ARRAY && Channels::BLENDS)
        {
            float u[5] = {};
            _spy_Color c;
            _spy_put(u, at);
            if (_spy_quick(image, s.record, u[0], u[1], lod, &c))
                return Convert::from(c);
        }
        int32_t none[3] = {};
        return sampled(s, at, lod, none);
    }
    template<typename U, typename O> T SampleLevel(_spy_SamplerState s, U at, float lod, O offset) const
    {
        int32_t o[3] = {};
        _spy_put(o, offset);
        return sampled(s, at, lod, o);
    }
    template<typename U> T Load(U at) const
    {
        int32_t p[5] = {};
        _spy_put(p, at);
        return loaded(p, p[SHAPE + ARRAY]);
    }
    template<typename U, typename O> T Load(U at, O offset) const
    {
        int32_t p[5] = {}, o[3] = {};
        _spy_put(p, at);
        _spy_put(o, offset);
        int32_t level = p[SHAPE + ARRAY];
        for (int k = 0; k < SHAPE; ++k)
            p[k] = int32_t(uint32_t(p[k]) + uint32_t(o[k]));
        return loaded(p, level);
    }
    template<typename U> T operator[](U at) const
    {
        uint32_t p[5] = {};
        _spy_put(p, at);
        int32_t q[5] = {int32_t(p[0]), int32_t(p[1]), int32_t(p[2]), int32_t(p[3]), 0};
        return loaded(q, 0);
    }
    template<typename... D> void GetDimensions(D*... out) const { sizes(0, out...); }
    template<typename... D> void GetDimensions(uint32_t level, D*... out) const
    {
        const int named = sizes(level, out...);
        int k = 0;
        ((k++ == named ? void(*out = D(image->levels)) : void()), ...);
    }

    // Slang's function of no arguments but these: returns the number of sizes.
    template<typename... D> int sizes(uint32_t level, D*... out) const
    {
        bool known = int64_t(level) < image->levels;
        const _spy_Level& l = image->level[known ? level : 0];
        int32_t found[4], n = 0;
        found[n++] = l.width;
        if (SHAPE != 1)
            found[n++] = l.height;
        if (SHAPE == 3)
            found[n++] = l.depth;
        if (ARRAY)
            found[n++] = SHAPE == 6 ? image->layers / 6 : image->layers;
        int k = 0;
        ((k < n ? void(*out = D(known ? found[k] : 0)) : void(), ++k), ...);
        return n;
    }
    uint8_t* address(const int32_t* p, int32_t level) const
    {
        int32_t x = p[0], y = SHAPE == 1 ? 0 : p[1], z = SHAPE == 3 || ARRAY ? p[SHAPE] : 0;
        if (SHAPE == 3)
            z = p[2];
        if (uint32_t(level) >= uint32_t(image->levels))
            return nullptr;
        const _spy_Level& l = image->level[level];
        int32_t most = SHAPE == 3 ? l.depth : image->layers;
        if (uint32_t(x) >= uint32_t(l.width) || uint32_t(y) >= uint32_t(l.height) || uint32_t(z) >= uint32_t(most))
            return nullptr;
        return l.texels + z * l.slice + y * l.row + x * image->size;
    }
    T loaded(const int32_t* p, int32_t level) const
    {
        const uint8_t* at = address(p, level);
        return Convert::from(at ? Channels::load(image, at) : typename Channels::Texel{});
    }
    template<typename U> __attribute__((noinline)) T sampled(_spy_SamplerState s, U at, float lod, const int32_t* o) const
    {
        float u[5] = {};
        _spy_put(u, at);
        int32_t layer = 0;
        if (ARRAY)
        {
            float given = __builtin_rintf(u[AXES]), most = float(SHAPE == 6 ? image->layers / 6 : image->layers) - 1;
            layer = int32_t(given > 0 ? (given < most ? given : most) : 0);
        }
        if (SHAPE == 1)
            u[1] = 0.5f;
        if constexpr (!Channels::BLENDS)
        {
            const uint8_t* texel = SHAPE == 6 ? _spy_cubeNearest(image, s.record, u, lod, layer)
                                              : _spy_nearest<SHAPE == 3>(image, s.record, u, lod, o, layer);
            return Convert::from(texel ? Channels::load(image, texel) : typename Channels::Texel{});
        }
        else if (SHAPE == 6)
            return Convert::from(_spy_cubeSampled(image, s.record, u, lod, layer));
        else
            return Convert::from(_spy_sampled<SHAPE == 3>(image, s.record, u, lod, o, layer));
    }
};

// A texel that a kernel assigns to.
template<typename T, int SHAPE, bool ARRAY> struct _spy_Place
{
    typedef _spy_Texture<T, SHAPE, ARRAY> Texture;
    uint8_t* at;
    const _spy_Image* image;
    operator T() const { return Texture::Convert::from(at ? load() : typename Texture::Channels::Texel{}); }
    const _spy_Place& operator=(const T& x) const
    {
        typename Texture::Channels::Texel c = {0, 0, 0, 1};
        if (at)
        {
            Texture::Convert::to(c, x);
            Texture::Channels::store(image, at, c);
        }
        return *this;
    }
    typename Texture::Channels::Texel load() const { return Texture::Channels::load(image, at); }
};
template<typename T, int SHAPE, bool ARRAY> struct _spy_RWTexture
{
    _spy_Texture<T, SHAPE, ARRAY> texture;

    template<typename U> _spy_Place<T, SHAPE, ARRAY> operator[](U at) const
    {
        uint32_t p[5] = {};
        _spy_put(p, at);
        int32_t q[4] = {int32_t(p[0]), int32_t(p[1]), int32_t(p[2]), int32_t(p[3])};
        return {texture.address(q, 0), texture.image};
    }
    template<typename U> T Load(U at) const
    {
        int32_t p[5] = {};
        _spy_put(p, at);
        return texture.loaded(p, 0);
    }
    template<typename U> void Store(U at, const T& x) const { (*this)[at] = x; }
    template<typename... D> void GetDimensions(D*... out) const { texture.sizes(0, out...); }
};
template<typename T> using _spy_Texture1D = _spy_Texture<T, 1, false>;
template<typename T> using _spy_Texture2D = _spy_Texture<T, 2, false>;
template<typename T> using _spy_Texture3D = _spy_Texture<T, 3, false>;
template<typename T> using _spy_TextureCube = _spy_Texture<T, 6, false>;
template<typename T> using _spy_TextureCubeArray = _spy_Texture<T, 6, true>;
template<typename T> using _spy_Texture1DArray = _spy_Texture<T, 1, true>;
template<typename T> using _spy_Texture2DArray = _spy_Texture<T, 2, true>;
template<typename T> using _spy_RWTexture1D = _spy_RWTexture<T, 1, false>;
template<typename T> using _spy_RWTexture2D = _spy_RWTexture<T, 2, false>;
template<typename T> using _spy_RWTexture3D = _spy_RWTexture<T, 3, false>;
template<typename T> using _spy_RWTexture1DArray = _spy_RWTexture<T, 1, true>;
template<typename T> using _spy_RWTexture2DArray = _spy_RWTexture<T, 2, true>;
// From here on these names mean the types above, instead of those of Slang's prelude.
#define SamplerState _spy_SamplerState
#define Texture1D _spy_Texture1D
#define Texture2D _spy_Texture2D
#define Texture3D _spy_Texture3D
#define TextureCube _spy_TextureCube
#define TextureCubeArray _spy_TextureCubeArray
#define Texture1DArray _spy_Texture1DArray
#define Texture2DArray _spy_Texture2DArray
#define RWTexture1D _spy_RWTexture1D
#define RWTexture2D _spy_RWTexture2D
#define RWTexture3D _spy_RWTexture3D
#define RWTexture1DArray _spy_RWTexture1DArray
#define RWTexture2DArray _spy_RWTexture2DArray
// _spy_end_of_prelude
