"""Slang functions of 8-bit and 16-bit integers: one test runs them, another compiles them as CUDA."""

from __future__ import annotations

TYPES = {"int8_t": "i1", "uint8_t": "u1", "int16_t": "i2", "uint16_t": "u2"}
STRUCTS = """
struct Pair { NAME x; NAME y[2]; [mutating] void grow(NAME b) { x += b; y[1] *= x; x = -x; y[0]--; } }
"""
FUNCTIONS = """
bool less(NAME a, NAME b) { return a + b < b; }
int wide(NAME a, NAME b) { return int(a * b) + int(-a) + int(~b); }
float real(NAME a, NAME b) { return float(a - b) + float(a << 3); }
NAME half_of_sum(NAME a, NAME b) { return (a + b) / NAME(2); }
NAME members(NAME a, NAME b) { Pair p = { a, { b, b } }; p.grow(b); return (p.x + p.y[0] + p.y[1]) >> 1; }
NAME pointed(Ptr<NAME> p, NAME b) { return (*p * b) >> 2; }
NAME by_pointer(NAME a, NAME b) { NAME c = a; return pointed(&c, b); }
NAME loop(NAME a, NAME b)
{
    NAME sum = a;
    for (int i = 0; i < 5; ++i) { sum = sum * b + a; if (sum + a > b) sum >>= 1; }
    return sum;
}
vector<NAME, 3> rows(vector<NAME, 3> a, vector<NAME, 3> b) { return (-a * b + ~b) >> vector<NAME, 3>(NAME(1)); }
float other(NAME a, float x, float3 v) { return -x * 2.0f + v.y * -(x - float(a + a)); }
"""

# Operands of every form beside an 8-bit integer: casts, constructors, calls, elements, brackets.
OPERANDS = """
float3 constructed(float3 x, uint8_t k) { return -float3(x.x, 1, float(k)) * -float3(x.y); }
float3 converted(float x, int i, uint8_t k) { return -float3(x) - -float3(int3(i)) - -(float3)int3(k); }
float called(float2 x, uint8_t k) { return dot(-float2(x.y, x.x), -x) - float(-int(k)); }
uint8_t3 narrow(uint8_t3 x, uint8_t k) { return -uint8_t3(k, k, 1) - ~uint8_t3(x.zyx) * uint8_t3(k); }
int elements(int x, uint8_t k)
{
    int t[3] = { -x, ~x, -int(k) };
    return -t[x & 1] - ~t[2] + -(-x) - (int)(-(float)x);
}
int64_t widest(int64_t x, uint8_t k) { return -x - ~int64_t(k) + (x > 0 ? -x : ~x); }
float nested(float x, uint8_t k) { return -abs(x) - -max(x, -float(k)) + -(x > 0 ? -x : x); }
bool flags(bool x, uint8_t k) { return !x | (k > 3) & x ^ !(k == 1); }
int3 bits(int3 x, uint8_t k) { return ~x & -int3(k) | ~(x ^ int3(1, 2, 3)) << 2; }
"""
