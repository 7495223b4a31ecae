// Several elements at a time, with a mask of those that take part: the types of slang/cpp_masks.py. In each value the
// elements ("lanes") lie side by side in one of the compiler's own vectors; lanes outside of the mask hold anything.
#if defined(__AVX512F__)
#define SPY_LANES 16
#elif defined(__AVX__)
#define SPY_LANES 8
#else
#define SPY_LANES 4
#endif
#define SPY_INLINE inline __attribute__((always_inline))

template<typename T> struct _spy_Scalar { typedef T Type; };
template<typename T> struct _spy_Lane;
typedef int _spy_Ints __attribute__((vector_size(4 * SPY_LANES)));
typedef unsigned _spy_Words __attribute__((vector_size(4 * SPY_LANES)));
typedef float _spy_Floats __attribute__((vector_size(4 * SPY_LANES)));
template<> struct _spy_Lane<int> { typedef _spy_Ints Vector; };
template<> struct _spy_Lane<unsigned> { typedef _spy_Words Vector; };
template<> struct _spy_Lane<float> { typedef _spy_Floats Vector; };

template<typename T> struct _spy_L;
template<> struct _spy_L<bool>
{
    _spy_Ints v;
    _spy_L() = default;
    SPY_INLINE _spy_L(bool x) : v(x ? ~_spy_Ints{} : _spy_Ints{}) {}
    SPY_INLINE _spy_L(_spy_Ints x) : v(x) {}
    friend SPY_INLINE _spy_L operator&(_spy_L a, _spy_L b) { return a.v & b.v; }
    friend SPY_INLINE _spy_L operator|(_spy_L a, _spy_L b) { return a.v | b.v; }
    friend SPY_INLINE _spy_L operator&&(_spy_L a, _spy_L b) { return a.v & b.v; }
    friend SPY_INLINE _spy_L operator||(_spy_L a, _spy_L b) { return a.v | b.v; }
    friend SPY_INLINE _spy_L operator==(_spy_L a, _spy_L b) { return ~(a.v ^ b.v); }
    friend SPY_INLINE _spy_L operator!=(_spy_L a, _spy_L b) { return a.v ^ b.v; }
    friend SPY_INLINE _spy_L operator!(_spy_L a) { return ~a.v; }
    friend SPY_INLINE _spy_L operator~(_spy_L a) { return ~a.v; }
};
typedef _spy_L<bool> _spy_Mask;
struct _spy_A;
template<typename T> struct _spy_L
{
    typedef typename _spy_Lane<T>::Vector V;
    V v;
    _spy_L() = default;
    SPY_INLINE _spy_L(V x) : v(x) {}
    SPY_INLINE _spy_L(float x) : v(V{} + T(x)) {}
    SPY_INLINE _spy_L(int x) : v(V{} + T(x)) {}
    SPY_INLINE _spy_L(unsigned x) : v(V{} + T(x)) {}
    template<typename U> explicit SPY_INLINE _spy_L(_spy_L<U> x) : v(__builtin_convertvector(x.v, V)) {}
    explicit SPY_INLINE _spy_L(_spy_L<bool> x) : v(__builtin_convertvector(-x.v, V)) {}
    // Of 32-bit integers alone.
    explicit SPY_INLINE _spy_L(_spy_A x);
#define SPY_BINARY(OP) friend SPY_INLINE _spy_L operator OP(_spy_L a, _spy_L b) { return V(a.v OP b.v); }
#define SPY_COMPARE(OP) friend SPY_INLINE _spy_Mask operator OP(_spy_L a, _spy_L b) { return _spy_Ints(a.v OP b.v); }
    SPY_BINARY(+) SPY_BINARY(-) SPY_BINARY(*)
    SPY_BINARY(&) SPY_BINARY(|) SPY_BINARY(^) SPY_BINARY(<<) SPY_BINARY(>>)
    SPY_COMPARE(<) SPY_COMPARE(>) SPY_COMPARE(<=) SPY_COMPARE(>=) SPY_COMPARE(==) SPY_COMPARE(!=)
    friend SPY_INLINE _spy_L operator-(_spy_L a) { return V(-a.v); }
    friend SPY_INLINE _spy_L operator~(_spy_L a) { return V(~a.v); }
};
// Numbers that are not -0.0, which 0 + x loses: a constructor adds nothing then.
template<> SPY_INLINE _spy_L<float>::_spy_L(float x) : v(x - _spy_Floats{}) {}
SPY_INLINE _spy_L<float> operator/(_spy_L<float> a, _spy_L<float> b) { return a.v / b.v; }

