"""The text of a function for corners that have a place, coordinates of a texture and a number, for tests."""

CORNER = """
struct Corner : IDifferentiable { float4 position; float2 uv; int id; }
[Differentiable] Corner project(float4 at, float2 uv, int id)
{
    Corner c;
    c.position = at;
    c.uv = uv;
    c.id = id;
    return c;
}
"""
