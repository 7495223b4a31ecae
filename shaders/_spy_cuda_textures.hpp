// Textures of CUDA: what Slang's text calls CUtexObject, with facts that the texture object lacks.
// slang/corrections/cuda_textures.py puts this text behind Slang's prelude in kernels that use textures. backends/cuda/images.py
// writes the numbers.

// Bits 0 to 31: the texture object; code for compute capabilities 7.5 to 12.0 reads no other bits of it. Bits 32 and
// 33: how many channels less than four the texels have. Bits 34 to 63: the number of layers, or of cubes.
struct _spy_Texture
{
    unsigned long long number;
};
static __forceinline__ __device__ CUtexObject _spy_object(_spy_Texture t) { return t.number & 0xffffffffull; }
static __forceinline__ __device__ unsigned int _spy_channels(_spy_Texture t)
{
    return 4u - (unsigned int)(t.number >> 32 & 3u);
}
static __forceinline__ __device__ unsigned int _spy_layers(_spy_Texture t) { return (unsigned int)(t.number >> 34); }

// The layer that Vulkan takes ("Texel Coordinate Systems"): the nearest one. The hardware takes the last one for numbers
// beyond it, and for negative ones, which it reads as unsigned.
static __forceinline__ __device__ int _spy_layer(float at) { return max(__float2int_rn(at), 0); }

// Channels that a texture lacks are 0, alpha is 1; the hardware gives 0, or the border's color.
template<typename T>
static __forceinline__ __device__ T _spy_filled(T x, unsigned int)
{
    static_assert(sizeof(T) == 4, "texels are read as float, int or uint, or as vectors of 2 or 4 of them");
    return x;
}
#define _SPY_FILLED(scalar)                                                                     \
    static __forceinline__ __device__ scalar##2 _spy_filled(scalar##2 x, unsigned int channels) \
    {                                                                                           \
        if (channels < 2u)                                                                      \
            x.y = 0;                                                                            \
        return x;                                                                               \
    }                                                                                           \
    static __forceinline__ __device__ scalar##4 _spy_filled(scalar##4 x, unsigned int channels) \
    {                                                                                           \
        if (channels < 2u)                                                                      \
            x.y = 0;                                                                            \
        if (channels < 4u)                                                                      \
        {                                                                                       \
            x.z = 0;                                                                            \
            x.w = 1;                                                                            \
        }                                                                                       \
        return x;                                                                               \
    }
_SPY_FILLED(float)
_SPY_FILLED(int)
_SPY_FILLED(uint)
#undef _SPY_FILLED

#define _SPY_READ(name)                                                         \
    template<typename T, typename... A>                                         \
    static __forceinline__ __device__ T name(_spy_Texture t, A... at)           \
    {                                                                           \
        return _spy_filled(name<T>(_spy_object(t), at...), _spy_channels(t));   \
    }
_SPY_READ(tex1DLod)
_SPY_READ(tex2DLod)
_SPY_READ(tex3DLod)
_SPY_READ(texCubemapLod)
_SPY_READ(tex1DLayeredLod)
_SPY_READ(tex2DLayeredLod)
_SPY_READ(texCubemapLayeredLod)
_SPY_READ(tex2Dfetch_int)
_SPY_READ(tex3Dfetch_int)
_SPY_READ(tex1DArrayfetch_int)
_SPY_READ(tex2DArrayfetch_int)
#undef _SPY_READ