#ifndef __has_builtin
#define __has_builtin(NAME) 0
#endif
SPY_INLINE bool _spy_any(_spy_Mask m)
{
#if SPY_LANES == 16 && __has_builtin(__builtin_ia32_ptestmd512)
    return __builtin_ia32_ptestmd512(m.v, m.v, 0xffff) != 0;
#elif SPY_LANES == 8 && __has_builtin(__builtin_ia32_movmskps256)
    return __builtin_ia32_movmskps256((_spy_Floats)m.v) != 0;
#elif __has_builtin(__builtin_reduce_or)
    return __builtin_reduce_or(m.v) != 0;
#else
    typedef long long Wide __attribute__((vector_size(16)));
    Wide parts[SPY_LANES / 4], all;
    __builtin_memcpy(parts, &m.v, sizeof m.v);
    all = parts[0];
    for (int k = 1; k < SPY_LANES / 4; ++k)
        all |= parts[k];
    return (all[0] | all[1]) != 0;
#endif
}

template<typename T> SPY_INLINE void _spy_blend(_spy_Mask m, _spy_L<T>& to, const _spy_L<T>& from)
{
    to.v = m.v ? from.v : to.v;
}
template<> SPY_INLINE void _spy_blend(_spy_Mask m, _spy_Mask& to, const _spy_Mask& from)
{
    to.v = (m.v & from.v) | (~m.v & to.v);
}
template<typename T, int N> SPY_INLINE void _spy_blend(_spy_Mask m, Vector<T, N>& to, const Vector<T, N>& from)
{
    for (int k = 0; k < N; ++k)
        _spy_blend(m, to[k], from[k]);
}

// Numbers ``step`` apart for the lanes, of which the first ``count`` have elements; and scalars of an array at such.
struct _spy_A
{
    long long first, step;
    int count;
    // The lanes that have an element.
    SPY_INLINE _spy_Mask mask() const
    {
        _spy_Ints lane = {};
        for (int k = 0; k < SPY_LANES; ++k)
            lane[k] = k;
        return _spy_Mask(_spy_Ints(lane < _spy_Ints{} + count));
    }
};
SPY_INLINE _spy_A operator*(long long n, _spy_A i) { return {n * i.first, n * i.step, i.count}; }
SPY_INLINE _spy_A operator*(_spy_A i, long long n) { return n * i; }
SPY_INLINE _spy_A operator+(long long n, _spy_A i) { return {n + i.first, i.step, i.count}; }
SPY_INLINE _spy_A operator+(_spy_A i, long long n) { return n + i; }
SPY_INLINE _spy_A operator+(_spy_A a, _spy_A b)
{
    return {a.first + b.first, a.step + b.step, a.count < b.count ? a.count : b.count};
}
SPY_INLINE _spy_Ints _spy_numbers(_spy_A x)
{
    _spy_Ints lane = {};
    for (int k = 0; k < SPY_LANES; ++k)
        lane[k] = k;
    return lane * int(x.step) + int(x.first);
}
template<> SPY_INLINE _spy_L<int>::_spy_L(_spy_A x) : v(_spy_numbers(x)) {}
template<> SPY_INLINE _spy_L<unsigned>::_spy_L(_spy_A x) : v((_spy_Words)_spy_numbers(x)) {}

// An index in several dimensions.
template<int N> struct _spy_I
{
    _spy_A at[N];
    SPY_INLINE _spy_I(const FixedArray<int64_t, N>& from)
    {
        for (int k = 0; k < N; ++k)
            at[k] = {from[k], 0, SPY_LANES};
    }
    SPY_INLINE _spy_A& operator[](int k) { return at[k]; }
};
template<typename T> struct _spy_R
{
    T* at;
    long long step;
    int count;
    SPY_INLINE operator _spy_L<T>() const
    {
        typename _spy_L<T>::V x = {};
        if (step == 1 && count == SPY_LANES)
            __builtin_memcpy(&x, at, sizeof x);
        else if (step == 0)
            return *at;
        else if (count == SPY_LANES)
            for (int k = 0; k < SPY_LANES; ++k)
                x[k] = at[k * step];
        else
            for (int k = 0; k < count; ++k)
                x[k] = at[k * step];
        return x;
    }
};
template<typename T> struct _spy_P
{
    T* at;
    long long step;
    int count;
    SPY_INLINE _spy_P(T* p, long long s = 0, int n = SPY_LANES) : at(p), step(s), count(n) {}
    SPY_INLINE _spy_R<T> operator*() const { return {at, step, count}; }
    friend SPY_INLINE _spy_P operator+(_spy_P p, int n) { return {p.at + n, p.step, p.count}; }
};
template<typename T> SPY_INLINE _spy_P<T> operator+(T* p, _spy_A i) { return {p + i.first, i.step, i.count}; }

template<typename T> SPY_INLINE void _spy_set(_spy_Mask m, T& to, const typename _spy_Scalar<T>::Type& from)
{
    _spy_blend(m, to, from);
}
// All lanes with an element are in the mask where elements are written: there a function has no branch.
template<typename T> SPY_INLINE void _spy_set(_spy_Mask, _spy_R<T> to, const typename _spy_Scalar<_spy_L<T>>::Type& from)
{
    if (to.step == 1 && to.count == SPY_LANES)
        __builtin_memcpy(to.at, &from.v, sizeof from.v);
    else if (to.step == 0)
        *to.at = from.v[0]; // the only element, since no two of them write to one place
    else if (to.count == SPY_LANES)
        for (int k = 0; k < SPY_LANES; ++k)
            to.at[k * to.step] = from.v[k];
    else
        for (int k = 0; k < to.count; ++k)
            to.at[k * to.step] = from.v[k];
}

#define SPY_EACH(NAME)                                                              \
    SPY_INLINE _spy_L<float> F32_##NAME(_spy_L<float> x)                            \
    {                                                                               \
        float in[SPY_LANES], out[SPY_LANES];                                        \
        __builtin_memcpy(in, &x.v, sizeof in);                                      \
        _Pragma("omp simd") for (int k = 0; k < SPY_LANES; ++k) out[k] = ::F32_##NAME(in[k]); \
        __builtin_memcpy(&x.v, out, sizeof out);                                    \
        return x;                                                                   \
    }
SPY_EACH(ceil) SPY_EACH(floor) SPY_EACH(sin) SPY_EACH(cos) SPY_EACH(tan) SPY_EACH(asin) SPY_EACH(acos) SPY_EACH(atan)
SPY_EACH(sinh) SPY_EACH(cosh) SPY_EACH(tanh) SPY_EACH(asinh) SPY_EACH(acosh) SPY_EACH(atanh) SPY_EACH(log2)
SPY_EACH(log) SPY_EACH(log10) SPY_EACH(exp2) SPY_EACH(exp) SPY_EACH(abs) SPY_EACH(trunc) SPY_EACH(sqrt)
SPY_EACH(rsqrt) SPY_EACH(frac)
#define SPY_PAIR(NAME)                                                              \
    SPY_INLINE _spy_L<float> F32_##NAME(_spy_L<float> x, _spy_L<float> y)           \
    {                                                                               \
        float a[SPY_LANES], b[SPY_LANES];                                           \
        __builtin_memcpy(a, &x.v, sizeof a);                                        \
        __builtin_memcpy(b, &y.v, sizeof b);                                        \
        _Pragma("omp simd") for (int k = 0; k < SPY_LANES; ++k) a[k] = ::F32_##NAME(a[k], b[k]); \
        __builtin_memcpy(&x.v, a, sizeof a);                                        \
        return x;                                                                   \
    }
SPY_PAIR(pow) SPY_PAIR(fmod) SPY_PAIR(atan2)
SPY_INLINE _spy_L<float> F32_min(_spy_L<float> a, _spy_L<float> b)
{
    const _spy_Floats least = a.v < b.v ? a.v : b.v;
    return b.v != b.v ? a.v : least;
}
SPY_INLINE _spy_L<float> F32_max(_spy_L<float> a, _spy_L<float> b)
{
    const _spy_Floats most = a.v > b.v ? a.v : b.v;
    return b.v != b.v ? a.v : most;
}
SPY_INLINE _spy_Mask F32_isnan(_spy_L<float> x) { return _spy_Ints(x.v != x.v); }
#define SPY_ORDER(TYPE, PRE)                                                        \
    SPY_INLINE _spy_L<TYPE> PRE##_min(_spy_L<TYPE> a, _spy_L<TYPE> b) { return a.v < b.v ? a.v : b.v; } \
    SPY_INLINE _spy_L<TYPE> PRE##_max(_spy_L<TYPE> a, _spy_L<TYPE> b) { return a.v > b.v ? a.v : b.v; }
SPY_ORDER(int, I32) SPY_ORDER(unsigned, U32)
SPY_INLINE _spy_L<int> I32_abs(_spy_L<int> x) { return x.v < 0 ? -x.v : x.v; }
SPY_INLINE _spy_L<unsigned> F32_asuint(_spy_L<float> x) { return (_spy_Words)x.v; }
SPY_INLINE _spy_L<int> F32_asint(_spy_L<float> x) { return (_spy_Ints)x.v; }
SPY_INLINE _spy_L<float> U32_asfloat(_spy_L<unsigned> x) { return (_spy_Floats)x.v; }
SPY_INLINE _spy_L<float> I32_asfloat(_spy_L<int> x) { return (_spy_Floats)x.v; }

#define SPY_VECTOR(OP)                                                              \
    template<typename T, int N> SPY_INLINE Vector<_spy_L<T>, N> operator OP(Vector<_spy_L<T>, N> a, Vector<_spy_L<T>, N> b) \
    {                                                                               \
        for (int k = 0; k < N; ++k)                                                 \
            a[k] = a[k] OP b[k];                                                    \
        return a;                                                                   \
    }
SPY_VECTOR(+) SPY_VECTOR(-) SPY_VECTOR(*) SPY_VECTOR(/) SPY_VECTOR(&) SPY_VECTOR(|) SPY_VECTOR(^)
template<typename T, int N> SPY_INLINE Vector<_spy_L<T>, N> operator-(Vector<_spy_L<T>, N> a)
{
    for (int k = 0; k < N; ++k)
        a[k] = -a[k];
    return a;
}
